"""The page pareto."""
