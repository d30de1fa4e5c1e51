"""Attempts to get a lock: the rounds to the nodes, the acquisition around them, and the releases."""
