"""Floor 2: the only I/O of the library.

One connection per node, its health, and a node in memory.
"""
