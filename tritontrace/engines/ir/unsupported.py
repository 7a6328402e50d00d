"""Reasons (stub)."""
def reason(name):
    return None
