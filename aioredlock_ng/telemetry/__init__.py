"""Provide sinks that count and trace events, one module per library (docs/telemetry.md)."""
