"""Nodes whose votes do not count: they forgot, they are one server twice, or too few of them answer."""
