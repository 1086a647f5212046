"""Planners: each searches for the plan that solves a problem. They share the contract and nothing else."""
