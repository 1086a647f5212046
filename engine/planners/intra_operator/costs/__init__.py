"""Costs of strategies: states of tensors, volumes of collectives, strategies on a mesh, accounts of layers, and
kernels."""
