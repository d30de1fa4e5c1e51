"""The engine: rounds to all nodes, waiting, renewal, release, recovery. It does no I/O itself."""
