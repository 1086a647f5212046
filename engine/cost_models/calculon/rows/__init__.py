"""Many executions at once: cells made ready, what cannot run rejected with proof, and rows evaluated."""
