"""The attempts of an acquisition to get a lock, their requests, and the releases."""
