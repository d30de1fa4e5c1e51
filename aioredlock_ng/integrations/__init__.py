"""Provide locks for web frameworks, one module per framework.

An import of this package imports no framework.
"""
