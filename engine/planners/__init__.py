"""Planners: each answers a problem with a plan, by a search of its own. They share the contract and nothing else."""
