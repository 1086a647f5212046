"""Communication of weights and gradients: data-parallel reduction, layer-wise gathers, tied embeddings.

Sources: what ZeRO stages exchange, Rajbhandari et al. 2020; gathers block by block and what overlap hides, the
calibration study on 1,147 measured rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engine.cost_models.calibrated.physics.case_cache import once_per_case
from engine.cost_models.calibrated.physics.communication.collectives import (
    Tier,
    collective,
    gather_ring_latency,
    hops_over,
    tiers_of,
)
from engine.cost_models.calibrated.physics.communication.networks import shared_by
from engine.cost_models.calibrated.physics.formats import GATHERED_WIDE
from engine.cost_models.calibrated.physics.inputs import Case, Floats
from engine.cost_models.calibrated.physics.layers.block import BlockTimes
from engine.cost_models.calibrated.physics.layers.rates import SustainedRates
from engine.cost_models.calibrated.physics.parameters import Parameters
from engine.cost_models.calibrated.physics.pipeline.schedules import COMBINED, INTERLEAVED, PAIRED, SPLIT, among
from engine.cost_models.calibrated.physics.pipeline.stages import LOOP, placement_of
from engine.cost_models.calibrated.physics.weights import replicas_of

__all__ = [
    "Gathers",
    "data_hops",
    "data_tiers",
    "embedding_gathers",
    "exchange_passes",
    "exposed_exchange",
    "gathered_bytes",
    "gradient_exchange",
    "layer_gathers",
    "tied_exchange",
]

EMBEDDING_GATHERS = 3.0
"""Gathers of the embedding per microbatch where weights are sharded [dimensionless]. Source: the calibration study on
1,147 measured rows; stated, not fitted."""
EMBEDDING_GATHERS_FORWARD = 2.0
"""The same of a forward pass alone [dimensionless]: for embedding and head. Source: count."""


def embedding_gathers(case: Case) -> Floats | float:
    """Return the gathers of a vocabulary matrix per microbatch where weights are sharded [rows] [dimensionless].

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
    """
    if case.forward_only is None:
        return EMBEDDING_GATHERS
    return np.where(case.forward_only, EMBEDDING_GATHERS_FORWARD, EMBEDDING_GATHERS)


def data_tiers(case: Case, rates: SustainedRates) -> tuple[Tier, ...]:
    """Returns the tiers of a data-parallel group: neighbours after the tensor-parallel group share the domain.

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
        rates: sustained rates of the accelerators [FLOP/s, bytes/s] [rows].
    """
    return tiers_of(_data_placed(case), rates)


@once_per_case
def _data_placed(case: Case) -> tuple[Floats, ...]:
    """Return the placement of the ranks of a data-parallel group, as from `shared_by` [ranks]."""
    layout = case.layout
    ranks = layout.data_par * layout.context_par
    return shared_by(ranks, layout.tensor_par, case.accelerator.network_sizes, layout.groups)


@once_per_case
def data_hops(case: Case) -> Floats:
    """Returns the latency of a collective over a data-parallel group, in base latencies [rows] [dimensionless].

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
    """
    return hops_over(_data_placed(case))


@once_per_case
def _replicas_placed(case: Case) -> tuple[Floats, ...]:
    """Return the placement of processors with the same parameters outside experts, as from `shared_by` [ranks]."""
    layout = case.layout
    return shared_by(replicas_of(case)[0], layout.tensor_par, case.accelerator.network_sizes, layout.groups)


@once_per_case
def _replicas_hops(case: Case) -> Floats:
    """Latency of a collective over them, in base latencies [dimensionless]."""
    return hops_over(_replicas_placed(case))


@once_per_case
def _expert_replicas_placed(case: Case) -> tuple[Floats, ...]:
    """Return the placement of processors with the same experts, one full set of experts apart, as from `shared_by`
    [ranks]."""
    layout = case.layout
    split = layout.expert_par * layout.expert_tensor_par
    return shared_by(replicas_of(case)[1], split, case.accelerator.network_sizes, layout.groups)


@once_per_case
def _expert_replicas_hops(case: Case) -> Floats:
    """Latency of a collective over them, in base latencies [dimensionless]."""
    return hops_over(_expert_replicas_placed(case))


@once_per_case
def _ends_placed(case: Case) -> tuple[Floats, ...]:
    """Return the placement of the first and the last stage, half a pipeline apart, as from `shared_by` [ranks]."""
    return shared_by(np.asarray(2.0), case.processors / 2.0, case.accelerator.network_sizes)


@dataclass(frozen=True, slots=True)
class Gathers:
    """Exposed seconds of layer-wise gathers per block and microbatch, forward and backward [s].

    `weights` is the part of `backward` in a separate pass of gradients of weights, 0 without one; `paired` replaces
    both in an overlapped pair.
    """

    forward: Floats
    backward: Floats
    weights: Floats
    paired: Floats


def layer_gathers(
    case: Case,
    rates: SustainedRates,
    p: Parameters,
    tiers: Sequence[Tier],
    weights: Floats,
    block: BlockTimes,
    experts: Floats | None = None,
    *,
    split: bool = True,
    trained: tuple[Floats, Floats] | None = None,
) -> Gathers:
    """Return the time that the gathers of a block's weights add to its computation [rows] [s]; 0 for unsharded weights.

    As for `exposed_exchange`, a block that computes in less time never takes longer with them, and neither does any
    part of it that a schedule runs by itself: where gradients of weights have a pass of their own, it hides their
    reduction, and the pass of gradients of inputs hides the gather. A pair hides what it can behind itself, not behind
    an exchange of tokens that it hides too.

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
        rates: sustained rates of the accelerators [FLOP/s, bytes/s] [rows].
        p: parameters of a calibration.
        tiers: placement of the ranks that share the weights, from `data_tiers`; not read for unsharded weights.
        weights: parameters of the block on one tensor-parallel rank [rows] [elements].
        block: seconds of the block, which can hide the gathers [rows] [s].
        experts: parameters of its experts on one processor [rows] [elements], gathered over the replicas of an expert
            only; None for a block without experts.
        split: whether forward and backward of `block` are known separately; otherwise a lower bound over all splits.
        trained: parameters outside and inside experts whose gradients are reduced [rows] [elements]; None for all.
    """
    layout, software = case.layout, case.software
    if not np.any(layout.fully_sharded):
        return Gathers(*[np.zeros(())] * 4)
    ranks = layout.data_par * layout.context_par
    # One gather of the whole block, or one ring per tensor over every single rank.
    per_tensor = software.gather_calls * p.tensor_hop * (ranks - 1.0)
    latency = np.where(software.gather_calls > 1, per_tensor, gather_ring_latency(tiers, p))
    expert_tiers = None if experts is None else tiers_of(_expert_replicas_placed(case), rates)

    def moved(bytes_each: Floats, outside: Floats, inside: Floats | None) -> Floats:
        time = collective(bytes_each * outside, tiers, p, passes=1.0, hops=data_hops(case))
        if expert_tiers is not None and inside is not None:
            own = collective(bytes_each * inside, expert_tiers, p, passes=1.0, hops=_expert_replicas_hops(case))
            time = time + np.where(inside > 0, own, 0.0)
        return time / software.gather_efficiency + latency

    # ZeRO stage 3 (Rajbhandari et al. 2020, section 7.2.2): all-gather of the weights forward and again backward, then
    # reduce-scatter of the gradients. Below stage 3 the weights stay gathered for the backward pass.
    gather = moved(gathered_bytes(case), weights, experts)
    reduced = (weights, experts) if trained is None else (trained[0], None if experts is None else trained[1])
    reduce = moved(software.shard_gradient_bytes, *reduced)
    if case.forward_only is not None:
        reduce = np.where(case.forward_only, 0.0, reduce)
    # Weights gathered in 32 bits are cast to 16 after each gather.
    cast = software.gather_cast_bytes * (weights if experts is None else weights + experts) / rates.memory
    again = (layout.zero_stage >= 3) & (True if case.forward_only is None else ~case.forward_only)
    down = np.where(again, gather, 0.0) + reduce
    # Of a gather that fits into the pass, measured runs hide the share `overlap_data`.
    hidden = np.where(software.overlap_data > 0, p.overlap_data, 0.0)
    on = layout.fully_sharded > 0
    if not split:
        # Two gathers, each behind its own pass, hide no more than both behind both.
        both, casts = gather + down, cast + np.where(again, cast, 0.0)
        hidden_behind = hidden * np.minimum(both, block.forward + block.backward)
        shown, none = np.where(on, both - hidden_behind + casts, 0.0), np.zeros(())
        return Gathers(shown, none, none, shown)
    cast_again = np.where(again, cast, 0.0)
    first = np.where(on, gather - hidden * np.minimum(gather, block.forward) + cast, 0.0)
    then = np.where(on, down - hidden * np.minimum(down, block.backward) + cast_again, 0.0)
    own: Floats = np.zeros(())
    separate, paired = among(layout.schedule, SPLIT), among(layout.schedule, PAIRED)
    if separate.any():
        own = np.where(on & separate, reduce - hidden * np.minimum(reduce, block.weight_gradient), 0.0)
        second = np.where(again, gather, 0.0)
        second = second - hidden * np.minimum(second, block.input_gradient) + cast_again
        then = np.where(on & separate, second + own, then)
    pair = first + then
    if paired.any():
        both = gather + down
        pair = np.where(on & paired, both - hidden * np.minimum(both, block.paired) + cast + cast_again, pair)
    return Gathers(first, then, own, pair)


def gathered_bytes(case: Case) -> Floats:
    """Return the bytes per parameter of gathers of weights: fewer where parameters are held in 8 bits with scales of
    whole tensors or of square blocks, `GATHERED_WIDE` of others [rows] [bytes].

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
    """
    software, low = case.software, case.layout.linear_bits / 8.0
    if not np.any(software.fp8_parameters):
        return software.gather_bytes
    narrow = (software.fp8_parameters > 0) & (low >= 1.0) & (low < 2.0)
    narrow = narrow & ~np.isin(case.layout.linear_format, GATHERED_WIDE)
    return np.where(narrow, np.minimum(low, software.gather_bytes), software.gather_bytes)


def gradient_exchange(
    case: Case, rates: SustainedRates, p: Parameters, weights: Floats, expert_weights: Floats
) -> Floats:
    """Returns the seconds per step of the data-parallel exchange of gradients and weights, hidden or not [rows] [s].

    It is 0 without replicas, and where weights are gathered layer by layer, which exchanges gradients along the way.

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
        rates: sustained rates of the accelerators [FLOP/s, bytes/s] [rows].
        p: parameters of a calibration.
        weights, expert_weights: parameters on one processor outside and inside experts [rows] [elements].
    """
    layout = case.layout
    ranks, _ = replicas_of(case)
    plain = _exchange_time(case, tiers_of(_replicas_placed(case), rates), _replicas_hops(case), p, weights)
    full = plain
    if np.any(expert_weights > 0):
        tiers = tiers_of(_expert_replicas_placed(case), rates)
        own = _exchange_time(case, tiers, _expert_replicas_hops(case), p, expert_weights)
        full = plain + np.where(expert_weights > 0, own, 0.0)
    return np.where((layout.fully_sharded > 0) | (ranks <= 1.0), 0.0, full)


@once_per_case
def exchange_passes(case: Case) -> Floats:
    """Return how many microbatches' work of a whole stage hides its exchange of gradients [rows] [microbatches].

    Gradients of a stage are exchanged behind the last chunk of its last microbatch. An interleaved pipeline ends the
    chunks one after the other, each for a group of as many microbatches as there are stages: the gradients of all but
    the last chunk are exchanged behind the groups of the chunks that are left. Never more than all microbatches.

    Source: order of chunks, Narayanan et al. 2021 (arXiv:2104.04473, section 2.2); one exchange per chunk as soon as
    its gradients are complete, Megatron Core's `overlap_grad_reduce`.

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
    """
    layout = case.layout
    each = 1.0 / layout.pipeline_interleaving
    if np.all(layout.pipeline_interleaving == 1):
        return each
    # 1/v + (v - 1)/v min(p, n).
    group = np.minimum(layout.pipeline_par, case.microbatches)
    return np.where(among(layout.schedule, (INTERLEAVED, COMBINED)), each + (1.0 - each) * group, each)


def exposed_exchange(full: Floats, overlapped: Floats, window: Floats, p: Parameters) -> Floats:
    """Return the exposed part of an exchange that some computation may hide [rows] [s].

    Shortening the window by a second adds less than a second: a step with faster computation is never longer.

    Args:
        full: seconds of the exchange [rows] [s].
        overlapped: 1 where it is overlapped, 0 where not.
        window: seconds of the computation that hides it [rows] [s].
        p: parameters of a calibration.
    """
    if not np.any(overlapped):  # all of it shows, whatever the window: explorations ask so for every other execution
        return full
    return np.asarray(full - np.where(overlapped > 0, p.overlap_data, 0.0) * np.minimum(full, window))


def _exchange_time(case: Case, tiers: tuple[Tier, ...], hops: Floats, p: Parameters, weights: Floats) -> Floats:
    gradient_bytes = case.software.gradient_bytes
    # Rajbhandari et al. 2020, section 7.2.1: reduce-scatter of gradients, then all-gather of 16-bit weights; without
    # sharding (section 7.1) an all-reduce, which is two passes over the gradients.
    reduce = collective(gradient_bytes * weights, tiers, p, passes=1.0, hops=hops)
    gather = collective(np.minimum(2.0, gathered_bytes(case)) * weights, tiers, p, passes=1.0, hops=hops)
    return reduce + np.where(case.layout.zero_stage >= 1, gather, reduce)


def tied_exchange(case: Case, rates: SustainedRates, p: Parameters, vocabulary: Floats) -> Floats:
    """Returns the seconds per step to add the gradients of an embedding on the first and the last stage [rows] [s].

    It is there on both where the head is tied to it, and where prediction layers of the last stage look tokens up.

    The two share the networks that connect the whole pipeline, as if they were half of it apart.

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
        rates: sustained rates of the accelerators [FLOP/s, bytes/s] [rows].
        p: parameters of a calibration.
        vocabulary: parameters of one vocabulary matrix on one processor [rows] [elements].
    """
    layout = case.layout
    time = collective(case.software.gradient_bytes * vocabulary, tiers_of(_ends_placed(case), rates), p, passes=2.0)
    shared = case.model.tied_embeddings > 0
    if np.any(case.model.prediction_layers > 0):
        # A stage that has both ends of the model shares it as it is.
        shared = shared | ((case.model.prediction_layers > 0) & (placement_of(case) == LOOP))
    if case.frozen is not None:  # without gradients of the embedding
        return np.zeros(np.broadcast_shapes(np.shape(time), np.shape(shared)))
    return np.where(shared & (layout.pipeline_par > 1), time, 0.0)
