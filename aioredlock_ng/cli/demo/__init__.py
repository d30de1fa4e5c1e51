"""Show the library at work on real processes, real servers and real faults."""
