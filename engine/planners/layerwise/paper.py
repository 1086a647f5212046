"""The search for the plan with the least latency by the paper's objective: any number of stages, any placement.

Stages are planned from the last to the first. The stages in front affect a suffix of stages through four figures, each
of which can only lengthen the step: its latency, its passes up to the pivot's last backward pass, what a new pivot must
exceed, and the all-reduce that a new pivot would still wait for; and on its number of stages, as stages in front keep
one microbatch more for each. Suffixes that another undercuts in all of them are dropped, and also suffixes that cannot
beat the best known plan: the result is the optimum, which tests compare with every plan of small problems.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Final

import numpy as np

from engine.executions.arrays import Flags, Floats, Ints, take
from engine.planners.contract import Cancel, PlanCancelledError, Progress
from engine.planners.layerwise.cluster import MachineCluster
from engine.planners.layerwise.latency import EXCEEDED, Latency, MicrobatchWork, latency
from engine.planners.layerwise.memory import in_flight, stage_memory
from engine.planners.layerwise.placement import Taken, added, devices, empty, placements, sizes_of
from engine.planners.layerwise.problem import LayerwiseProblem
from engine.planners.layerwise.profiles.states import States
from engine.planners.layerwise.value import microbatches

__all__ = ["PaperSearch", "PlannedStage"]

MOST_OCCUPATIONS: Final = 1_500
"""Sets of taken devices up to which all placements are tried; with more, stages take consecutive devices. Source:
stated by us."""

MOST_CUTS: Final = 400
"""States up to which a pipeline may be cut after any; with more, along one chain of them and where known plans are cut.
Source: stated by us."""

ANY_NUMBER: Final = 32
"""Devices up to which a stage may have any number of them; with more, powers of two, whole machines and the rest of a
machine. Source: stated by us."""

SLACK: Final = 1 + 1e-8
"""Factor by which a bound must exceed the best known plan to count: more than rounding, and than `EXCEEDED`."""

GUESSES: Final = (1.05, 1.15, 1.3, 1.6, 2.2, 4.0, np.inf)
"""Steps below which a plan is looked for in turn, in multiples of the work divided by the devices."""


@dataclass(frozen=True, slots=True)
class PlannedStage:
    """A stage: states `start` to `stop`, half-open, its devices, and whether it computes its activations again."""

    start: int
    stop: int
    devices: tuple[int, ...]
    recompute: bool = False


@dataclass(frozen=True, slots=True)
class _Suffixes:
    """Suffixes of stages, arrays of one length.

    `start` is the state at which one begins, `stop` where its first stage ends, `home` the machine of that stage, -1
    for several, `stages` how many there are. `latency`, `passes` (up to the pivot's last backward pass), `threshold`
    (what a new pivot must exceed) and `late` (what a new pivot waits for) are [s]. `step` and `rest` are the
    positions of the first stage's devices and of the suffix behind it, -1 for none; `again` says that the first stage
    recomputes.
    """

    start: Ints
    stop: Ints
    home: Ints
    stages: Ints
    latency: Floats
    passes: Floats
    threshold: Floats
    late: Floats
    step: Ints
    rest: Ints
    again: Flags

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True, slots=True)
class _Step:
    """Devices that a stage may take next, the devices taken afterwards, and their machine, -1 for several."""

    after: Taken
    devices: tuple[int, ...]
    home: int


class PaperSearch:
    """The search on one cluster for one batch.

    Args:
        states: at the batch of a step.
        count: microbatches of a step.
        optimizer: parameters, gradients and optimizer states in multiples of the parameters.
        policy: how many microbatches stages keep, see `engine.planners.layerwise.memory`.
        recompute: whether stages that do not fit otherwise may recompute.
        share: samples of a microbatch, which the devices of a stage share in whole ones; None where they may split
        them.
    """

    def __init__(
        self,
        states: States,
        cluster: MachineCluster,
        count: int,
        *,
        optimizer: float,
        policy: str = "A",
        recompute: bool = True,
        share: int | None = None,
    ) -> None:
        self.states, self.cluster, self.count, self.length = states, cluster, count, len(states)
        self.optimizer, self.policy, self.recompute, self.share = optimizer, policy, recompute, share
        self._parameters, self._activation = _prepend_zero(states.parameters), _prepend_zero(states.activation)
        self._entering = np.concatenate([[0.0], states.out[:-1], [0.0]])
        kinds = {machine.kind for machine in cluster.machines}
        self._times = {kind: tuple(_prepend_zero(each) for each in states.on(kind)) for kind in kinds}
        self._reach = np.zeros((self.length + 1, self.length + 1), bool)
        self._reach[1:, 1:] = states.before
        self._reach[0, 1:] = True
        self._starts = np.arange(1, self.length)

    @classmethod
    def of(cls, problem: LayerwiseProblem, states: States) -> PaperSearch:
        """Returns the search for a problem.

        Args:
            problem: profile, cluster, batch and choices.
            states: at the batch of its step.
        """
        return cls(
            states,
            problem.cluster,
            microbatches(problem.global_batch, 1, problem.microbatch),
            optimizer=problem.optimizer,
            policy=problem.policy,
            recompute=problem.recompute,
            share=problem.microbatch if problem.whole else None,
        )

    @property
    def narrowed(self) -> bool:
        """Returns whether there are too many states, so that pipelines are cut along one chain of them."""
        return self.length > MOST_CUTS

    def _chain(self) -> set[int]:
        """States each of which adds as little as possible to the one before."""
        found, at = {0}, 0
        while len(after := np.flatnonzero(self.states.before[at])):
            at = int(after[np.argmin(self.states.time[after])])
            found.add(at)
        return found

    @cached_property
    def consecutive(self) -> bool:
        """Returns whether there are too many ways to place stages, so that each takes the devices next to the last
        one's."""
        return self._occupations(consecutive=False) is None

    def found(
        self, known: Sequence[Sequence[PlannedStage]], progress: Progress, cancel: Cancel
    ) -> list[list[PlannedStage]]:
        """Returns the best plan, and the best with fewer stages, in this order; empty where memory holds none.

        Args:
            known: plans below which a better one is looked for.
        """
        order = self._occupations(consecutive=self.consecutive) or []
        if self.narrowed:
            cuts = {after + 1 for after in self._chain()} | {stage.start for plan in known for stage in plan}
            self._starts = np.array(sorted(cuts - {0, self.length}))
        known_best = min((self.value(plan).total for plan in known if self.fits(plan)), default=np.inf)
        # No step is shorter than the work spread over all devices.
        ideal = float(self._fastest[1][-1]) / self.cluster.size
        for number, factor in enumerate(GUESSES):
            # The search is short where the bound is tight; whatever it finds below the bound is the optimum.
            most = min(ideal * factor, known_best) * SLACK
            progress(number / len(GUESSES), f"Looking for steps up to {factor:g} times the ideal one")
            plans = self._below(most, order, cancel)
            if plans or most >= known_best:
                return plans
        return []

    def _below(self, most: float, order: Sequence[Taken], cancel: Cancel) -> list[list[PlannedStage]]:
        """The best plan and the best ones with fewer stages that take no longer than `most` [s]."""
        kept: dict[Taken, tuple[_Suffixes, list[_Step]]] = {}
        for taken in order:
            if cancel():
                raise PlanCancelledError
            kept[taken] = self._suffixes(taken, kept, most)
        whole, _ = kept[empty(self.cluster)]
        best = np.lexsort((whole.stages, whole.latency))
        return [self._traced(kept, int(each)) for each in best]

    def _suffixes(
        self, taken: Taken, kept: dict[Taken, tuple[_Suffixes, list[_Step]]], most: float
    ) -> tuple[_Suffixes, list[_Step]]:
        """The suffixes worth keeping where `taken` devices belong to stages in front."""
        used = sum(taken)
        starts = self._starts if used else np.array([0])
        if used:
            # The states in front of a suffix run on the devices taken before it: M - 1 of their passes at least.
            front = self._fastest[1][starts] / self.count / used
            starts = starts[(self.count - 1) * front <= most]
        steps = [] if not len(starts) else list(self._steps(taken))
        made = []
        for position, step in enumerate(steps):
            made.append(self._extended(starts, used, step, position, None, most))
            if step.after in kept and len(kept[step.after][0]):
                made.append(self._extended(starts, used, step, position, kept[step.after][0], most))
        found = _join_suffixes(made)
        return take(found, _undercut_by_none(found)), steps

    def _extended(
        self, starts: Ints, used: int, step: _Step, position: int, rest: _Suffixes | None, most: float
    ) -> _Suffixes:
        """Stages from each of `starts` on the devices of a step, in front of each suffix of `rest`, or alone for
        None."""
        number, count = len(step.devices), self.count
        stops = np.array([self.length]) if rest is None else rest.start
        possible = self._reach[np.ix_(starts, stops)]
        forward, both = self._slowest(step)
        # A stage's steady phase alone must stay below the bound.
        rough = (both[stops][None, :] - both[starts][:, None]) * ((count - 1) / count / number)
        at, of = np.nonzero(possible & (rough <= most))
        start, stop = starts[at], stops[of]
        stages = np.ones(len(of), np.int64) if rest is None else rest.stages[of] + 1
        ok, again = self._memory(start, stop, stages, step)
        of, start, stop, stages, again = of[ok], start[ok], stop[ok], stages[ok], again[ok]
        ahead = (forward[stop] - forward[start]) / count / number
        back = (both[stop] - both[start]) / count / number - ahead
        # Recomputation adds a forward pass to the backward pass.
        back = np.where(again, back + ahead, back)
        held = self._parameters[stop] - self._parameters[start]
        reduce = self.cluster.reduce_time(step.devices, 1.0) * held
        if rest is None:
            found = _last_stage(ahead, back, reduce, count)
            behind = np.full(len(of), -1)
        else:
            rates = np.array([self.cluster.move_rate_to(step.devices, home) for home in (-1, *self.cluster.homes)])
            moved = rates[rest.home[of] + 1] * self._entering[stop] / count
            four = (rest.latency[of], rest.passes[of], rest.threshold[of], rest.late[of])
            four = _in_front(four, moved, moved, np.zeros(len(of)), count)
            found = _in_front(four, ahead, back, reduce, count)
            behind = of
        least = found[0]
        if used:
            # Where no stage in front becomes the pivot they add their passes; where one does, its steady phase and
            # what is around it are longer than the threshold.
            more, passes = (each[start] / count / used for each in self._fastest)
            least = np.minimum(np.maximum(found[0] + more, found[1] + passes), found[2] + passes)
        good = np.flatnonzero(least <= most)
        before, passes, threshold, late = (each[good] for each in found)
        return _Suffixes(
            start=start[good],
            stop=stop[good],
            home=np.full(len(good), step.home),
            stages=stages[good],
            latency=before,
            passes=passes,
            threshold=threshold,
            late=late,
            step=np.full(len(good), position),
            rest=behind[good],
            again=again[good],
        )

    def _memory(self, start: Ints, stop: Ints, stages: Ints, step: _Step) -> tuple[Flags, Flags]:
        """Returns whether stages fit, and whether they must recompute to fit [rows]."""
        room = self.cluster.memory(step.devices)
        plain = self._needed(start, stop, stages, len(step.devices), recompute=False) <= room
        if not self.recompute or plain.all():
            return plain, np.zeros(len(plain), bool)
        again = self._needed(start, stop, stages, len(step.devices), recompute=True) <= room
        return plain | again, ~plain & again

    def _needed(self, start: Ints, stop: Ints, behind: Any, number: int, *, recompute: bool) -> Floats:
        share = 1 / (self.count * number)
        return stage_memory(
            self._parameters[stop] - self._parameters[start],
            (self._activation[stop] - self._activation[start]) * share,
            self._entering[start] * share,
            in_flight(behind, self.count, self.policy),
            self.optimizer,
            recompute=recompute,
        )

    @cached_property
    def _fastest(self) -> tuple[Floats, Floats]:
        """Forward passes, and both, that the states before each take at least on any device [s] [states + 1]."""
        forwards, boths = zip(*self._times.values(), strict=True)
        return np.min(forwards, axis=0), np.min(boths, axis=0)

    def _slowest(self, step: _Step) -> tuple[Floats, Floats]:
        """Cumulated forward passes, and both, of the kind of device that takes longest in a group."""
        kinds = sorted(self.cluster.kinds(step.devices))
        times = max((self._times[kind] for kind in kinds), key=lambda each: float(each[1][-1]))
        return times[0], times[1]

    def _steps(self, taken: Taken) -> Iterator[_Step]:
        cluster, sizes = self.cluster, sizes_of(self.cluster)
        for need in self._numbers(sum(sizes) - sum(taken)):
            ways = (_next_to(sizes, taken, need),) if self.consecutive else placements(sizes, taken, need)
            for more in ways:
                group = devices(cluster, taken, more)
                yield _Step(added(taken, more), group, cluster.home(group))

    def _numbers(self, free: int) -> list[int]:
        """Return the numbers of devices that a stage may have, given the free ones."""
        if self.share is not None:
            return [size for size in range(1, min(free, self.share) + 1) if not self.share % size]
        if self.cluster.size <= ANY_NUMBER:
            return list(range(1, free + 1))
        sizes = {1 << power for power in range(free.bit_length())} | {free}
        whole = max(machine.devices for machine in self.cluster.machines)
        sizes |= set(range(whole, free + 1, whole)) if free // whole <= ANY_NUMBER else set()
        return sorted(size for size in sizes if 1 <= size <= free)

    def _occupations(self, *, consecutive: bool) -> list[Taken] | None:
        """Every set of taken devices, the fullest first; None where there are too many."""
        sizes, start = sizes_of(self.cluster), empty(self.cluster)
        seen, waiting = {start}, [start]
        while waiting:
            taken = waiting.pop()
            for need in self._numbers(sum(sizes) - sum(taken)):
                ways = (_next_to(sizes, taken, need),) if consecutive else placements(sizes, taken, need)
                for more in ways:
                    after = added(taken, more)
                    if after not in seen:
                        seen.add(after)
                        waiting.append(after)
            if not consecutive and len(seen) > MOST_OCCUPATIONS:
                return None
        return sorted(seen, key=lambda each: (-sum(each), each))

    def _traced(self, kept: dict[Taken, tuple[_Suffixes, list[_Step]]], position: int) -> list[PlannedStage]:
        taken, plan = empty(self.cluster), list[PlannedStage]()
        while position >= 0:
            suffixes, steps = kept[taken]
            step = steps[int(suffixes.step[position])]
            start, stop = int(suffixes.start[position]), int(suffixes.stop[position])
            plan.append(PlannedStage(start, stop, step.devices, bool(suffixes.again[position])))
            taken, position = step.after, int(suffixes.rest[position])
        return plan

    def works(self, plan: Sequence[PlannedStage]) -> list[MicrobatchWork]:
        """Returns the work of the stages of a plan for a microbatch, with transfers as stages of their own."""
        made: list[MicrobatchWork] = []
        for number, stage in enumerate(plan):
            if number:
                rate = self.cluster.move_rate(plan[number - 1].devices, stage.devices)
                moved = rate * float(self._entering[stage.start]) / self.count
                made.append(MicrobatchWork(moved, moved))
            forward, both = self._slowest(_Step((), stage.devices, 0))
            share = 1 / (self.count * len(stage.devices))
            ahead = float(forward[stage.stop] - forward[stage.start]) * share
            back = float(both[stage.stop] - both[stage.start]) * share - ahead
            held = float(self._parameters[stage.stop] - self._parameters[stage.start])
            reduce = self.cluster.reduce_time(stage.devices, held)
            made.append(MicrobatchWork(ahead, back + ahead if stage.recompute else back, reduce))
        return made

    def value(self, plan: Sequence[PlannedStage]) -> Latency:
        """Returns the latency of a plan."""
        return latency(self.works(plan), self.count)

    def memory(self, plan: Sequence[PlannedStage]) -> list[float]:
        """Returns the memory of each stage on one of its devices [bytes]."""
        return [
            float(
                self._needed(
                    np.array([stage.start]),
                    np.array([stage.stop]),
                    len(plan) - number,
                    len(stage.devices),
                    recompute=stage.recompute,
                )[0]
            )
            for number, stage in enumerate(plan)
        ]

    def fits(self, plan: Sequence[PlannedStage]) -> bool:
        """Returns whether every stage of a plan has the memory that it needs, and whole samples for its devices."""
        if self.share is not None and any(self.share % len(stage.devices) for stage in plan):
            return False
        return all(
            need <= self.cluster.memory(stage.devices) for need, stage in zip(self.memory(plan), plan, strict=True)
        )

    def fitted(self, shape: Sequence[tuple[int, int, tuple[int, ...]]]) -> list[PlannedStage]:
        """Returns stages given by start, stop and devices; stages recompute only if they do not fit otherwise."""
        plain = [PlannedStage(start, stop, group) for start, stop, group in shape]
        needs = self.memory(plain)
        return [
            PlannedStage(
                stage.start, stage.stop, stage.devices, self.recompute and need > self.cluster.memory(stage.devices)
            )
            for stage, need in zip(plain, needs, strict=True)
        ]


def _prepend_zero(values: Floats) -> Floats:
    return np.concatenate([[0.0], values])


def _next_to(sizes: Taken, taken: Taken, need: int) -> Taken:
    """The next devices in order."""
    found = []
    for size, used in zip(sizes, taken, strict=True):
        found.append(min(need, size - used))
        need -= found[-1]
    return tuple(found)


Four = tuple[Floats, Floats, Floats, Floats]
"""Latency, passes, threshold and late time of suffixes, arrays of one length; see `_Suffixes`."""


def _last_stage(forward: Floats, backward: Floats, reduce: Floats, count: int) -> Four:
    """The last stage of a pipeline."""
    steady = (count - 1) * (forward + backward)
    passes = forward + steady + backward
    return passes + reduce, passes, steady, reduce - backward


def _in_front(four: Four, forward: Floats, backward: Floats, reduce: Floats, count: int) -> Four:
    """A stage in front of suffixes, as `latency` has it: it becomes the pivot where its steady phase is long enough."""
    before, passes, threshold, late = four
    steady = (count - 1) * (forward + backward)
    pivot = steady > threshold * EXCEEDED
    # As the pivot: its own passes; otherwise it lengthens the passes of the suffix.
    own, through = forward + steady + backward, passes + forward + backward
    taken_over = np.maximum(own + reduce, forward + steady + late - backward)
    return (
        np.where(pivot, taken_over, np.maximum(before + forward, through + reduce)),
        np.where(pivot, own, through),
        np.where(pivot, steady, threshold + forward + backward),
        np.maximum(reduce, late) - backward,
    )


def _join_suffixes(parts: list[_Suffixes]) -> _Suffixes:
    if not parts:
        none, nothing = np.zeros(0, np.int64), np.zeros(0)
        return _Suffixes(none, none, none, none, nothing, nothing, nothing, nothing, none, none, np.zeros(0, bool))
    return _Suffixes(*(np.concatenate([getattr(part, each.name) for part in parts]) for each in fields(_Suffixes)))


def _undercut_by_none(rows: _Suffixes) -> Ints:
    """The rows of which no other with the same start and home is at least as good in everything."""
    if not len(rows):
        return np.zeros(0, np.int64)
    measures = np.column_stack([rows.latency, rows.passes, rows.threshold, rows.late, rows.stages])
    order = np.lexsort((rows.step, rows.stop, rows.stages, rows.latency, rows.home, rows.start))
    group = np.flatnonzero(
        np.diff(rows.start[order], prepend=-1).astype(bool) | np.diff(rows.home[order], prepend=-2).astype(bool)
    )
    kept: list[int] = []
    for first, last in zip(group, [*group[1:], len(order)], strict=True):
        left = order[first:last]
        while len(left):
            best = left[0]
            kept.append(int(best))
            left = left[(measures[left] < measures[best]).any(axis=1)]
    return np.array(kept, np.int64)
