"""One schedule replayed: who does what when, and what follows from it.

from engine.simulate import replay

found = replay("interleaved", stages=4, microbatches=8, chunks=2, times={"F": 1, "B": 1, "W": 1})
found.makespan               # 57.0
found.bubble_fraction        # of every rank
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from engine.executions.arrays import Floats
from engine.simulate.events import ActionDurations, ReplayTiming, Sends, durations_from, replayed, sends_from
from engine.simulate.order import ScheduleOrder, check_shape, order, order_of, parse_entries
from engine.simulate.paths import ReplayCriticalPath, critical_path
from engine.simulate.residence import Residence, count_residence
from engine.simulate.schedules.contract import (
    BACKWARD,
    FORWARD,
    KINDS,
    ScheduleError,
    ScheduleRule,
    ScheduleShape,
    StagePlacement,
)
from engine.simulate.schedules.registry import rule
from engine.simulate.waiting import idle_times

__all__ = ["Replay", "replay", "shape_of"]


@dataclass(frozen=True)
class Replay:
    """A schedule with its times."""

    rule: ScheduleRule | None
    """The schedule; None for an order of the caller's own."""
    order: ScheduleOrder
    durations: ActionDurations
    sends: Sends
    timing: ReplayTiming
    remarks: tuple[str, ...] = ()
    """Sentences about frameworks that would refuse these numbers."""
    shape: ScheduleShape | None = None
    """Inputs of the schedule; None for an order of the caller's own."""

    @property
    def ranks(self) -> list[str]:
        """Return the actions of every rank, as text: `F0 F1 BW0`."""
        return self.order.lines

    @cached_property
    def makespan(self) -> float:
        """From 0 to the end of the last action on any rank [s]."""
        return float(self.timing.free.max())

    @cached_property
    def busy(self) -> Floats:
        """Return the sum of each rank's actions [s]; sends that occupy it are not included."""
        spent: Floats = np.bincount(self.order.rank, weights=self._spent, minlength=self.order.ranks).astype(np.float64)
        return spent

    @cached_property
    def bubble_fraction(self) -> list[float]:
        """By rank, the share of the makespan in which it does nothing."""
        whole = self.makespan
        return [float(1.0 - each / whole) if whole else 0.0 for each in self.busy]

    @cached_property
    def longest_span(self) -> float:
        """The longest time from the start of a rank's first action to the end of its last [s]."""
        return max(
            float(self.timing.free[each[-1]] - self.timing.start[each[0]]) for each in self.order.by_rank if len(each)
        )

    @cached_property
    def residence(self) -> Residence:
        """Return the memory that every rank holds after each of its entries."""
        return count_residence(self.order)

    @property
    def peak_activations(self) -> list[int]:
        """By rank, most chunks of microbatches held, each from the start of its F to the end of its BW or W."""
        return self.residence.peaks

    @property
    def peak_if_freed_at_B(self) -> list[int]:  # noqa: N802 - the figure's name
        """The same if the gradient of the input frees all."""
        return self.residence.peaks_freed_at_input_gradient

    @property
    def peak_pending_W(self) -> list[int]:  # noqa: N802 - the figure's name
        """By rank, most gradients of weights that wait."""
        return self.residence.peaks_pending

    @cached_property
    def messages_sent(self) -> list[int]:
        """By rank, results sent to another rank: activations and gradients."""
        real = self.order.sends * ~self._empty
        return [int(each) for each in np.bincount(self.order.rank, weights=real, minlength=self.order.ranks)]

    @cached_property
    def tasks(self) -> pd.DataFrame:
        """One row per action: `rank`, `kind` (F, B, W, BW), `stage`, `chunk`, `microbatch`, `start`, `end` [s], `pair`.

        `pair` numbers overlapped pairs, whose two actions have one start and one end; it is -1 for others.
        """
        return _build_tasks(self)

    @cached_property
    def idle(self) -> pd.DataFrame:
        """The gaps: `rank`, `start`, `end` [s], `cause` and `of`, the rank waited for, or -1."""
        return idle_times(self.order, self.timing, self.sends)

    @cached_property
    def critical_path(self) -> ReplayCriticalPath:
        """A chain of actions and sends without a gap that takes the whole makespan, with its counts."""
        return critical_path(self.order, self.timing, self.sends)

    @cached_property
    def _empty(self) -> Any:
        return self.order.microbatch[:, 0] >= self.order.empty_from

    @cached_property
    def _spent(self) -> Floats:
        return np.where(self._empty, 0.0, self.timing.duration)


