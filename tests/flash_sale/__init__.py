"""The flash sale: what its locks do, what it counts, and that its command runs."""
