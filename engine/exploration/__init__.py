"""Exploring a space: runs, reductions, the proven optimum, Pareto frontiers, and what is kept."""
