"""The host-bound floor: a block cannot run faster than the host launches its kernels.

Small models on fast processors are bound by this. Counts are kernels per block of a Megatron-style implementation;
the time per kernel is fitted. Compilation fuses kernels, CUDA graphs replay them without the host.

Source: the calibration study on 1,147 measured rows.
"""

from __future__ import annotations

import numpy as np

from engine.cost_models.calibrated.physics.case_cache import once_per_case
from engine.cost_models.calibrated.physics.inputs import ATTENTION_KERNELS, GENERATIONS, LAUNCHES, Case, Floats
from engine.cost_models.calibrated.physics.parameters import Parameters

__all__ = ["block_launches", "expert_launches", "launch_time", "size_wait"]

FUSED_BLOCK = 20.0
"""Kernels of a dense block forward with fused attention [kernels]. Source: count for a Megatron-style block, taken from
the calibration study on 1,147 measured rows."""
UNFUSED_BLOCK = 26.0
"""The same without fused attention [kernels]. Source: as for `FUSED_BLOCK`."""
PER_PEER = 1.0
"""Launches' worth of host time per peer of the tensor-parallel group [kernels]: calls of the collectives and waiting
for the slowest host. Source: stated by us."""
EIGHT_BIT = 10.0
"""Kernels that casts to 8 bits add to a dense block forward [kernels]. Source: as for `FUSED_BLOCK`."""
BACKWARD = 1.8
"""Kernels of the backward pass per kernel of the forward pass [dimensionless]. Source: as for `FUSED_BLOCK`."""
EXPERTS_FORWARD = 15.0
"""Kernels that a layer of experts adds forward [kernels]. Source: as for `FUSED_BLOCK`."""
EXPERTS_BACKWARD = 25.0
"""The same backward [kernels]. Source: as for `FUSED_BLOCK`."""
PER_PRODUCTS = 1.0
"""Launches' worth of host time of the two products of every local expert forward [kernels]: Transformer Engine hands
them to cuBLAS one by one, without a framework operation for each. Source: stated by us."""
PER_EXPERT = 1.0
"""The same of operations for every local expert forward where experts are not grouped [kernels]. Source: stated by us,
looking at identical configurations before and after Megatron-Bridge 26.04."""
PER_EXPERT_EIGHT_BIT = 2.0
"""Casts to 8 bits of every local expert forward where experts are not grouped [kernels]: of the inputs of its two
products. Source: count."""


_ONE_PROGRAM = np.array([name.startswith("tpu") for name in GENERATIONS])
"""Generations whose compiler, XLA, makes one program of a whole step: no framework launches single kernels there."""


def launch_time(case: Case, p: Parameters) -> Floats:
    """Returns the host time per kernel [rows] [s].

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
        p: parameters of a calibration.
    """
    launch = case.software.launch
    factor = np.where(launch == LAUNCHES.index("compiled"), p.compiled_launch, 1.0)
    one_program = _ONE_PROGRAM[case.accelerator.generation.astype(int)]
    return p.launch * np.where(one_program | (launch == LAUNCHES.index("graphs")), p.graphs_launch, factor)


def dense_factor(case: Case, p: Parameters) -> Floats:
    """Return the share of a block's launches outside routed experts that partial graphs leave [rows] [dimensionless].

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
        p: parameters of a calibration.
    """
    return np.where(case.software.launch == LAUNCHES.index("partial_graphs"), p.graphs_launch, 1.0)


def size_wait(case: Case, launches: Floats, p: Parameters) -> Floats:
    """Returns the seconds that a forward pass through a layer of experts waits for its launches [rows] [s].

    The host waits for the device, to learn how many tokens each expert gets, so that its launches hide behind nothing.
    Graphs of a whole step work with sizes fixed beforehand.

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
        launches: kernels of the block forward [rows] [kernels].
        p: parameters of a calibration.
    """
    waits = case.software.launch != LAUNCHES.index("graphs")
    return np.where(waits, launches * launch_time(case, p), 0.0)


@once_per_case
def block_launches(case: Case) -> tuple[Floats, Floats]:
    """Returns how many kernels a dense block launches, forward and backward [rows] [kernels].

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
    """
    unfused = case.software.attention_kernel == ATTENTION_KERNELS.index("unfused")
    forward = np.where(unfused, UNFUSED_BLOCK, FUSED_BLOCK)
    forward = forward + PER_PEER * (case.layout.tensor_par - 1.0)
    forward = forward + np.where(case.layout.linear_bits < 16, EIGHT_BIT, 0.0)
    return forward, BACKWARD * forward


@once_per_case
def expert_launches(case: Case) -> tuple[Floats, Floats]:
    """Returns how many kernels a layer of experts adds, forward and backward [rows] [kernels].

    Where quantisation and products are not grouped, every local expert has launches of its own.

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
    """
    own = PER_EXPERT + np.where(case.layout.linear_bits < 16, PER_EXPERT_EIGHT_BIT, 0.0)
    own = np.where(case.software.grouped_experts > 0, 0.0, own) + PER_PRODUCTS
    own = own * case.model.experts / case.layout.expert_par
    # Backward each expert has two products for one forward.
    return EXPERTS_FORWARD + own, EXPERTS_BACKWARD + 2.0 * own
