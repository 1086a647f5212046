"""Several policies on one workload and one cluster, side by side."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import pandas as pd

from engine.planners.contract import Cancel, PlanError, Progress, never, unheard
from engine.planners.elastic.cluster.applications import Application
from engine.planners.elastic.cluster.cluster import ClusterSource, cluster_of
from engine.planners.elastic.cluster.policies import POLICIES, policy_of
from engine.planners.elastic.cluster.replay import INTERVAL, PAUSE, ReplayResult, replay
from engine.planners.elastic.cluster.workload import WorkloadSource, workload_from

__all__ = ["compared", "policy_titles", "summaries"]

MEANS: Final = (
    "avg_jct_s",
    "median_jct_s",
    "p90_jct_s",
    "makespan_s",
    "mean_gpus_used",
    "mean_pending",
    "total_restarts",
)


def policy_titles() -> dict[str, str]:
    """Returns the title of every policy, by its name, in the listed order."""
    cluster = cluster_of("1x1")
    return {name: policy_of(name, cluster, PAUSE).title for name in POLICIES}


def compared(
    workload: WorkloadSource,
    cluster: ClusterSource = "8x8",
    policies: Iterable[str] | None = None,
    *,
    pause: float = PAUSE,
    interval: float = INTERVAL,
    models: Mapping[str, Application] | None = None,
    progress: Progress = unheard,
    cancel: Cancel = never,
) -> dict[str, ReplayResult]:
    """Returns the replay of a workload under each of several policies, by the name of the policy.

    Args:
        workload, cluster, pause, interval, models: see `engine.planners.elastic.replay`.
        policies: their names; all registered ones if None.
        progress: called with the share done (0 to 1) and the current step.
        cancel: True stops the replays.

    Raises as `engine.planners.elastic.replay` does.
    """
    made, on = workload_from(workload), cluster_of(cluster)
    asked = list(dict.fromkeys(POLICIES if policies is None else policies))
    if not asked:
        raise PlanError(f"No policy is given; choose among {', '.join(POLICIES)}.")
    chosen = [policy_of(name, on, PAUSE).name for name in asked]
    found: dict[str, ReplayResult] = {}
    for at, name in enumerate(dict.fromkeys(chosen)):

        def told(share: float, doing: str, at: int = at) -> None:
            progress((at + share) / len(asked), doing)

        found[name] = replay(
            made, on, name, pause=pause, interval=interval, models=models, progress=told, cancel=cancel
        )
    return found


def summaries(results: Mapping[str, ReplayResult]) -> pd.DataFrame:
    """Returns one row per policy: `policy`, mean, median and 90 % completion time, makespan [s], mean GPUs in use, mean
    waiting jobs, restarts, and mean completion times of guaranteed and best-effort jobs [s], NaN without such jobs.

    Args:
        results: by policy.
    """
    rows = []
    for name, result in results.items():
        by_class = result.summary["avg_jct_by_is_sla_s"]
        rows.append(
            {
                "policy": name,
                **{key: result.summary[key] for key in MEANS},
                "guaranteed_avg_jct_s": by_class.get("1", float("nan")),
                "best_effort_avg_jct_s": by_class.get("0", float("nan")),
            }
        )
    return pd.DataFrame(rows)
