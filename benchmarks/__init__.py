"""Benchmarks: peers on the same inputs, interleaved in one run. See README.md beside this file."""
