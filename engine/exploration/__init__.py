"""Exploring a space: runs, reductions, the proven optimum, Pareto frontiers, and stored results."""
