"""Run an engine on an event loop of its own, in a thread, and forward calls from other threads."""
