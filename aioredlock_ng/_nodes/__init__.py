"""The nodes: connections to servers, the health of servers, and a node in memory.

docs/code-map.md lists the layers of the package, which are called floors there.
"""
