"""How a `Redlock` turns the arguments of its methods into work for the engine."""
