"""Provide locks for web frameworks and task queues, one module for each.

An import of this package imports no framework and no task queue.
"""
