"""The demo: real processes, real servers, real faults, one counter; never imported by the library."""
