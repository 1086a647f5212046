"""Schedules of pipelines as rules: each lists what every rank does, one action after the other."""
