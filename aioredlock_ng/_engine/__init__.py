"""The engine: requests to all nodes, waiting, renewal, release and recovery, without any I/O."""
