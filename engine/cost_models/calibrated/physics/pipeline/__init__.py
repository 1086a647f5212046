"""Stages and schedules: who holds which blocks, how long each stage takes, and what the pipeline takes with them."""