def replay(
    schedule: str | Sequence[str],
    *,
    stages: int,
    microbatches: int,
    chunks: int = 1,
    times: Mapping[str, Any],
    sends: Mapping[str, Any] | Sends | None = None,
    group: int | None = None,
    memory_limit: float | None = None,
    placement: str | None = None,
) -> Replay:
    """Returns a schedule with its times.

    Args:
        schedule: a name, such as "1f1b", "interleaved", "zb-h1", "zbv" or "dualpipev", or what every rank does as text,
            such as `["F0 F1 BW0 BW1", "F0 BW0 F1 BW1"]`.
        stages: ranks of the pipeline, P.
        microbatches: of one replica in a step, M.
        chunks: pieces of the model per rank, v; V-shaped schedules have two in any case.
        times: seconds of a forward `F`, a gradient of the input `B`, of the weights `W` and, where given, an overlapped
            pair `FB` of one chunk of one microbatch, each a number or one per stage of the model.
        sends: `mode` (none, overlap, block) and `c`, the time of a send [s].
        group: microbatches that pass a chunk before the next one's turn, for interleaved schedules.
        memory_limit: for planned schedules, most activations that a rank holds, in chunks of microbatches, half of each
            being free after the gradient of the input.
        placement: of an order of one's own: loop (as it is if not said), v or bidir.

    Raises: ScheduleError, in words, where the schedule does not exist for these numbers or an order cannot run.
    """
    if not isinstance(schedule, str):
        return _own_order(schedule, stages, microbatches, chunks, times, sends, placement)
    known = rule(schedule)
    sent = sends_from(sends)
    shape = shape_of(known, stages, microbatches, chunks, group=group, memory_limit=memory_limit)
    check_shape(shape, 2 * shape.ranks * shape.chunks * shape.microbatches)
    count = known.stages(shape)
    durations = durations_from(times, count)
    _one_execution(durations, sent)
    if known.timed:
        shape = _with_durations(known, shape, durations, sent)
    built = order_of(known, shape)
    timing = replayed(built, durations, sent)
    return Replay(known, built, durations, sent, timing, tuple(known.remarks(shape)), shape)


def shape_of(
    known: ScheduleRule,
    ranks: int,
    microbatches: int,
    chunks: int = 1,
    *,
    group: int | None = None,
    memory_limit: float | None = None,
) -> ScheduleShape:
    """Return the inputs of a rule.

    Args:
        known: the schedule.
        ranks: of the pipeline, P.
        microbatches: of one replica in a step, M.
        chunks: pieces of the model per rank.
        group: microbatches that pass a chunk before the next one's turn; None for the schedule's own number.
        memory_limit: most activations that a rank holds, in chunks of microbatches; None for none.

    Raises: ScheduleError where the schedule has no such number.
    """
    check_shape(ScheduleShape(ranks, microbatches, chunks, group), 0)
    # Those of a table are small integers, which overflow when multiplied.
    ranks, microbatches, chunks = int(ranks), int(microbatches), int(chunks)
    group = None if group is None else int(group)
    fixed = known.chunks
    if fixed is not None:
        # A V has two chunks per rank and schedules from both ends two copies of one: either number means the same.
        several = known.placement is not StagePlacement.LOOP
        if chunks not in ((1, 2) if several else (1,)):
            raise ScheduleError(
                f"{known.title} has {fixed} {'chunk' if fixed == 1 else 'chunks'} per rank, and cannot have {chunks}."
            )
        chunks = fixed
    if group is not None and not known.grouped:
        raise ScheduleError(f"{known.title} has no group size; interleaved schedules have.")
    if memory_limit is not None:
        if not known.limited:
            raise ScheduleError(f"{known.title} keeps to no memory limit; zb-auto-1p, zb-auto-2p and zbv-auto do.")
        if isinstance(memory_limit, bool) or not isinstance(memory_limit, (int, float)) or not 0 < memory_limit < 1e9:
            raise ScheduleError(
                f"memory_limit must be a positive number of activations, and is {str(memory_limit)[:40]}."
            )
    return ScheduleShape(ranks, microbatches, chunks, group, memory_limit)


