"""The methods of a lease that users do not call, and its open `async with` blocks."""
