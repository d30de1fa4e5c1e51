"""The study of scale: its command, its page, and the example of sharding."""
