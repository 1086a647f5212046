"""Seconds of the kernels of a block on one device, by the calibrated rates of a system, for every strategy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from engine.cost_models.contract import KernelTimes
from engine.executions.arrays import Floats
from engine.planners.intra_operator.contractions import Contraction, Dim
from engine.planners.intra_operator.costs.options import BlockOptions
from engine.planners.intra_operator.costs.recomputation import Again
from engine.planners.intra_operator.layer_graphs import LayerGraph
from engine.planners.intra_operator.mesh import Mesh
from engine.planners.intra_operator.parallel_blocks import BlockMember, ParallelBlock

__all__ = ["block_seconds", "norm_seconds"]


def norm_seconds(mesh: Mesh, elements: Floats, again: Again) -> Floats:
    """Returns the seconds of a norm, forward and backward [s].

    Args:
        mesh: with a system.
        elements: of the residual stream on a device [elements].
        again: repeated shares of the forward pass.
    """
    kernels = mesh.kernels
    if kernels is None:
        return np.zeros(np.shape(elements))
    ahead, back = kernels.norm(elements)
    return np.asarray((1.0 + again.elementwise) * ahead + back)


def block_seconds(
    graph: LayerGraph, block: ParallelBlock, option: BlockOptions, mesh: Mesh, again: Again, *, first: bool
) -> Floats:
    """Returns the seconds of the kernels of a block, forward and backward, for every strategy [s].

    Products of weights with the same tensor are one kernel; fused attention comes from the calibrated model.

    Args:
        graph: of the layer.
        block: whose kernels they are.
        option: its strategies.
        mesh: with a system.
        again: repeated shares of the forward pass.
        first: whether the input of the layer needs no gradient.
    """
    kernels = mesh.kernels
    if kernels is None:
        return np.zeros(len(option.ids))
    rows = option.ids.tolist()
    return np.array([_kernel_seconds(graph, block, row, mesh.shape, kernels, again, first) for row in rows])


def _kernel_seconds(
    graph: LayerGraph,
    block: ParallelBlock,
    row: Sequence[int],
    shape: Sequence[int],
    kernels: KernelTimes,
    again: Again,
    first: bool,
) -> float:
    found = 0.0
    together: dict[tuple[str, bool], list[tuple[float, ...]]] = {}
    acted = {each.after for each in graph.between if each.keeps}
    acted |= {"up"} if option_is_masked(block) else set()
    gates = [each for each in block.contractions if each in acted]
    for member in block.members:
        sizes = _local_sizes(graph.sizes, member, row, shape)
        each = member.contraction
        if each.name in ("qk", "av"):
            if each.name == "qk":
                found += _attention_seconds(graph, sizes, kernels, again)
            continue
        spare = first and graph.reads.get(each.name) == ""
        products = together.setdefault((each.left.name, spare), [])
        products.append(_product_shape(each, sizes))
        if each.name in acted and each.name == gates[-1]:
            results = math.prod(_dim_sizes(each.out.dims, sizes))
            ahead, back = kernels.activation(results, gated=len(gates) > 1)
            found += float((1.0 + again.elementwise) * ahead + back)
    for (_, spare), products in together.items():
        m, _, k, count = products[0]
        # Columns of products with the same input add up to one product.
        forward, left, right = kernels.product(m, sum(each[1] for each in products), k, count)
        found += float((1.0 + again.linear) * forward + right + (0.0 if spare else left))
    return found


def option_is_masked(block: ParallelBlock) -> bool:
    """Returns whether a block is that of experts whose places are chosen by masks.

    Args:
        block: of a layer.
    """
    return "up" in block.contractions


def _attention_seconds(graph: LayerGraph, sizes: Mapping[str, float], kernels: KernelTimes, again: Again) -> float:
    heads = sizes["a"] * sizes.get("r", 1)
    ahead, back = kernels.attention(
        sizes["b"],
        heads,
        int(graph.sizes["s"]),
        int(graph.sizes["d"]),
        int(graph.sizes.get("value", graph.sizes["d"])),
        graph.window,
    )
    return float((1.0 + again.attention) * ahead + back)


def _local_sizes(
    sizes: Mapping[str, int], member: BlockMember, row: Sequence[int], shape: Sequence[int]
) -> dict[str, float]:
    """Sizes of all labels on one device."""
    found = {label: float(size) for label, size in sizes.items()}
    for number, devices in zip(row, shape, strict=True):
        found[member.labels[number]] /= devices
    if found.get("a", 1.0) < 1.0 and "r" in found:  # every device repeats the head of keys that its queries share
        found["r"] *= found["a"]
        found["a"] = 1.0
    return found


def _product_shape(contraction: Contraction, sizes: Mapping[str, float]) -> tuple[float, float, float, float]:
    """Rows, columns, inner dimension and number of the products of a contraction on one device."""
    parts = (contraction.rows, contraction.columns, contraction.contracted, contraction.batch)
    m, n, k, count = (math.prod(_dim_sizes(dims, sizes)) for dims in parts)
    return m, n, k, count


def _dim_sizes(dims: Sequence[Dim], sizes: Mapping[str, float]) -> list[float]:
    return [sizes[label] for dim in dims for label in dim]
