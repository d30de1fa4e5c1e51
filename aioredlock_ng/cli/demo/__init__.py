"""Show the library at work with real processes, real servers and real faults."""
