"""Triton's own language tests, run from a checkout that the user has, beside the same tests with ``TRITON_INTERPRET=1``."""
