"""Schedules of two chunks per rank in the shape of a V: ZB-V, V-1F1B, and V-Half and V-Min of less memory.

Rank r holds stage r and stage 2P-1-r, so that the first and the last stage share a rank and activations grow evenly.
Sources: Qi et al., "Zero Bubble Pipeline Parallelism" (arXiv:2401.10241), section 6, as torch.distributed.pipelining
fixes its order; Qi et al., "Pipeline Parallelism with Controllable Memory" (arXiv:2405.15362), sections 3 and 4, as
sail-sg/zero-bubble-pipeline-parallelism builds it.
"""

from __future__ import annotations

from typing import Final

from engine.simulate.schedules.contract import (
    BACKWARD,
    FORWARD,
    Entry,
    ScheduleRule,
    ScheduleShape,
    StagePlacement,
    forward,
    input_gradient,
    weight_gradient,
)
from engine.simulate.schedules.patterns import Pattern, pull_forward, squeeze_pattern

__all__ = ["RULES"]


def _zero_bubble(shape: ScheduleShape) -> list[list[Entry]]:
    """List seven phases for at least 2P-1 microbatches, and drop the surplus microbatches."""
    count = max(shape.microbatches, 2 * shape.ranks - 1)
    return [
        [entry for entry in _zero_bubble_rank(rank, shape.ranks, count) if entry[0][2] < shape.microbatches]
        for rank in range(shape.ranks)
    ]


def _zero_bubble_rank(rank: int, ranks: int, count: int) -> list[Entry]:
    first, last = rank, 2 * ranks - 1 - rank
    ahead, back, weights = {first: 0, last: 0}, {first: 0, last: 0}, {first: 0, last: 0}
    entries: list[Entry] = []

    def run(stage: int) -> None:
        entries.append(forward(stage, ahead[stage]))
        ahead[stage] += 1

    def gradient(stage: int) -> None:
        entries.append(input_gradient(stage, back[stage]))
        back[stage] += 1

    def weight(stage: int) -> None:
        entries.append(weight_gradient(stage, weights[stage]))
        weights[stage] += 1

    def unit(stage: int) -> None:
        run(stage)
        gradient(stage)
        weight(stage)

    # Forwards of the near chunk until the first one comes back round the turn.
    for _ in range(2 * (ranks - rank) - 1):
        run(first)
    for _ in range(rank):
        run(last)
        run(first)
    for _ in range(ranks - rank):
        unit(last)
    # Steady state: near and far chunk in turn, each with both of its gradients.
    while ahead[last] < ahead[first] or ahead[first] < count:
        if ahead[first] < count:
            run(first)
        gradient(first)
        weight(first)
        unit(last)
    for _ in range(rank):
        gradient(first)
        gradient(last)
    for _ in range(ranks - rank):
        gradient(first)
        weight(first)
    for stage in (last, first):
        while weights[stage] < back[stage]:
            weight(stage)
    return entries


def _list_half_memory(shape: ScheduleShape) -> list[list[Entry]]:
    """Lists the repeating pattern that holds half of 1F1B's activations for long pipelines."""
    p = shape.ranks
    # Offsets of Qi et al. 2024 for (F near, F far, B far, B near); the gap keeps a rank's slots apart.
    gap = 0 if p % 2 else 3
    return _build_entries(
        shape, [(2 * r, 3 * p - 2 - r, 3 * p - 1 + gap + 2 * r, 6 * p - 2 + gap - r) for r in range(p)]
    )


def _list_least_memory(shape: ScheduleShape) -> list[list[Entry]]:
    """Lists the repeating pattern that holds a third of 1F1B's activations for long pipelines."""
    p = shape.ranks
    gap = 0 if p % 3 else 2
    return _build_entries(shape, [(r, 2 * p - 1 - r, 2 * p + gap + r, 4 * p + gap - 1 - r) for r in range(p)])


def _build_entries(shape: ScheduleShape, pattern: Pattern) -> list[list[Entry]]:
    """Returns the squeezed pattern as entries: forwards of both chunks, input gradients of the second and the first."""
    found = []
    for rank, moves in enumerate(squeeze_pattern(pattern, shape.microbatches)):
        near, far = rank, 2 * shape.ranks - 1 - rank
        made = (
            (forward, near),
            (forward, far),
            (input_gradient, far),
            (input_gradient, near),
            (weight_gradient, far),
            (weight_gradient, near),
        )
        found.append([made[kind][0](made[kind][1], m) for kind, m in moves])
    return found


def _one_forward_one_backward(shape: ScheduleShape) -> list[list[Entry]]:
    """Lists a pattern of six slots per microbatch, whole backwards taking two, pulled forward within its memory."""
    kinds = (FORWARD, False), (FORWARD, True), (BACKWARD, True), (BACKWARD, False)
    return [
        [((kinds[kind][0], 2 * shape.ranks - 1 - rank if kinds[kind][1] else rank, m),) for kind, m in moves]
        for rank, moves in enumerate(pull_forward(shape.ranks, shape.microbatches))
    ]


def _list_remarks(shape: ScheduleShape) -> list[str]:
    if shape.microbatches < 2 * shape.ranks - 1:
        return [
            f"With fewer than 2P-1 = {2 * shape.ranks - 1} microbatches it runs, but leaves bubbles; torch warns of "
            f"M < {2 * shape.ranks} stages."
        ]
    return []


_CONTROLLED: Final = "Qi et al. 2024 (arXiv:2405.15362), section 4"

RULES: Final = (
    ScheduleRule(
        name="zbv",
        title="ZB-V",
        order=_zero_bubble,
        placement=StagePlacement.V,
        chunks=2,
        splits=True,
        remarks=_list_remarks,
        source="Qi et al. 2023 (arXiv:2401.10241), section 6, in torch's fixed order",
        frameworks={"torch": "ZBVZeroBubble", "zero-bubble": "--zero-bubble-v-schedule, which plans its own order"},
    ),
    ScheduleRule(
        name="v-half",
        title="V-Half",
        order=_list_half_memory,
        placement=StagePlacement.V,
        chunks=2,
        splits=True,
        source=_CONTROLLED,
        frameworks={"zero-bubble": "--zero-bubble-v-schedule-mem-setup half"},
    ),
    ScheduleRule(
        name="v-min",
        title="V-Min",
        order=_list_least_memory,
        placement=StagePlacement.V,
        chunks=2,
        splits=True,
        source=_CONTROLLED,
        frameworks={"zero-bubble": "--zero-bubble-v-schedule-mem-setup min"},
    ),
    ScheduleRule(
        name="v-1f1b",
        title="V-1F1B",
        order=_one_forward_one_backward,
        placement=StagePlacement.V,
        chunks=2,
        source=_CONTROLLED,
        frameworks={"zero-bubble": "--enable-1f1b-v"},
    ),
)
