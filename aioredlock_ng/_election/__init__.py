"""Elections: candidates, the terms of a leader, and the search for the present leader."""
