"""Pure decisions: nothing here awaits, reads a clock, draws a random number or does I/O."""
