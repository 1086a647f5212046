"""Checks of executions against a model and a system, in the reference's order, up to the memory capacities.

Source: Calculon 0.1.0 (commit caa4b11), `llm.py` `compile`, and the order of its assertions. A tier
that must be filled accepts any group that divides its size: four of eight processors count as filled.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from engine.cost_models.calculon.physics.rates import NetworkRates, network_rates
from engine.executions import reasons
from engine.executions.arrays import Ints, ReasonNumbers, take
from engine.executions.codes import ALL_REDUCE, OFFLOADS
from engine.executions.rules import most_blocks, offloads, tokens_undivided, too_few_to_offload, undivided
from engine.executions.table import DATATYPES, Executions, mark
from hardware import System
from models import Model

__all__ = ["check_against", "network_reasons", "tier_use"]


def tier_use(tier: int, degrees: Sequence[Ints], nets: Sequence[Ints]) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """Returns how many processors share the network `tier`, and whether any parallelism uses it, for each row [rows].

    Only degrees above 1 count.

    Args:
        tier: position of the network, 0 the innermost.
        degrees: tensor, pipeline and data parallel degrees, each [rows].
        nets: the tiers that carry them, in the same order, each [rows].
    """
    used: Ints = np.ones(np.broadcast_shapes(*(np.shape(degree) for degree in degrees)), np.int64)
    any_used = np.zeros(used.shape, bool)
    for degree, net in zip(degrees, nets, strict=True):
        on_tier = (net == tier) & (degree > 1)
        used = used * np.where(on_tier, degree, 1)
        any_used |= on_tier
    return used, any_used


def network_reasons(networks: NetworkRates, degrees: Sequence[Ints], nets: Sequence[Ints]) -> ReasonNumbers:
    """Returns the reason number of each row's network assignment (0 where it fits): tier by tier, size before fill.

    Args:
        networks: the tiers of the system.
        degrees: tensor, pipeline and data parallel degrees, each [rows].
        nets: the tiers that carry them, in the same order, each [rows].
    """
    result = np.zeros(np.broadcast_shapes(*(np.shape(degree) for degree in degrees)), np.int16)
    for tier in range(len(networks.size)):
        used, any_used = tier_use(tier, degrees, nets)
        too_small = any_used & (used > networks.size[tier])
        unfilled = any_used & networks.must_be_filled[tier] & (networks.size[tier] % np.maximum(used, 1) != 0)
        mark(result, (("network_too_small", too_small), ("network_not_filled", unfilled)))
    return result


def check_against(model: Model, system: System, e: Executions, reason: ReasonNumbers) -> None:
    """Marks, in `reason` [rows], well-formed rows that this model or system cannot run; memory is checked later.

    Args:
        model: what runs.
        system: where it runs.
        e: the executions [rows].
        reason: number of the first reason of each row, 0 for none [rows]; changed in place.
    """
    networks = network_rates(system)
    tiers = len(networks.size)
    nets = (e.tensor_par_net, e.pipeline_par_net, e.data_par_net)
    outside = np.zeros(len(e), bool)
    for net in nets:
        outside |= (net < 0) | (net >= tiers)
    mark(reason, (("network_does_not_exist", outside),))
    open_rows = np.flatnonzero(reason == reasons.FITS)
    if len(open_rows):
        part = take(e, open_rows)
        found = network_reasons(
            networks,
            (part.tensor_par, part.pipeline_par, part.data_par),
            (part.tensor_par_net, part.pipeline_par_net, part.data_par_net),
        )
        found_here = found.copy()
        _check_sizes(model, system, part, found_here)
        reason[open_rows] = found_here


def _check_sizes(model: Model, system: System, e: Executions, reason: ReasonNumbers) -> None:
    pipeline, tensor = e.pipeline_par, e.tensor_par
    blocks = most_blocks(model.num_blocks, pipeline)
    away = offloads({name: getattr(e, name) for name in OFFLOADS})
    splits = e.tensor_par_comm_type != ALL_REDUCE
    broken = undivided(tensor, hidden=model.hidden, feedforward=model.feedforward, attn_heads=model.attn_heads)
    present = np.array([name in system.matrix for name in DATATYPES], bool)
    mark(
        reason,
        (
            ("unknown_datatype", e.datatype < 0),
            ("interleaving_exceeds_blocks", e.pipeline_interleaving > blocks),
            ("interleaving_not_dividing_blocks", blocks % e.pipeline_interleaving != 0),
            ("offload_needs_three_blocks", away & too_few_to_offload(blocks)),
            ("sequence_not_divisible", splits & tokens_undivided(e.microbatch_size, model.seq_size, tensor)),
            *broken.items(),
            ("datatype_not_on_system", ~present[e.datatype]),
        ),
    )
