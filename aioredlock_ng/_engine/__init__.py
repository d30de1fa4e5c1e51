"""The engine: rounds to all nodes, waiting, renewal, release and recovery. It does no I/O itself."""
