"""Measured runs: logs, CSV and JSON as points, predictions and fitted rates for them."""
