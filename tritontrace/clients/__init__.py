"""What looks at launches: the base of clients, the built-in ones, and how they are found by name."""
