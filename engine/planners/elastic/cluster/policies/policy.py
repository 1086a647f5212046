"""Contract of scheduling policies: state of the cluster in, allocations out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from engine.planners.elastic.cluster.cluster import Cluster
from engine.planners.elastic.cluster.jobs import ReplayedJob
from engine.planners.elastic.cluster.speeds import Placement

__all__ = ["Allocations", "Policy"]


@dataclass
class Allocations:
    """The GPUs of every job, each as the number of its node, and their plans, by name of the job."""

    gpus: dict[str, list[int]] = field(default_factory=dict)
    plans: dict[str, str] = field(default_factory=dict)

    def free(self, cluster: Cluster, but: str | None = None) -> dict[int, int]:
        """Returns the free GPUs of the nodes that have any, by node in rising order.

        Args:
            cluster: with nodes from 0.
            but: name of a job whose GPUs count as free.
        """
        left = [cluster.gpus_per_node] * cluster.nodes
        for job, nodes in self.gpus.items():
            for node in nodes if job != but else ():
                left[node] -= 1
        return {node: gpus for node, gpus in enumerate(left) if gpus > 0}

    def placement(self, job: str) -> Placement:
        """Returns the GPUs on each node of a job, in the order in which it has them.

        Args:
            job: its name.
        """
        runs: list[int] = []
        before: int | None = None
        for node in self.gpus.get(job, ()):
            if node == before:
                runs[-1] += 1
            else:
                runs.append(1)
            before = node
        return tuple(runs)

    def without(self, gone: frozenset[str]) -> Allocations:
        """Returns the allocations of all other jobs.

        Args:
            gone: names of jobs.
        """
        return Allocations(
            {job: list(nodes) for job, nodes in self.gpus.items() if job not in gone},
            {job: plan for job, plan in self.plans.items() if job not in gone},
        )


class Policy(Protocol):
    """A scheduler. `keeps_running` says that a job which loses its GPUs goes on where it was, as in the published
    simulator, instead of waiting."""

    name: str
    title: str
    keeps_running: bool

    def allocate(self, now: float, active: Sequence[ReplayedJob], held: Allocations) -> Allocations:
        """Returns the allocation of GPUs to jobs from now on.

        Args:
            now: the time [s].
            active: submitted and unfinished jobs, in the order of the workload.
            held: their current GPUs.
        """
