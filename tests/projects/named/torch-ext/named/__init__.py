"""A kernel that knows its name."""
