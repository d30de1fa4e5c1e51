"""Runs the whole library in a simulated world (docs/simulation.md)."""
