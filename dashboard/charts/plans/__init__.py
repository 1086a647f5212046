"""Charts of plans: layer-wise, inside operators, and under changing resources."""
