"""Programs that put load on the nodes, one process each; never imported by the library, or by one another save `load`."""
