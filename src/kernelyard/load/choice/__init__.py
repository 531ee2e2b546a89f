"""Which variant of a kernel runs on a system, which of those is the best, and why the others do not."""
