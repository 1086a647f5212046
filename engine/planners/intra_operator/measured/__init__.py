"""Measured runs: logs, CSV and JSON as points, predictions and fitted rates for them, plans in the same text forms, and
CFP's published results."""
