"""Waiting: the lines of one process, and their places in the queues on the nodes."""
