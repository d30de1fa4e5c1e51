"""Measure the sale of N items by a web shop with several processes and different locks."""
