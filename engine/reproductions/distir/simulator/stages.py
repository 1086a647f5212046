"""Durations of every part of a step on every stage, for many configurations at once.

A layer is a weight, a ReLU, and their gradients. With H shards, layers of even number cut their weight by columns, odd
ones by rows; activations are whole after an odd layer, cut after an even one, and whole where H is 1. An all-reduce of
whole activations follows each odd layer forward and each even one backward (Shoeybi et al., arXiv:1909.08053, sec. 3).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.executions.arrays import Floats, Ints
from engine.reproductions.distir.simulator.configurations import Configurations
from engine.reproductions.distir.simulator.cost_models import DistIRCostModel

__all__ = ["StepPartDurations", "durations", "even_layers"]


@dataclass(frozen=True, slots=True)
class StepPartDurations:
    """Parts of a step [s]; arrays are [rows], or [stages, rows] where each stage has its own.

    A stage's `forward` has no loss; its `backward` is that of the first microbatch, and `accumulation` is what every
    later one adds. `boundary` is the Send of activations into a stage, and of their gradient out of it; none for the
    first stage.
    """

    forward: Floats
    forward_reductions: Floats
    """The all-reduces over shards in `forward`."""
    last_layer: Floats
    """The last layer's part of `forward`."""
    backward: Floats
    backward_reductions: Floats
    accumulation: Floats
    boundary: Floats
    loss: Floats
    loss_accumulation: Floats
    labels_pulled: bool
    label: Floats
    """The Send of a microbatch's labels from the first stage to the last; none where labels are placed before."""
    layers_per_stage: Floats
    weight: Floats
    """The Send of one weight's shard from the first stage, at its first use; 0 where weights are placed before."""
    start: Floats
    """Work of the first stage before its first item: receiving, and cutting microbatches."""
    end: Floats
    """Work of a stage after its last item: gradients over replicas, outputs, optimizer."""
    end_transfers: Floats
    """The part of `end` that is no optimizer."""


def even_layers(first: Ints, count: Ints) -> Ints:
    """Returns how many of `count` layers from number `first` on have an even number.

    Args:
        first: number of the first layer [rows].
        count: how many layers there are [rows].
    """
    result: Ints = (count + 1 - first % 2) // 2
    return result


def durations(
    c: Configurations, stages: int, model: DistIRCostModel, bandwidth_gbps: float, *, filtered: bool, single: bool
) -> StepPartDurations:
    """Returns the parts of a step for configurations that all have as many stages.

    Args:
        c: feasible configurations [rows].
        stages: their P.
        model: constants and cost per op.
        bandwidth_gbps: between every pair of devices [Gbps].
        filtered: if true, weights are placed before the step.
        single: True for the program of one device before any transform, so that nothing is placed.
    """
    D, H, P, m, width, layers, batch = (  # noqa: N806 - DistIR's letters
        np.asarray(getattr(c, name), np.float64) for name in ("D", "H", "P", "m", "width", "layers", "batch")
    )
    rows, part = batch / D / m, width / H
    whole, cut, weight = rows * width, rows * part, width * part
    reduced = model.all_reduce(whole, H, bandwidth_gbps)
    elementwise = model.elementwise
    forward_even = model.matmul(rows, width, part) + elementwise(cut, 1)
    forward_odd = model.matmul(rows, part, width) + reduced + elementwise(whole, 1)
    backward_even = elementwise(cut, 2) + model.matmul_gradient(rows, width, part) + reduced
    backward_odd = elementwise(whole, 2) + model.matmul_gradient(rows, part, width)

    stage = np.arange(stages, dtype=np.int64)[:, None]
    each = c.layers // c.P
    first = stage * each
    even = even_layers(first, each).astype(np.float64)
    odd = each - even
    is_first, is_last = stage == 0, stage == stages - 1

    group = np.where((D > 1) & (H > 1), H, D) if model.gradient_group_is_horizontal else D
    end = each * model.all_reduce(weight, group, bandwidth_gbps) * np.ones_like(even)
    if model.outputs_gathered:
        gathered = model.all_gather(batch / D * width, D, bandwidth_gbps)
        end = end + gathered * (is_first.astype(np.float64) + is_last)
    transfers = end
    if model.optimizer:
        end = end + model.optimizer_step(weight)

    nothing = np.zeros(len(c))
    start, label, of_weight = nothing, nothing, nothing
    if model.placement_in_step:
        given = 2.0 * batch * width + (0.0 if filtered else 1.0) * layers * width**2
        placed = np.where(D == 1, model.send(given, bandwidth_gbps), 0.0)
        start = nothing if single else placed + np.where(P > 1, 2.0 * model.split_time, 0.0)
        label = model.send(whole, bandwidth_gbps)
        of_weight = nothing if filtered else model.send(weight, bandwidth_gbps)
    return StepPartDurations(
        forward=even * forward_even + odd * forward_odd,
        forward_reductions=odd * reduced,
        last_layer=np.where((first + each) % 2 == 1, forward_even, forward_odd),
        backward=even * backward_even + odd * backward_odd,
        backward_reductions=even * reduced,
        accumulation=each * elementwise(weight, 2) + np.where(is_first, model.concatenation(), 0.0),
        boundary=np.where(is_first, 0.0, model.send(np.where(first % 2 == 0, whole, cut), bandwidth_gbps)),
        loss=2.0 * elementwise(whole, 1),
        loss_accumulation=np.full(len(c), model.concatenation()),
        labels_pulled=model.placement_in_step and stages > 1,
        label=label,
        layers_per_stage=each.astype(np.float64),
        weight=of_weight,
        start=start,
        end=end,
        end_transfers=transfers,
    )
