"""Sinks that count and trace what happens to locks: one module per library, imported by nothing else; docs/telemetry.md."""
