"""What strategies cost: states of tensors and what collectives of them move, strategies on a mesh, the accounts of a
layer, and what their kernels take."""
