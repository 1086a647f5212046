"""A fleet with its jobs and services, and an allocation of its GPUs over hours that repeat, such as the day's."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from engine.executions.arrays import Floats

__all__ = [
    "OBJECTIVES",
    "Allocation",
    "FleetJob",
    "FleetProblem",
    "FleetService",
    "GpuPool",
    "JobSize",
    "Objective",
    "ReplicaChoice",
]

HOURS_OF_DAY: Final = 24.0
SECONDS_OF_HOUR: Final = 3_600.0
SECONDS_OF_DAY: Final = 86_400.0

Objective = Literal["progress", "days", "usd"]
OBJECTIVES: Final[dict[Objective, str]] = {
    "progress": "Most weighted progress",
    "days": "All jobs done earliest",
    "usd": "Least cost",
}
"""Objectives of an allocation, in words."""


@dataclass(frozen=True, slots=True)
class GpuPool:
    """Equal GPUs of a fleet."""

    name: str
    gpus: int
    node: int
    """GPUs of a node; jobs and spares take whole nodes."""
    spares: int = 0
    """GPUs that are kept free for failures."""
    usd_per_h: float = math.nan
    """Price of a GPU [USD/h]; not a number where unknown."""


@dataclass(frozen=True, slots=True)
class JobSize:
    """GPUs of a pool that a job may hold, and its rate on them."""

    pool: int
    """Position of the pool in the fleet."""
    gpus: int
    tokens_per_s: float
    """Tokens of a second, failures included."""
    row: Any = None
    """Execution with that rate, if it is to be shown."""
    group: int | None = None
    """Sizes of one group change into each other without a restart: the training side stays, the rollout changes."""


@dataclass(frozen=True, slots=True)
class FleetJob:
    """A job: training, fine-tuning or reinforcement learning."""

    name: str
    sizes: tuple[JobSize, ...]
    tokens: float | None = None
    """Tokens to train, or of all samples of reinforcement learning; None if it goes on for ever."""
    deadline_days: float | None = None
    """Days within which it must be done; needs tokens."""
    weight: float = 1.0
    """Worth of its progress beside other jobs'."""
    is_elastic: bool = False
    """True if it may change its size, or pause, every hour."""
    restart_s: float = 0.0
    """Time without progress after each change of an elastic job from one group of sizes to another [s]."""

    after: str | None = None
    """Name of the job that must end before it starts."""
    chain_factor: float = 1.0
    """Least days from its start to the end of all that waits for it, over its own; the earliest end counts these."""

    alone_rate: float | None = None
    """Tokens of a second if it had the fleet alone, where some sizes are larger than that; None for the best of all."""

    def restarts(self, size: int, before: int) -> bool:
        """Return whether an elastic job stands still when it changes its size.

        Args:
            size: position of its size in this hour.
            before: position of that in the hour before, -1 where it paused.
        """
        if size == before:
            return False
        if before < 0 or self.sizes[size].group is None:
            return True
        return (self.sizes[before].pool, self.sizes[before].group) != (self.sizes[size].pool, self.sizes[size].group)

    @property
    def needed_rate(self) -> float:
        """Tokens of a second that its deadline needs; 0 without one."""
        if self.tokens is None or self.deadline_days is None:
            return 0.0
        return self.tokens / (self.deadline_days * SECONDS_OF_DAY)

    @property
    def best_rate(self) -> float:
        """Tokens of a second if it had the fleet alone; 0 if nothing runs."""
        if self.alone_rate is not None:
            return self.alone_rate
        return self.largest_rate

    @property
    def largest_rate(self) -> float:
        """Tokens of a second at the best size, whether the fleet has so many GPUs or not; 0 if nothing runs."""
        return max((size.tokens_per_s for size in self.sizes), default=0.0)


@dataclass(frozen=True, slots=True)
class ReplicaChoice:
    """A deployment of which a service may run any number of replicas on a pool."""

    pool: int
    gpus: int
    """GPUs of a replica."""
    capacity: float
    """Requests of a second that a replica serves within its limits."""
    row: Any = None
    """The deployment, if it is to be shown."""


@dataclass(frozen=True, slots=True, eq=False)
class FleetService:
    """A service whose replicas follow its demand."""

    name: str
    choices: tuple[ReplicaChoice, ...]
    demand: Floats
    """Requests per second of each hour; as many hours as the fleet has [1/s]."""
    after: str | None = None
    """Name of the job that must end before it starts."""
    startup_s: float = 0.0
    """Time from the start of a replica, on the hour, until it serves [s]; at most an hour."""


@dataclass(frozen=True, slots=True)
class FleetProblem:
    """Pools, and what shall run on them in hours that repeat."""

    pools: tuple[GpuPool, ...]
    jobs: tuple[FleetJob, ...]
    services: tuple[FleetService, ...]
    hours: int = 24
    objective: Objective = "progress"

    @property
    def has_chain(self) -> bool:
        """True if a job or service waits for a job."""
        return any(each.after is not None for each in self.holders)

    @property
    def holders(self) -> list[FleetJob | FleetService]:
        """All jobs, then all services."""
        return [*self.jobs, *self.services]


