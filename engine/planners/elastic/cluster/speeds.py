"""Speed of a job on a placement: seconds per iteration from measured runs.

Rules of the published simulator (Morphling/Rubick artifact, AlibabaPAI/reconfigurable-dl-scheduler, `applications.py`):
a placement is read from the rotation of its digits that is smallest; a run of the same plan counts first, then one of
plain data parallelism there, then the mean of all plans with as many nodes and GPUs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeAlias

__all__ = ["MeasuredRun", "MeasuredSpeeds", "Option", "Placement", "rotated"]

Placement: TypeAlias = tuple[int, ...]
"""GPUs on each node, one number per node."""

PLAIN: Final = "ga"
"""Plan word of data parallelism with gradient accumulation, to which others fall back."""


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """One measured run: its plan, its placement and its seconds per iteration."""

    plan: str
    placement: Placement
    seconds: float


@dataclass(frozen=True, slots=True)
class Option:
    """One way to run a model: a placement, the plan there, and its seconds per iteration."""

    placement: Placement
    plan: str
    seconds: float

    @property
    def gpus(self) -> int:
        """Returns the GPUs of the placement."""
        return sum(self.placement)


def rotated(placement: Iterable[int]) -> Placement:
    """Returns the smallest rotation of a placement's digits, without empty nodes.

    Args:
        placement: GPUs on each node.
    """
    digits = tuple(each for each in placement if each)
    return min((digits[at:] + digits[:at] for at in range(len(digits))), default=())


@dataclass(frozen=True)
class MeasuredSpeeds:
    """The measured runs of one model."""

    runs: tuple[MeasuredRun, ...]

    @cached_property
    def _by_plan(self) -> dict[tuple[Placement, str], float]:
        found: dict[tuple[Placement, str], float] = {}
        for run in self.runs:
            found.setdefault((run.placement, run.plan), run.seconds)
        return found

    @cached_property
    def _means(self) -> dict[tuple[int, int], float]:
        sums: dict[tuple[int, int], list[float]] = defaultdict(list)
        for run in self.runs:
            sums[len(run.placement), sum(run.placement)].append(run.seconds)
        return {key: sum(values) / len(values) for key, values in sums.items()}

    def exact(self, placement: Placement, plan: str) -> float | None:
        """Returns the seconds per iteration of a measured run of this plan there, or None.

        Args:
            placement: GPUs on each node, in any rotation.
            plan: word or digits of the plan.
        """
        return self._by_plan.get((rotated(placement), plan))

    def seconds(self, placement: Placement, plan: str) -> float | None:
        """Returns the seconds per iteration by the rules of the published simulator, None where nothing measured has as
        many nodes and GPUs.

        Between measured numbers of GPUs on as many nodes it is interpolated, as there; that rule is ours where the
        simulator interpolates over nodes as well.

        Args:
            placement: GPUs on each node, in any rotation.
            plan: word or digits of the plan.
        """
        at = rotated(placement)
        for word in (plan, PLAIN):
            if (found := self._by_plan.get((at, word))) is not None:
                return found
        nodes, gpus = len(at), sum(at)
        if (mean := self._means.get((nodes, gpus))) is not None:
            return mean
        known = sorted(each for count, each in self._means if count == nodes)
        below = max((each for each in known if each < gpus), default=None)
        above = min((each for each in known if each > gpus), default=None)
        if below is None or above is None:
            return None
        low, high = self._means[nodes, below], self._means[nodes, above]
        return low + (high - low) * (gpus - below) / (above - below)

    @cached_property
    def options(self) -> tuple[Option, ...]:
        """Returns the fastest measured plan of every placement whose nodes have equally many GPUs, by GPUs and then by
        seconds."""
        best: dict[Placement, Option] = {}
        for run in self.runs:
            if len(set(run.placement)) == 1:
                held = best.get(run.placement)
                if held is None or run.seconds < held.seconds:
                    best[run.placement] = Option(run.placement, run.plan, run.seconds)
        return tuple(sorted(best.values(), key=lambda each: (each.gpus, each.seconds, each.placement)))
