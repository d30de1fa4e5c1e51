"""Attempts to get a lock: rounds to the nodes, the acquisition around them, releases."""
