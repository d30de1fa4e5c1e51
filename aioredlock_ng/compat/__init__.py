"""Provide the API of other libraries, so that a migration begins with one changed import."""
