"""DualPipe, which feeds the pipeline from both ends, and DualPipeV, the half of it that holds every parameter once.

Source: deepseek-ai/DualPipe (DeepSeek-V3, arXiv:2412.19437, section 3.2.1), in its eight phases.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from engine.simulate.schedules.contract import (
    Entry,
    ScheduleError,
    ScheduleRule,
    ScheduleShape,
    StagePlacement,
    backward,
    forward,
    input_gradient,
    pair,
    weight_gradient,
)

__all__ = ["RULES"]


class _Rank:
    """The list of one rank; microbatches of each of its two directions come in order."""

    def __init__(self, stages: tuple[int, int], first: tuple[int, int]) -> None:
        self.entries: list[Entry] = []
        self._stages = stages
        self._forward, self._backward = list(first), list(first)
        self._waiting: list[Entry] = []

    def ahead(self, way: int) -> Entry:
        self._forward[way] += 1
        return forward(self._stages[way], self._forward[way] - 1)

    def back(self, way: int, *, split: bool = False) -> Entry:
        m = self._backward[way]
        self._backward[way] += 1
        if not split:
            return backward(self._stages[way], m)
        self._waiting.append(weight_gradient(self._stages[way], m))
        return input_gradient(self._stages[way], m)

    def oldest(self) -> Entry:
        return self._waiting.pop(0)

    def add(self, *entries: Entry) -> None:
        self.entries += entries


def _fill_phases(rank: _Rank, place: int, half: int, each: int) -> None:
    """Writes the eight phases. place: of the rank within its half; each: microbatches of each direction."""
    behind = half - place - 1
    # 1: forwards of this direction until the other one arrives.
    for _ in range(2 * behind):
        rank.add(rank.ahead(0))
    # 2: forwards of both directions in turn.
    for _ in range(place + 1):
        rank.add(rank.ahead(0), rank.ahead(1))
    for _ in range(behind):
        # 3: split backwards, so that the next rank gets its gradient early.
        rank.add(rank.back(1, split=True), rank.oldest(), rank.ahead(1))
    # 4: steady state of overlapped pairs; the middle rank cannot pair its first two.
    for step in range(each - 2 * half + place + 1):
        ahead, back = rank.ahead(0), rank.back(1)
        rank.add(*((ahead, back) if step == 0 and behind == 0 else (pair(ahead, back),)))
        rank.add(pair(rank.ahead(1), rank.back(0)))
    for _ in range(behind):
        # 5: the last forwards of one direction with backwards of the other.
        rank.add(rank.back(1), pair(rank.ahead(1), rank.back(0)))
    # 6: backwards of both directions, split in the second half.
    switch = place + 1  # Of the 2 (place + 1) backwards of this phase so many are whole.
    for step in range(2 * (place + 1)):
        rank.add(rank.back(1 - step % 2, split=step >= switch))
    for _ in range(behind):
        # 7: pending gradients of weights in the gaps.
        rank.add(rank.oldest(), rank.back(0, split=True))
    for _ in range(place + 1):
        rank.add(rank.oldest())


def _two_ways(shape: ScheduleShape) -> list[list[Entry]]:
    lists = []
    for number in range(shape.ranks):
        mirrored = shape.ranks - 1 - number
        place, each = min(number, mirrored), shape.microbatches // 2
        stages, first = (number, mirrored), (0, each)
        if number > mirrored:
            stages, first = (mirrored, number), (each, 0)
        rank = _Rank(stages, first)
        _fill_phases(rank, place, shape.ranks // 2, each)
        lists.append(rank.entries)
    return lists


def _list_folded(shape: ScheduleShape) -> list[list[Entry]]:
    lists = []
    for number in range(shape.ranks):
        rank = _Rank((number, 2 * shape.ranks - 1 - number), (0, 0))
        _fill_phases(rank, number, shape.ranks, shape.microbatches)
        lists.append(rank.entries)
    return lists


def _at_least(name: str, *, even: bool) -> Callable[[ScheduleShape], None]:
    def check(shape: ScheduleShape) -> None:
        if even and (shape.ranks % 2 or shape.microbatches % 2):
            raise ScheduleError(
                f"{name} needs even numbers of ranks and microbatches; there are "
                f"{shape.ranks} and {shape.microbatches}."
            )
        if shape.microbatches < 2 * shape.ranks:
            raise ScheduleError(
                f"{name} needs at least 2P = {2 * shape.ranks} microbatches on {shape.ranks} ranks; there are "
                f"{shape.microbatches}."
            )

    return check


RULES: Final = (
    ScheduleRule(
        name="dualpipe",
        title="DualPipe",
        order=_two_ways,
        placement=StagePlacement.BIDIRECTIONAL,
        chunks=1,
        pairs=True,
        splits=True,
        parameter_copies=2,
        check=_at_least("DualPipe", even=True),
        source="DeepSeek-AI 2024 (arXiv:2412.19437), section 3.2.1",
        frameworks={"DualPipe": "DualPipe"},
    ),
    ScheduleRule(
        name="dualpipev",
        title="DualPipeV",
        order=_list_folded,
        placement=StagePlacement.V,
        chunks=2,
        pairs=True,
        splits=True,
        check=_at_least("DualPipeV", even=False),
        source="deepseek-ai/DualPipe, dualpipev.py",
        frameworks={"torch": "DualPipeV", "DualPipe": "DualPipeV"},
    ),
)
