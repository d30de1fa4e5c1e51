"""Try all requests of the library on each node, and judge the set of nodes by the answers."""
