"""Numbers, units, formulas and sentences as text."""
