"""Communication between processors: collectives, the networks of each group, and exposed time."""
