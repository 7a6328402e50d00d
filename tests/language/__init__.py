"""Every public name of the language, executed and compared: see `test_gate`."""
