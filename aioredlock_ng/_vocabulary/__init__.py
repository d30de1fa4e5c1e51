"""Public records and events, which the modules `records` and `events` export."""
