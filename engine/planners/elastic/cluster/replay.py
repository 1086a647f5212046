"""Replay of a workload on a cluster, in rounds of equal length."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import pandas as pd

from engine.planners.contract import Cancel, PlanCancelledError, PlanError, Progress, never, unheard
from engine.planners.elastic.cluster.applications import Application, applications
from engine.planners.elastic.cluster.cluster import Cluster, ClusterSource, cluster_of
from engine.planners.elastic.cluster.jobs import ReplayedJob
from engine.planners.elastic.cluster.policies import policy_of
from engine.planners.elastic.cluster.policies.policy import Allocations, Policy
from engine.planners.elastic.cluster.workload import Workload, WorkloadSource, workload_from

__all__ = ["PAUSE", "ReplayResult", "replay"]

PAUSE: Final = 260.0
"""Seconds for which the published simulator stops a job at its first start and at every change."""

INTERVAL: Final = 60.0
"""Length of a round [s]. Source: the published simulator (AlibabaPAI/reconfigurable-dl-scheduler at 80e8524)."""
MOST_ROUNDS: Final = 200_000
"""Most rounds of a replay; 139 days of one minute each. Source: stated by us."""


@dataclass(frozen=True)
class ReplayResult:
    """Result of a replay.

    `jobs` has a row per job in the order of submission; `utilisation` a row per round, with `gpus_allocated` by the
    scheduler and `gpus_occupied` by running jobs, which may be more under the artifact's policy; `placements` a row per
    change of a job's placement; and `summary` averages, by name; seconds everywhere. `notes` are caveats on the
    figures.
    """

    policy: str
    cluster: Cluster
    jobs: pd.DataFrame
    utilisation: pd.DataFrame
    placements: pd.DataFrame
    summary: Mapping[str, Any]
    notes: tuple[str, ...] = ()


def replay(
    workload: WorkloadSource,
    cluster: ClusterSource = "8x8",
    policy: str | Policy = "published",
    *,
    pause: float = PAUSE,
    interval: float = INTERVAL,
    models: Mapping[str, Application] | None = None,
    progress: Progress = unheard,
    cancel: Cancel = never,
) -> ReplayResult:
    """Replays a workload on a cluster under a policy.

    Args:
        workload: jobs, as `engine.planners.elastic.cluster.workload.workload_from` takes them.
        cluster: its nodes, as `engine.planners.elastic.cluster.cluster.cluster_of` takes them.
        policy: a name of `engine.planners.elastic.cluster.policies.POLICIES`, or a policy.
        pause: downtime of a job at its start and at every change [s].
        interval: length of a round [s].
        models: scheduler's view of the workload's models, by name; the published replays' where None.
        progress: called with the share of finished jobs.
        cancel: True stops the replay.

    Raises:
        engine.planners.contract.PlanError: invalid job, cluster or policy, or a job that never runs.
        engine.planners.contract.PlanCancelledError: `cancel` returned True.
    """
    made = workload_from(workload)
    on = cluster_of(cluster)
    for title, value, least in (("pause", pause, 0.0), ("interval", interval, 1.0)):
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= 86_400:
            raise PlanError(f"The {title} is {str(value)[:40]}; it must be {least:g} to 86,400 seconds.")
    chosen = policy_of(policy, on, float(pause))
    jobs = _prepare_jobs(made, applications() if models is None else models)
    rounds = _Rounds(on, chosen, jobs, float(pause), float(interval))
    rounds.run(progress, cancel)
    return _build_result(made, rounds)


def _prepare_jobs(workload: Workload, models: Mapping[str, Application]) -> list[ReplayedJob]:
    made = []
    for at, job in enumerate(workload.jobs, start=1):
        if job.application not in models:
            listed = ", ".join(sorted(models)[:12])
            raise PlanError(f"Job {at}: there is no model {job.application[:40]!r}; there are {listed}.")
        model = models[job.application]
        made.append(
            ReplayedJob(job, model, job.steps or _steps_of_duration(job.duration or 0.0, model, job.gpus, job.plan))
        )
    return made


def _steps_of_duration(duration: float, model: Application, gpus: int, plan: str) -> int:
    """Returns the steps of a job from its duration on the GPUs and the plan that it requests."""
    nodes, rest = divmod(gpus, 8)
    seconds = model.speeds.seconds((8,) * nodes + ((rest,) if rest else ()), plan)
    if seconds is None:
        raise PlanError(f"No run of {model.name} on {gpus} GPUs was measured; give the job's steps.")
    return max(round(duration / seconds), 1)


class _Rounds:
    """Rounds of a replay and the records of each."""

    def __init__(
        self, cluster: Cluster, policy: Policy, jobs: list[ReplayedJob], pause: float, interval: float
    ) -> None:
        self.cluster, self.policy, self.jobs = cluster, policy, jobs
        self.pause, self.interval = pause, interval
        self.held = Allocations()
        self.times: list[float] = []
        self.allocated: list[int] = []
        self.occupied: list[int] = []
        self.pending: list[int] = []
        self.running: list[int] = []

    def run(self, progress: Progress, cancel: Cancel) -> None:
        now, waiting, alive = 0.0, 0, [*self.jobs]
        last = max(each.job.submission for each in self.jobs)
        while alive:
            if cancel():
                raise PlanCancelledError
            # Jobs run with what they hold; the policy decides anew only at the end of each interval.
            for job in alive:
                job.run(self.interval)
            now += self.interval
            alive = [each for each in alive if each.completion is None]
            active = [each for each in alive if each.job.submission <= now]
            if active:
                self._round(now, active)
            self._keep(now, active)
            # Once no job is to arrive any more, rounds in which nobody runs cannot end by themselves.
            stuck = bool(active) and not any(each.placement for each in active) and now > last
            waiting = waiting + 1 if stuck else 0
            if waiting > 2:
                raise PlanError(
                    f"Nothing runs any more, and {len(active):,} jobs wait: {active[0].job.name[:60]} needs GPUs that "
                    f"a cluster of {self.cluster.nodes}x{self.cluster.gpus_per_node} cannot give it."
                )
            if len(self.times) >= MOST_ROUNDS:
                raise PlanError(
                    f"After {MOST_ROUNDS:,} rounds {len(alive):,} jobs are not through; give longer rounds."
                )
            if len(self.times) % 32 == 0:
                progress(1 - len(alive) / len(self.jobs), f"replaying, {now / 3600:.1f} h")

    def _round(self, now: float, active: list[ReplayedJob]) -> None:
        # Ended jobs return their GPUs before the policy divides them.
        names = {each.job.name for each in active}
        held = self.held.without(frozenset(self.held.gpus) - names)
        self.held = self.policy.allocate(now, active, held)
        left = self.held.free(self.cluster)
        if sum(left.values()) != self.cluster.gpus - sum(map(len, self.held.gpus.values())):
            raise RuntimeError(f"Policy {self.policy.name} gave more GPUs of a node than it has.")
        for job in active:
            placement = self.held.placement(job.job.name)
            if placement:
                job.place(now, placement, self.held.plans[job.job.name], self.pause)
            elif not self.policy.keeps_running:
                job.placement = ()

    def _keep(self, now: float, active: list[ReplayedJob]) -> None:
        self.times.append(now)
        self.allocated.append(sum(map(len, self.held.gpus.values())))
        self.occupied.append(sum(sum(each.placement) for each in active))
        self.pending.append(sum(not each.placement for each in active))
        self.running.append(sum(bool(each.placement) for each in active))


def _build_result(workload: Workload, rounds: _Rounds) -> ReplayResult:
    jobs = pd.DataFrame(
        {
            "name": [each.job.name for each in rounds.jobs],
            "application": [each.job.application for each in rounds.jobs],
            "submission_s": [each.job.submission for each in rounds.jobs],
            "requested_gpus": [each.job.gpus for each in rounds.jobs],
            "requested_plan": [each.job.plan for each in rounds.jobs],
            "is_sla": [int(each.job.guaranteed) for each in rounds.jobs],
            "steps": [each.steps for each in rounds.jobs],
            "first_alloc_seen_s": [each.first_placed for each in rounds.jobs],
            "completion_s": [each.completion for each in rounds.jobs],
            "jct_s": [(each.completion or 0.0) - each.job.submission for each in rounds.jobs],
            "last_seen_restarts": [each.changes for each in rounds.jobs],
            "n_placements": [len(each.history) for each in rounds.jobs],
            "paused_s": [each.paused_seconds for each in rounds.jobs],
            "gpu_s": [each.gpu_seconds for each in rounds.jobs],
        }
    )
    utilisation = pd.DataFrame(
        {
            "time_s": rounds.times,
            "gpus_allocated": rounds.allocated,
            "gpus_occupied": rounds.occupied,
            "pending_jobs": rounds.pending,
            "running_jobs": rounds.running,
        }
    )
    placements = pd.DataFrame(
        [
            (each.job.name, at, "".join(map(str, placement)), sum(placement), plan)
            for each in rounds.jobs
            for at, placement, plan in each.history
        ],
        columns=["name", "time_s", "placement", "gpus", "plan"],
    )
    notes = _note_overcommitment(rounds.cluster, utilisation)
    summary = _summarise_jobs(workload, jobs, utilisation)
    return ReplayResult(rounds.policy.name, rounds.cluster, jobs, utilisation, placements, summary, notes)


def _note_overcommitment(cluster: Cluster, utilisation: pd.DataFrame) -> tuple[str, ...]:
    """Return a note if jobs run on more GPUs than the cluster has, which policies that keep jobs running allow."""
    over = utilisation["gpus_occupied"] > cluster.gpus
    if not over.any():
        return ()
    most, mean = int(utilisation["gpus_occupied"].max()), float(utilisation["gpus_occupied"].mean())
    return (
        f"In {100 * over.mean():.0f} % of all rounds jobs run on more than the {cluster.gpus:,} GPUs that there are, "
        f"on {most:,} at most and {mean:.1f} on average: who loses its GPUs goes on running where it was, as in the "
        "published simulator, so these times count GPUs twice.",
    )


def _summarise_jobs(workload: Workload, jobs: pd.DataFrame, utilisation: pd.DataFrame) -> dict[str, Any]:
    times = sorted(jobs["jct_s"])
    until = utilisation[utilisation["time_s"] <= workload.last_submission]

    def ranked(share: float) -> float:
        return float(times[min(math.floor(share * len(times)), len(times) - 1)])

    return {
        "jobs": len(jobs),
        "completed": len(jobs),
        "avg_jct_s": float(jobs["jct_s"].mean()),
        "median_jct_s": float(jobs["jct_s"].median()),
        "p90_jct_s": ranked(0.9),
        "p99_jct_s": ranked(0.99),
        "max_jct_s": float(times[-1]),
        "makespan_s": float(utilisation["time_s"].iloc[-1]),
        "mean_gpus_used": float(utilisation["gpus_allocated"].mean()),
        "mean_gpus_used_until_last_submit": float(until["gpus_allocated"].mean()) if len(until) else 0.0,
        "mean_pending": float(utilisation["pending_jobs"].mean()),
        "max_pending": int(utilisation["pending_jobs"].max()),
        "avg_restarts": float(jobs["last_seen_restarts"].mean()),
        "max_restarts": int(jobs["last_seen_restarts"].max()),
        "total_restarts": int(jobs["last_seen_restarts"].sum()),
        "jobs_restarted": int((jobs["last_seen_restarts"] > 0).sum()),
        "avg_jct_by_app_s": _mean_completion_by(jobs, "application"),
        "avg_jct_by_is_sla_s": _mean_completion_by(jobs, "is_sla"),
    }


def _mean_completion_by(jobs: pd.DataFrame, by: str) -> dict[str, float]:
    return {str(key): float(value) for key, value in jobs.groupby(by)["jct_s"].mean().items()}
