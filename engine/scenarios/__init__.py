"""Scenarios: a model, a system and the limits of a space, as documents that can be saved and sent."""
