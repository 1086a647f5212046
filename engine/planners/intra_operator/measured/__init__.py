"""Measured runs: logs, CSV and JSON as points, predictions and fitted rates beside them, plans in the same text forms,
and what CFP published."""
