"""Floor 0: pure decisions.

Nothing here awaits, reads a clock, draws a random number or does I/O.
"""
