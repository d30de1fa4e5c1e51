"""Measure the cost of listening to events, and the cost without a listener."""
