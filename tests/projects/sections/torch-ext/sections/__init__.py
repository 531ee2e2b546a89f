"""A kernel that does nothing."""
