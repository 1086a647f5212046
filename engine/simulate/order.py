"""Ordered actions of every rank, checked, with their dependencies as arrays.

An order is built once for a schedule and its numbers, and replayed with any durations. A rank does its entries one
after the other; an entry also waits for results of other ranks. Entries are numbered in a topological order, in levels
of entries that do not wait for one another, so that a replay goes level by level in numpy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import sha256
from numbers import Integral
from typing import Final

import numpy as np

from engine.executions.arrays import Ints
from engine.simulate.schedules.contract import (
    BACKWARD,
    FORWARD,
    INPUT_GRADIENT,
    KINDS,
    WEIGHT_GRADIENT,
    Entry,
    ScheduleError,
    ScheduleRule,
    ScheduleShape,
    StagePlacement,
)

__all__ = ["LARGEST", "ScheduleOrder", "check_shape", "format_entry", "order", "order_of", "parse_entries"]

LARGEST: Final = 500_000
"""Most actions that an order may have; a replay of more would take long and show nothing else."""

NONE: Final = -1
"""Fills the column of a second member that an entry does not have."""


@dataclass(frozen=True, slots=False, eq=False)
class ScheduleOrder:
    """An order that can run. Arrays go by entry, in levels; arrays of members have two columns, -1 for no member."""

    ranks: int
    stages: int
    microbatches: int
    chunks: int
    placement: StagePlacement
    entries: list[list[Entry]]
    """Entries of every rank in turn."""
    rank: Ints
    position: Ints
    """Place of the entry in its rank's list."""
    kind: Ints
    """Kinds of the members."""
    stage: Ints
    microbatch: Ints
    before: Ints
    """The rank's entry before; the number of entries, which is one beyond the last, for none."""
    sources: Ints
    """Entries on other ranks that the members wait for; likewise."""
    sends: Ints
    """Messages to other ranks after each entry."""
    levels: Ints
    """First entry of each level, and the number of entries."""
    empty_from: int
    """Number of the first empty microbatch: its slots take time, as Calculon charges them, without work."""

    def __len__(self) -> int:
        return len(self.rank)

    @cached_property
    def lines(self) -> list[str]:
        """Lists as text, such as `F0 F1 BW0`; the stage follows a dot unless each rank has only one."""
        with_stages = self.placement is not StagePlacement.LOOP or self.stages != self.ranks
        return [" ".join(format_entry(entry, stages=with_stages) for entry in each) for each in self.entries]

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the lines."""
        return sha256("\n".join(self.lines).encode()).hexdigest()

    @cached_property
    def chunk(self) -> Ints:
        """Return the chunk of each entry's first member; for bidirectional schedules its direction."""
        if self.placement is StagePlacement.BIDIRECTIONAL:
            return (self.microbatch[:, 0] * 2 >= self.microbatches).astype(np.int64)
        return self.stage[:, 0] // self.ranks

    @cached_property
    def by_rank(self) -> list[Ints]:
        """The entries of every rank in its order."""
        ordered = np.lexsort((self.position, self.rank))
        return np.split(ordered, np.cumsum([len(each) for each in self.entries])[:-1])


def format_entry(entry: Entry, *, stages: bool) -> str:
    """Returns an entry as text, with the stages of its actions or without.

    Args:
        entry: one action, or a pair that runs together.
        stages: if true, with the stages of its actions.
    """
    return "+".join(f"{KINDS[kind]}{m}.{stage}" if stages else f"{KINDS[kind]}{m}" for kind, stage, m in entry)


def check_shape(shape: ScheduleShape, actions: int) -> None:
    """Raises ScheduleError where numbers of ranks, microbatches or chunks make no sense, or are too large to replay.

    Args:
        shape: ranks, microbatches, chunks and group of a step.
        actions: number of actions that a replay has.
    """
    for name, value in (
        ("stages", shape.ranks),
        ("microbatches", shape.microbatches),
        ("chunks", shape.chunks),
        ("group", 1 if shape.group is None else shape.group),
    ):
        if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
            raise ScheduleError(f"{name} must be a whole number of at least 1, and is {str(value)[:40]}.")
    if actions > LARGEST:
        raise ScheduleError(
            f"{shape.microbatches:,} microbatches on {shape.ranks:,} ranks with {shape.chunks:,} chunks are "
            f"{actions:,} actions; at most {LARGEST:,} are replayed. Fewer microbatches show the same: past the "
            "fill each further one adds the same time."
        )


@lru_cache(maxsize=128)
def order_of(rule: ScheduleRule, shape: ScheduleShape) -> ScheduleOrder:
    """Returns the order of a schedule, built once and kept.

    Args:
        rule: the schedule.
        shape: ranks, microbatches, chunks and group of a step.

    Raises: ScheduleError where the schedule does not exist for these numbers, or the order cannot run.
    """
    kinds = 3 if rule.splits else 2
    check_shape(shape, kinds * shape.ranks * shape.chunks * shape.microbatches)
    rule.check(shape)
    slots = rule.slots(shape) if rule.slots else shape.microbatches
    found = _Numbered(rule.order(shape), rule.stages(shape), slots, rule.placement)
    found.check_complete(forward_only=False)
    return found.order(shape.chunks, empty_from=shape.microbatches)


