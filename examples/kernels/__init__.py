"""Real Triton kernels with plain host functions: nothing in this package knows of tritontrace.

The demo, the tests and the benchmarks share them. They follow the well-known tutorial kernels in shape, written anew.
"""
