"""Adapters of low rank on frozen weights: their parameters on one processor, and their traffic.

An adapter of rank r is two narrow products, whose outputs are added to the wide one's: y = W x + B (A x), A of r rows
and one column per input, B of one row per output and r columns. Only A and B are trained.

Source: LoRA (Hu et al. 2021, arXiv:2106.09685, section 4.1).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from engine.cost_models.calibrated.physics.case_cache import once_per_case
from engine.cost_models.calibrated.physics.inputs import Case, Floats
from models.layers import Product

__all__ = ["BYTES", "AdapterTraffic", "adapter_seconds", "adapter_traffic", "has_adapter", "local_adapters"]

BYTES = 2.0
"""Bytes per element of an adapter's inputs, outputs and inner vectors [bytes]: 16 bits with products of any width.
Source: Megatron-Bridge, `peft/lora_layers.py`; PEFT, `tuners/lora/layer.py`."""
FUSED_OUTPUTS = 2.0
"""Times that a product's outputs pass memory for its adapter forward [dimensionless]: written by the narrow product
and read where they are added, in one kernel with the sum. Source: count of reads and writes."""
EAGER_OUTPUTS = 6.0
"""The same where scaling and sum are plain framework operators [dimensionless]: written, scaled into a copy (read
and written), added (two read, one written). Source: count of reads and writes; prime-rl, `lora/multi_linear.py`."""
LAUNCHES_FORWARD = 2.0
"""Kernels of an adapter forward [kernels]: one per narrow product. Source: count."""
LAUNCHES_BACKWARD = 4.0
"""The same backward [kernels]: gradients of inputs and of weights of both. Source: count."""
BACKWARD_TRAFFIC = 2.0
"""Memory traffic of an adapter's backward pass relative to the forward pass [dimensionless]: each tensor is read for
two products. Source: count of reads and writes."""


class AdapterTraffic(NamedTuple):
    """Traffic of the adapters of a block in one forward pass [bytes], and their number of targets [matrices]."""

    moved: Floats
    targets: float


@once_per_case
def local_adapters(case: Case) -> tuple[tuple[Floats, Floats], ...]:
    """Return the parameters of the adapters on one processor outside and inside routed experts, of a block of every
    size [rows] [elements]; empty where all weights are trained.

    Tensor parallelism divides the narrow matrix on the side that it divides of the product; the other is whole.

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
    """
    tuning, layout = case.frozen, case.layout
    if tuning is None:
        return ()
    split = layout.expert_par * layout.expert_tensor_par
    found = []
    for products in tuning.products:
        outside = inside = np.zeros(())
        for each in products:
            if each.held > 1:
                part = layout.expert_tensor_par
                sides = each.local_outputs(part) + each.matrices * each.local_inputs(part)
                inside = inside + tuning.rank * sides * each.held * part / split
            else:
                t = layout.tensor_par
                sides = each.local_outputs(t) + each.matrices * each.local_inputs(t)
                outside = outside + tuning.rank * sides
        found.append((np.asarray(outside, np.float64), np.asarray(inside, np.float64)))
    return tuple(found)


def adapter_traffic(case: Case, size: int) -> AdapterTraffic:
    """Return the traffic of the adapters of a block of some size [rows] [bytes].

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
        size: position of the size among the sizes of the model's blocks.
    """
    tuning, layout = case.frozen, case.layout
    assert tuning is not None
    moved: Floats = np.zeros(())
    passes = np.where(case.software.unfused_elementwise > 0, EAGER_OUTPUTS, FUSED_OUTPUTS)
    for each in tuning.products[size]:
        if each.held > 1:
            part = layout.expert_tensor_par
            # Copies of tokens on one processor, each with the slices of its expert that are there.
            tokens = case.tokens * each.visited * part / layout.tensor_par * case.busiest_load
        else:
            part, tokens = layout.tensor_par, case.tokens
        # x in; r out and in again; the adapter's outputs on their way into the product's.
        elements = each.matrices * (each.local_inputs(part) + 2.0 * tuning.rank) + passes * each.local_outputs(part)
        moved = moved + BYTES * tokens * elements
    return AdapterTraffic(moved, float(sum(each.matrices for each in tuning.products[size])))


def adapter_seconds(traffic: AdapterTraffic, memory: Floats, kernel_start: float) -> tuple[Floats, Floats]:
    """Return the seconds of the adapters of a block, forward and backward [rows] [s].

    Their products are narrow: memory bounds them, and each is a kernel of its own.

    Args:
        traffic: of the block, of `adapter_traffic` [bytes].
        memory: sustained bandwidth of memory [bytes/s].
        kernel_start: start of a kernel [s].
    """
    seconds = traffic.moved / memory
    return (
        seconds + LAUNCHES_FORWARD * traffic.targets * kernel_start,
        BACKWARD_TRAFFIC * seconds + LAUNCHES_BACKWARD * traffic.targets * kernel_start,
    )


def has_adapter(products: tuple[Product, ...], *names: str) -> bool:
    """Return whether one of these products has an adapter.

    Args:
        products: with adapters, of one block.
        names: of products.
    """
    return any(each.name in names for each in products)
