"""Who is next: the line of one process, and its place in the queues on the nodes."""
