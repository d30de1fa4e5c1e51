"""Provide the names of other libraries, so that a migration is one changed import."""
