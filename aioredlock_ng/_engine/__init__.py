"""Floors 3 and 4: asking all nodes, deciding at quorum, waiting, renewing, cleaning up. No I/O of its own."""