def order(
    entries: list[list[Entry]],
    stages: int,
    microbatches: int,
    placement: StagePlacement,
    *,
    chunks: int,
    forward_only: bool = False,
) -> ScheduleOrder:
    """Returns lists of actions with who waits for whom.

    Args:
        entries: what every rank does in turn.
        stages: of the model.
        microbatches: of the step.
        placement: which rank holds which stage.
        chunks: pieces of the model per rank.
        forward_only: whether there is no backward pass.

    Raises: ScheduleError where an action is missing, done twice, on another rank than its stage, or waits for ever.
    """
    found = _Numbered(entries, stages, microbatches, placement)
    found.check_complete(forward_only)
    return found.order(chunks, empty_from=microbatches)


class _Numbered:
    """Entries with numbers, by rank and place, and who needs what."""

    def __init__(self, entries: list[list[Entry]], stages: int, microbatches: int, placement: StagePlacement) -> None:
        self.entries, self.stages, self.microbatches, self.placement = entries, stages, microbatches, placement
        self.ranks = len(entries)
        self.where: dict[tuple[int, int, int], tuple[int, int]] = {}
        for rank, each in enumerate(entries):
            for place, entry in enumerate(each):
                for action in entry:
                    self._note(action, rank, place)

    def _note(self, action: tuple[int, int, int], rank: int, place: int) -> None:
        _, stage, m = action
        if not (0 <= stage < self.stages and 0 <= m < self.microbatches):
            raise ScheduleError(
                f"{self._name(action)} is not of this pipeline: it has {self.stages} stages and {self.microbatches} "
                "microbatches, both counted from 0."
            )
        home = self.placement.rank(stage, m, self.ranks, self.microbatches)
        if home != rank:
            raise ScheduleError(f"{self._name(action)} stands on rank {rank}, but its stage is on rank {home}.")
        if action in self.where:
            raise ScheduleError(f"{self._name(action)} is done twice, on rank {rank}.")
        self.where[action] = rank, place

    def _name(self, action: tuple[int, int, int]) -> str:
        kind, stage, m = action
        return f"{KINDS[kind]} of microbatch {m} at stage {stage}"

    def check_complete(self, forward_only: bool) -> None:
        """Raises ScheduleError unless everything is done once."""
        where = self.where
        for stage in range(self.stages):
            for m in range(self.microbatches):
                if (FORWARD, stage, m) not in where:
                    raise ScheduleError(f"{self._name((FORWARD, stage, m))} is missing.")
                if forward_only:
                    continue
                whole = (BACKWARD, stage, m) in where
                parts = ((INPUT_GRADIENT, stage, m) in where, (WEIGHT_GRADIENT, stage, m) in where)
                if whole and any(parts):
                    raise ScheduleError(f"{self._name((BACKWARD, stage, m))} is done whole and in parts.")
                if not whole and not all(parts):
                    kind = WEIGHT_GRADIENT if parts[0] else INPUT_GRADIENT if parts[1] else BACKWARD
                    raise ScheduleError(f"{self._name((kind, stage, m))} is missing.")

    def needs(self, action: tuple[int, int, int]) -> list[tuple[int, int, int]]:
        """Returns the actions that an action waits for."""
        kind, stage, m = action
        if kind == FORWARD:
            return [(FORWARD, stage - 1, m)] if stage else []
        if kind == WEIGHT_GRADIENT:
            return [(INPUT_GRADIENT, stage, m)]
        later = (BACKWARD, stage + 1, m)
        needed = [(FORWARD, stage, m)]
        if stage + 1 < self.stages:
            needed.append(later if later in self.where else (INPUT_GRADIENT, stage + 1, m))
        return needed

    def sends(self, entry: Entry, rank: int) -> int:
        """Returns how many results of an entry go to another rank."""
        count = 0
        for kind, stage, m in entry:
            after = stage + 1 if kind == FORWARD else stage - 1
            if kind != WEIGHT_GRADIENT and 0 <= after < self.stages:
                count += self.placement.rank(after, m, self.ranks, self.microbatches) != rank
        return count

    def order(self, chunks: int, *, empty_from: int) -> ScheduleOrder:
        """Returns the arrays: runs every rank until it waits for another, again and again, and counts the levels."""
        starts = np.concatenate([[0], np.cumsum([len(each) for each in self.entries])]).tolist()
        total = starts[-1]
        level = [0] * total
        outside: list[list[int]] = [[] for _ in range(total)]
        place = [0] * self.ranks
        waiting: dict[tuple[int, int], list[int]] = {}
        ready = list(range(self.ranks))
        while ready:
            rank = ready.pop()
            deepest = level[starts[rank] + place[rank] - 1] if place[rank] else -1
            while place[rank] < len(self.entries[rank]):
                number = starts[rank] + place[rank]
                blocked = self._sources(rank, place, starts, outside[number])
                if blocked is not None:
                    waiting.setdefault(blocked, []).append(rank)
                    break
                deepest = max([deepest, *(level[each] for each in outside[number])]) + 1
                level[number] = deepest
                place[rank] += 1
                if waiting:
                    ready += waiting.pop((rank, place[rank] - 1), ())
        self._check_done(place)
        return self._arrays(chunks, empty_from, starts, level, outside)

    def _sources(self, rank: int, place: list[int], starts: list[int], found: list[int]) -> tuple[int, int] | None:
        """Notes the entries on other ranks that the next one waits for; returns the place of one that is not done."""
        found.clear()
        entry = self.entries[rank][place[rank]]
        for action in entry:
            for needed in self.needs(action):
                if needed in entry:
                    raise ScheduleError(f"{self._name(action)} runs together with what it needs, on rank {rank}.")
                home, there = self.where[needed]
                if place[home] <= there:
                    return home, there
                if home != rank:
                    found.append(starts[home] + there)
        return None

    def _check_done(self, place: list[int]) -> None:
        stuck = [rank for rank in range(self.ranks) if place[rank] < len(self.entries[rank])]
        if not stuck:
            return
        rank = min(stuck, key=lambda each: (place[each], each))
        entry = self.entries[rank][place[rank]]
        for action in entry:
            for needed in self.needs(action):
                home, there = self.where[needed]
                if place[home] <= there:
                    raise ScheduleError(
                        f"The order waits for ever. Rank {rank} is the first to be blocked, at its action "
                        f"{place[rank] + 1}, {format_entry(entry, stages=True)}: it needs {self._name(needed)}, action "
                        f"{there + 1} of rank {home}, which waits at "
                        f"{format_entry(self.entries[home][place[home]], stages=True)}."
                    )

    def _arrays(
        self, chunks: int, empty_from: int, starts: list[int], level: list[int], outside: list[list[int]]
    ) -> ScheduleOrder:
        total = len(level)
        flat = [(rank, place, entry) for rank, each in enumerate(self.entries) for place, entry in enumerate(each)]
        ordered = np.argsort(np.array(level, dtype=np.int64), kind="stable")
        number = np.empty(total + 1, dtype=np.int64)
        number[ordered], number[total] = np.arange(total), total
        members = np.array(
            [entry + ((NONE, NONE, NONE),) * (2 - len(entry)) for _, _, entry in flat], dtype=np.int64
        ).reshape(total, 2, 3)
        width = max([2, *(len(each) for each in outside)])
        sources = np.array([each + [total] * (width - len(each)) for each in outside], dtype=np.int64).reshape(
            -1, width
        )
        rank = np.array([each[0] for each in flat], dtype=np.int64)
        position = np.array([each[1] for each in flat], dtype=np.int64)
        before = np.where(position > 0, np.arange(total) - 1, total)
        sorted_levels = np.sort(np.array(level, dtype=np.int64))
        bounds = np.searchsorted(sorted_levels, np.arange(sorted_levels[-1] + 2))
        return ScheduleOrder(
            ranks=self.ranks,
            stages=self.stages,
            microbatches=self.microbatches,
            chunks=chunks,
            placement=self.placement,
            entries=self.entries,
            rank=rank[ordered],
            position=position[ordered],
            kind=members[ordered, :, 0],
            stage=members[ordered, :, 1],
            microbatch=members[ordered, :, 2],
            before=number[before[ordered]],
            sources=number[sources[ordered]],
            sends=np.array([self.sends(entry, rank) for rank, _, entry in flat], dtype=np.int64)[ordered],
            levels=bounds,
            empty_from=empty_from,
        )


