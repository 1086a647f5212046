"""State of one job during the replay of a workload: its placement, progress and completion."""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.planners.contract import PlanError
from engine.planners.elastic.cluster.applications import Application
from engine.planners.elastic.cluster.speeds import Placement
from engine.planners.elastic.cluster.workload import WorkloadJob

__all__ = ["ReplayedJob"]


@dataclass
class ReplayedJob:
    """A job and its state.

    `placement` is empty while the job waits; `pause` is the rest of the downtime after a change [s]; `progress` the
    elapsed time of the current iteration [s]; `clock` its own time [s]. `restarts` counts placements, None before the
    first.
    """

    job: WorkloadJob
    application: Application
    steps: int
    placement: Placement = ()
    plan: str = ""
    pause: float = 0.0
    progress: float = 0.0
    done: int = 0
    clock: float = 0.0
    completion: float | None = None
    restarts: int | None = None
    first_placed: float | None = None
    gpu_seconds: float = 0.0
    paused_seconds: float = 0.0
    history: list[tuple[float, Placement, str]] = field(default_factory=list)

    @property
    def changes(self) -> int:
        """Returns the number of placements after the first one."""
        return self.restarts or 0

    def seconds(self) -> float:
        """Returns its seconds per iteration on its placement.

        Raises `engine.planners.contract.PlanError` where nothing like it was measured.
        """
        found = self.application.speeds.seconds(self.placement, self.plan)
        if found is None or not found > 0:
            digits = "".join(map(str, self.placement))
            raise PlanError(
                f"No run of {self.application.name} was measured on as many nodes and GPUs as placement {digits}; "
                f"{self.job.name} cannot be replayed there."
            )
        return found

    def remaining(self) -> int:
        """Returns the iterations that it has still to do."""
        return max(self.steps + 1 - self.done, 0)

    def run(self, seconds: float) -> None:
        """Advances the job by an interval, in which it waits, pauses after a change, or does iterations.

        A job is through with one iteration more than its steps, as in the published simulator.

        Args:
            seconds: of the interval.
        """
        end = self.clock + seconds
        if self.placement and self.completion is None:
            # The pause of the last change comes first; iterations fill what is left of the interval.
            still = min(self.pause, seconds)
            self.pause -= still
            self.paused_seconds += still
            self.clock += still
            self._iterate(seconds - still)
            stop = end if self.completion is None else max(self.completion, end - seconds)
            self.gpu_seconds += sum(self.placement) * (stop - (end - seconds))
        self.clock = round(end, 1)

    def _iterate(self, seconds: float) -> None:
        if seconds <= 0:
            return
        each = self.seconds()
        # Part of an iteration carries over to the next interval as `progress` seconds.
        number = int((self.progress + seconds) // each)
        if number >= self.remaining():
            self.completion = self.clock + self.remaining() * each - self.progress
            self.done = self.steps + 1
            return
        self.done += number
        self.progress += seconds - number * each

    def place(self, now: float, placement: Placement, plan: str, pause: float) -> None:
        """Places the job, which then pauses unless its placement is unchanged; an equal placement on other nodes is the
        same one, and keeps the plan.

        Args:
            now: the time [s].
            placement: GPUs on each of its nodes.
            plan: word or digits of the plan.
            pause: how long a change takes [s].
        """
        if placement == self.placement:
            return
        self.placement, self.plan, self.pause = placement, plan, pause
        self.restarts = 0 if self.restarts is None else self.restarts + 1
        if self.first_placed is None:
            self.first_placed = now
        self.history.append((now, placement, plan))