@dataclass(frozen=True, slots=True, eq=False)
class Allocation:
    """GPUs of every job and service in every hour.

    `sizes` has for every job its position in `FleetJob.sizes` by hour, -1 where it pauses [hours]; `replicas` has for
    every service the replicas of each choice by hour [choices, hours].
    """

    problem: FleetProblem
    sizes: tuple[np.ndarray[Any, Any], ...]
    replicas: tuple[np.ndarray[Any, Any], ...]
    value: float
    """Value of the objective: progress (1 is every job as fast as alone on the fleet), days, or USD of all
    hours; infinite days if a job makes no progress."""
    bound: float
    """No allocation is better than this."""

    @property
    def gap(self) -> float:
        """Share by which a better allocation may exist; 0 if this one is proven best."""
        gap = abs(self.value - self.bound) / max(abs(self.value), abs(self.bound), 1e-30)
        return 0.0 if gap < 1e-6 or not math.isfinite(self.value) else gap

    def rate(self, job: int) -> float:
        """Return the tokens of a second of a job, averaged over all hours, restarts left out.

        Args:
            job: position of the job.
        """
        said, held, hours = self.problem.jobs[job], self.sizes[job], self.problem.hours
        total = 0.0
        for hour in range(hours):
            size = int(held[hour])
            if size < 0:
                continue
            is_lost = said.is_elastic and hours > 1 and said.restarts(size, int(held[hour - 1]))
            lost = said.restart_s / SECONDS_OF_HOUR if is_lost else 0.0
            total += said.sizes[size].tokens_per_s * max(1.0 - lost, 0.0)
        return total / hours

    def days(self, job: int) -> float:
        """Return the days until a job is done; infinite without progress, not a number without tokens.

        Args:
            job: position of the job.
        """
        tokens, rate = self.problem.jobs[job].tokens, self.rate(job)
        if tokens is None:
            return math.nan
        return tokens / rate / SECONDS_OF_DAY if rate > 0 else math.inf

    def gpus_of_job(self, job: int) -> np.ndarray[Any, Any]:
        """Return the GPUs of a job by pool and hour [pools, hours].

        Args:
            job: position of the job.
        """
        gpus = np.zeros((len(self.problem.pools), self.problem.hours), np.int64)
        for hour, size in enumerate(self.sizes[job]):
            if size >= 0:
                chosen = self.problem.jobs[job].sizes[size]
                gpus[chosen.pool, hour] += chosen.gpus
        return gpus

    def gpus_of_service(self, service: int) -> np.ndarray[Any, Any]:
        """Return the GPUs of a service by pool and hour [pools, hours].

        Args:
            service: position of the service.
        """
        gpus = np.zeros((len(self.problem.pools), self.problem.hours), np.int64)
        for choice, count in zip(self.problem.services[service].choices, self.replicas[service], strict=True):
            gpus[choice.pool] += choice.gpus * count
        return gpus

    def unserved(self, service: int) -> Floats:
        """Return the demand of a service beyond its replicas by hour [1/s].

        Args:
            service: position of the service.
        """
        said = self.problem.services[service]
        capacity = np.zeros(self.problem.hours)
        for choice, count in zip(said.choices, self.replicas[service], strict=True):
            started = np.maximum(count - np.roll(count, 1), 0)
            capacity += choice.capacity * (count - started * said.startup_s / SECONDS_OF_HOUR)
        short = said.demand - capacity
        return np.where(short > 1e-9 * np.maximum(said.demand, 1e-30), short, 0.0)

    @property
    def gpus(self) -> np.ndarray[Any, Any]:
        """GPUs in use by pool and hour [pools, hours]."""
        total = np.zeros((len(self.problem.pools), self.problem.hours), np.int64)
        for job in range(len(self.problem.jobs)):
            total += self.gpus_of_job(job)
        for service in range(len(self.problem.services)):
            total += self.gpus_of_service(service)
        return total

    @property
    def usd(self) -> float:
        """Cost of the GPUs in use over all hours [USD]; not a number where a price in use is unknown."""
        hours = self.gpus.sum(axis=1)
        return float(sum(pool.usd_per_h * gpus for pool, gpus in zip(self.problem.pools, hours, strict=True) if gpus))

    @property
    def late(self) -> tuple[int, ...]:
        """Positions of the jobs that miss their deadlines."""
        return tuple(
            number for number, job in enumerate(self.problem.jobs) if self.rate(number) < job.needed_rate * (1.0 - 1e-9)
        )

    @property
    def holds(self) -> bool:
        """True if all demand is served and no job is late."""
        return not self.late and not any(self.unserved(each).any() for each in range(len(self.problem.services)))
