"""Chimera: two pipelines in opposite directions, merged slot by slot; parameters are held twice.

Source: Li and Hoefler, "Chimera" (arXiv:2107.06925), section 3.1, and the order that Shigangli/Chimera prints: a
microbatch moves one rank per slot, a new one enters at either end every second slot, and the next wave of P
microbatches enters when the first backward is back.
"""

from __future__ import annotations

from typing import Final

from engine.simulate.schedules.contract import (
    Entry,
    ScheduleError,
    ScheduleRule,
    ScheduleShape,
    StagePlacement,
    backward,
    forward,
)

__all__ = ["RULES"]


def _merge_directions(shape: ScheduleShape) -> list[list[Entry]]:
    """Lists each rank's actions by their slots, which never collide where P is even."""
    ranks, half = shape.ranks, shape.microbatches // 2
    slots: list[list[tuple[int, Entry]]] = [[] for _ in range(ranks)]
    per_wave = ranks // 2
    for way in (0, 1):
        for number in range(half):
            wave, entered = divmod(number, per_wave)
            # A wave of P microbatches takes 2 P slots; microbatches enter every second slot, P/2 from either end.
            start = 2 * ranks * wave + 2 * entered
            for stage in range(ranks):
                rank = stage if way == 0 else ranks - 1 - stage
                microbatch = number + way * half
                slots[rank].append((start + stage, forward(stage, microbatch)))
                slots[rank].append((start + 2 * ranks - 1 - stage, backward(stage, microbatch)))
    return [[entry for _, entry in sorted(each, key=lambda slot: slot[0])] for each in slots]


def _check_shape(shape: ScheduleShape) -> None:
    if shape.ranks % 2 or shape.microbatches not in (shape.ranks, 2 * shape.ranks):
        raise ScheduleError(
            f"Chimera is defined for an even number of ranks P with M = P or M = 2P microbatches; there are "
            f"{shape.ranks} ranks and {shape.microbatches} microbatches. Its program repeats numbers of microbatches "
            "from the third wave on, which leaves the order open."
        )


RULES: Final = (
    ScheduleRule(
        name="chimera",
        title="Chimera",
        order=_merge_directions,
        placement=StagePlacement.BIDIRECTIONAL,
        parameter_copies=2,
        check=_check_shape,
        source="Li and Hoefler 2021 (arXiv:2107.06925), section 3.1",
    ),
)
