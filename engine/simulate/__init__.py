"""Schedules of pipelines as events: what every stage does when."""
