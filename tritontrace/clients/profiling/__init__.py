"""The rooms of the profiler: what accesses touch, what is computed, what the compiler made, and what devices can do."""
