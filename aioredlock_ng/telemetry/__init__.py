"""Provide sinks that count and trace events. Each module is for one metrics library."""