def parse_entries(lines: Sequence[str]) -> list[list[Entry]]:
    """Returns lists of actions from text such as `F0 F1 BW0 F2+BW1.3`.

    Args:
        lines: text of every rank [ranks].

    Raises: ScheduleError naming the first word that is no action.
    """
    return [[_parsed_entry(word, rank) for word in str(line).split()] for rank, line in enumerate(lines)]


def _parsed_entry(word: str, rank: int) -> Entry:
    actions = []
    for part in word.split("+"):
        kind = next((k for k in ("BW", "F", "B", "W") if part.startswith(k)), None)
        number, _, stage = part[len(kind or "") :].partition(".")
        if kind is None or not number.isascii() or not number.isdigit() or (stage and not stage.isdigit()):
            raise ScheduleError(
                f"Rank {rank}: {word[:40]!r} is no action; one is F, B, W or BW with a microbatch, such as F0, BW3 or "
                "F2.5 for stage 5, and two with a plus are an overlapped pair."
            )
        if len(number) > 9 or len(stage) > 9:
            raise ScheduleError(f"Rank {rank}: {word[:40]!r} has a number that is too large.")
        actions.append((KINDS.index(kind), int(stage) if stage else rank, int(number)))
    if len(actions) > 2 or (len(actions) == 2 and [kind for kind, _, _ in actions] != [FORWARD, BACKWARD]):
        raise ScheduleError(f"Rank {rank}: {word[:40]!r} is no pair; one is a forward and a whole backward, F4+BW2.")
    return tuple(actions)
