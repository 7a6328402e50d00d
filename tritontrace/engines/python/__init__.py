"""The step-through engine: a kernel's own Python source, run statement by statement, one program after another."""
