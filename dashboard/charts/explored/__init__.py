"""Charts of everything explored: the map, what each choice costs, the frontier, and why nothing fits."""
