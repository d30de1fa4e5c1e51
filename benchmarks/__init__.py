"""Measures the library beside its peers and beside the speed limit, on real servers; never part of the wheel."""
