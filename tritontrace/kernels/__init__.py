"""The user's kernels: their arguments, targets, layers, and what becomes of one launch."""
