"""An engine on an event loop of its own, in a thread, and the ways to it from other threads."""
