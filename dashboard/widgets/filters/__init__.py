"""Filters on fields and results, the same on every page: chips, ranges, the menu that opens them."""
