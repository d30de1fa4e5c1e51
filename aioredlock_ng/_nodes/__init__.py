"""Floor 2: the only I/O of the library. docs/code-map.md lists the floors.

Each node has one connection and a record of its health. There is also a node in memory.
"""
