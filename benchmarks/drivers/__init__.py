"""Programs that put load on the nodes, each in a process of its own.

The library does not import these programs. Drivers share `load`, `line`, `threads`, `hold`,
`wakeup`, `one_node` and `tracing`.
"""
