"""A sale of N items by a web shop on several processes, locked by ours and by others; imports nothing by itself."""
