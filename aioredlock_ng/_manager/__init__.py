"""The methods of `Redlock`, which turn their arguments into work for the engine."""
