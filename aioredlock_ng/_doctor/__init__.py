"""Try the requests of the library on each node, and derive findings from the answers."""
