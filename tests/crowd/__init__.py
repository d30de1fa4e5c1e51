"""Crowds of processes: what the benchmark counts, and that it runs and leaves nobody behind."""
