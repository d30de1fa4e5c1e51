"""Attempts to get a lock: the acquisition that makes them, their requests, and releases."""
