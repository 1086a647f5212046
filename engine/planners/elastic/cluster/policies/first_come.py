"""First come, first served: every job gets its request in the order of submission and keeps it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.planners.elastic.cluster.cluster import Cluster
from engine.planners.elastic.cluster.jobs import ReplayedJob
from engine.planners.elastic.cluster.policies.fitting import asked_options, put
from engine.planners.elastic.cluster.policies.policy import Allocations

__all__ = ["FirstComePolicy"]


@dataclass
class FirstComePolicy:
    """The job that waits longest starts first; while it does not fit, none behind it starts."""

    cluster: Cluster
    name: str = "first-come"
    title: str = "First come, first served"
    keeps_running: bool = False

    def allocate(self, now: float, active: Sequence[ReplayedJob], held: Allocations) -> Allocations:
        """Returns who has which GPUs from now on; see `engine.planners.elastic.cluster.policies.policy.Policy`."""
        for job in active:
            if job.job.name in held.gpus:
                continue
            if put(held, job.job.name, asked_options(job), held.free(self.cluster)) is None:
                break
        return held
