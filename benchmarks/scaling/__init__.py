"""The study of scale for docs/scaling.md: measured, simulated and calculated figures."""
