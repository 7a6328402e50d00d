"""Example kernels and the demo of ``make demo``."""
