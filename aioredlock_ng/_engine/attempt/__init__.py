"""Questions to the nodes: a round to all of them, the acquisition that it belongs to, and its undoing."""
