"""The floor of the nodes: connections to servers, their health, and a node in memory.

docs/code-map.md lists the floors.
"""
