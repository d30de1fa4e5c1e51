"""Locks in web frameworks, one module per framework; importing this package imports none of them."""