def _with_durations(
    known: ScheduleRule, shape: ScheduleShape, durations: ActionDurations, sends: Sends
) -> ScheduleShape:
    """Returns the shape with the durations that a planned order looks at, which must be the same for all stages."""
    three = durations.forward, durations.input_gradient, durations.weight_gradient
    if any(float(np.ptp(each)) > 0 for each in three):
        raise ScheduleError(
            f"{known.title} plans with one duration of each kind; give numbers, or another schedule for unequal stages."
        )
    latency = 0.0 if sends.mode == "none" else float(sends.time)
    return ScheduleShape(
        shape.ranks,
        shape.microbatches,
        shape.chunks,
        shape.group,
        shape.memory_limit,
        (float(three[0][0]), float(three[1][0]), float(three[2][0]), latency),
    )


def _one_execution(durations: ActionDurations, sends: Sends) -> None:
    if durations.forward.ndim > 1 or isinstance(sends.time, np.ndarray):
        raise ScheduleError(
            "replay is of one execution: durations are numbers or one per stage. See replay_many for many."
        )


def _own_order(
    lines: Sequence[str],
    stages: int,
    microbatches: int,
    chunks: int,
    times: Mapping[str, Any],
    sends: Mapping[str, Any] | Sends | None,
    placement: str | None,
) -> Replay:
    """Return a replay of the caller's own lists of actions."""
    if isinstance(lines, Mapping) or not isinstance(lines, Sequence):
        raise ScheduleError("schedule must be a name, or what every rank does as a list of texts.")
    placed = placement or StagePlacement.LOOP
    if placed not in list(StagePlacement):
        raise ScheduleError(f"The placement cannot be {str(placement)[:20]!r}; it is loop, v or bidir.")
    home = StagePlacement(placed)
    chunks = 2 if home is StagePlacement.V else chunks
    shape = ScheduleShape(stages, microbatches, chunks)
    check_shape(shape, 2 * stages * chunks * microbatches)
    if len(lines) != stages:
        raise ScheduleError(f"The order has {len(lines)} ranks; {stages} were said.")
    count = stages if home is StagePlacement.BIDIRECTIONAL else stages * chunks
    durations, sent = durations_from(times, count), sends_from(sends)
    _one_execution(durations, sent)
    built = order(parse_entries(lines), count, microbatches, home, chunks=chunks)
    return Replay(None, built, durations, sent, replayed(built, durations, sent))


def _build_tasks(found: Replay) -> pd.DataFrame:
    """Returns the table of actions, rank by rank in their order."""
    built, timing = found.order, found.timing
    entries = np.concatenate(built.by_rank)
    entries = entries[~found._empty[entries]]
    paired = built.kind[entries, 1] >= 0
    number = np.where(paired, np.cumsum(paired) - 1, -1)
    columns = []
    for member in (0, 1):
        stage = built.stage[entries, member]
        chunk = stage // built.ranks
        if built.placement is StagePlacement.BIDIRECTIONAL:
            chunk = (2 * built.microbatch[entries, member] >= built.microbatches).astype(np.int64)
        columns.append(
            pd.DataFrame(
                {
                    "rank": built.rank[entries],
                    "kind": built.kind[entries, member],
                    "stage": stage,
                    "chunk": chunk,
                    "microbatch": built.microbatch[entries, member],
                    "start": timing.start[entries],
                    "end": timing.end[entries],
                    "pair": number,
                }
            )
        )
    both: pd.DataFrame = pd.concat([columns[0], columns[1][paired]]).sort_index(kind="stable").reset_index(drop=True)
    both["kind"] = np.array(KINDS, dtype=object)[both["kind"].to_numpy()]
    return both


assert (FORWARD, BACKWARD) == (0, 3)
