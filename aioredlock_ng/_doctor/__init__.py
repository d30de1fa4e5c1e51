"""The doctor: tries all calls of the library on each node, and judges the set of nodes by the answers."""
