"""Benchmarks of the library, beside other libraries and a bare client, on real servers.

The wheel of the library does not contain this package.
"""
