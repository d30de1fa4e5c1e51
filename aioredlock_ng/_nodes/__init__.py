"""Floor 2: the only I/O of the library: one connection per node, its health, and the in-memory stand-in."""
