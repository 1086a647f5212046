"""Replay of workloads on a cluster: jobs that arrive, schedulers that give them GPUs, and their completion times."""

from engine.planners.elastic.cluster.cluster import Cluster
from engine.planners.elastic.cluster.comparison import compared, policy_titles, summaries
from engine.planners.elastic.cluster.library_applications import asked_models, library_applications
from engine.planners.elastic.cluster.replay import PAUSE, ReplayResult, replay
from engine.planners.elastic.cluster.workload import Workload, WorkloadJob, workload_from, workload_names

__all__ = [
    "PAUSE",
    "Cluster",
    "ReplayResult",
    "Workload",
    "WorkloadJob",
    "asked_models",
    "compared",
    "library_applications",
    "policy_titles",
    "replay",
    "summaries",
    "workload_from",
    "workload_names",
]
