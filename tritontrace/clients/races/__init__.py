"""What the race detector is made of: address sets, shadow memory, the log of accesses, ordering, and conflicts."""
