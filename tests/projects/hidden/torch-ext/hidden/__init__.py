"""A kernel full of names that nobody else can see."""
