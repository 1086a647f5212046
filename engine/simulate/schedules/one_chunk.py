"""Schedules of one chunk per rank without split gradients: GPipe and the family of one forward, one backward (1F1B).

Sources: Huang et al., "GPipe" (arXiv:1811.06965), section 2.3; Narayanan et al., "Memory-Efficient Pipeline-Parallel
DNN Training" (PipeDream-flush, arXiv:2006.09503), section 3; the paired form as NVIDIA/Megatron-LM and
Victarry/PP-Schedule-Visualization order it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from engine.simulate.schedules.contract import (
    Entry,
    ScheduleError,
    ScheduleRule,
    ScheduleShape,
    backward,
    forward,
    pair,
)

__all__ = ["RULES"]


def _all_forward_all_backward(shape: ScheduleShape) -> list[list[Entry]]:
    """Lists all forwards, then all backwards, both in ascending order (torch; the paper draws descending)."""
    every = range(shape.microbatches)
    return [[forward(r, m) for m in every] + [backward(r, m) for m in every] for r in range(shape.ranks)]


def _build_alternating_rule(
    ahead: Callable[[ScheduleShape, int], int], *, paired: bool = False
) -> Callable[[ScheduleShape], list[list[Entry]]]:
    """Return the rule: warm-up forwards, then a forward and a backward in turn, then the remaining backwards."""

    def order(shape: ScheduleShape) -> list[list[Entry]]:
        lists = []
        total = shape.microbatches
        for rank in range(shape.ranks):
            # Rank r of 1F1B begins with P - 1 - r forwards: until the first backward comes back.
            warm = min(total, ahead(shape, rank))
            entries = [forward(rank, m) for m in range(warm)]
            for m in range(warm, total):
                both = forward(rank, m), backward(rank, m - warm)
                entries += [pair(*both)] if paired else both
            entries += [backward(rank, m) for m in range(total - warm, total)]
            lists.append(entries)
        return lists

    return order


def _check_pairs(shape: ScheduleShape) -> None:
    if shape.ranks > 1 and shape.microbatches < 2 * shape.ranks - 1:
        raise ScheduleError(
            f"1F1B with overlapped pairs needs at least 2P-1 = {2 * shape.ranks - 1} microbatches on {shape.ranks} "
            f"ranks; there are {shape.microbatches}."
        )


def _torch_wants_a_full_pipeline(shape: ScheduleShape) -> list[str]:
    if shape.microbatches >= shape.ranks:
        return []
    return [
        f"torch refuses M < P for 1F1B: {shape.microbatches} microbatches on {shape.ranks} ranks; Megatron and "
        "DeepSpeed run it."
    ]


RULES: Final = (
    ScheduleRule(
        name="gpipe",
        title="GPipe",
        order=_all_forward_all_backward,
        source="Huang et al. 2018 (arXiv:1811.06965), section 2.3",
        frameworks={"torch": "GPipe"},
    ),
    ScheduleRule(
        name="1f1b",
        title="1F1B",
        order=_build_alternating_rule(lambda shape, rank: shape.ranks - 1 - rank),
        source="Narayanan et al. 2020 (arXiv:2006.09503), section 3",
        remarks=_torch_wants_a_full_pipeline,
        frameworks={"Megatron": "default", "torch": "1F1B", "DeepSpeed": "the only one", "zero-bubble": "default"},
    ),
    ScheduleRule(
        name="eager-1f1b",
        title="Eager 1F1B",
        order=_build_alternating_rule(lambda shape, rank: 2 * (shape.ranks - 1 - rank)),
        source="1F1B with twice the warm-up, to hide sends for nearly twice the memory",
    ),
    ScheduleRule(
        name="1f1b-overlap",
        title="1F1B, overlapped pairs",
        pairs=True,
        check=_check_pairs,
        order=_build_alternating_rule(lambda shape, rank: 2 * (shape.ranks - 1 - rank) + 1, paired=True),
        source="Victarry/PP-Schedule-Visualization, 1f1b_overlap",
    ),
)
