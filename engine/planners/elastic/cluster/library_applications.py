"""Models of the library as schedulers see them: the proven optimum at every size, with nothing fitted."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from engine.planners.contract import Cancel, PlanError, Progress, never, unheard
from engine.planners.elastic.cluster.applications import Application, applications
from engine.planners.elastic.cluster.cluster import Cluster
from engine.planners.elastic.cluster.speeds import MeasuredRun, MeasuredSpeeds, rotated
from engine.planners.elastic.cluster.workload import Workload
from engine.planners.elastic.library_models import model_curve
from engine.planners.elastic.placements import gpus_on_nodes
from hardware import SystemLike
from models import Model, ModelLike

__all__ = ["MOST_MODELS", "asked_models", "library_applications", "model_application"]

MOST_MODELS: Final = 32
"""Most models of the library in a workload: each is planned for every allocation. Source: stated by us."""
NAME: Final = re.compile(r"(.{1,160})\*(\d{1,7})")


def asked_models(workload: Workload, load: Callable[[str], Model]) -> dict[str, tuple[Model, int]]:
    """Returns the models of the library that a workload's jobs name with their batch, such as llama-3-8B*64.

    Args:
        workload: with its jobs.
        load: gives a model by its name.

    Raises as `load` does, and `engine.planners.contract.PlanError` for too many.
    """
    found: dict[str, tuple[Model, int]] = {}
    for name in dict.fromkeys(job.application for job in workload.jobs):
        matched = NAME.fullmatch(name)
        if matched is not None and name not in applications():
            found[name] = load(matched[1]), int(matched[2])
    if len(found) > MOST_MODELS:
        raise PlanError(f"The workload has {len(found):,} models of the library; at most {MOST_MODELS} are planned.")
    return found


def library_applications(
    asked: Mapping[str, tuple[ModelLike, int]],
    system: SystemLike,
    cluster: Cluster,
    *,
    progress: Progress = unheard,
    cancel: Cancel = never,
) -> dict[str, Application]:
    """Returns the scheduler's view of models of the library, by name.

    Args:
        asked: each model with its global batch, by its name in the jobs.
        system: whose GPUs the cluster has.
        cluster: that is scheduled.
        progress: called with the share done (0 to 1) and the current step.
        cancel: True stops the search.

    Raises as `engine.planners.elastic.model_curve` does, and `engine.planners.contract.PlanError` for a model that runs
    nowhere on the cluster.
    """
    found = {}
    for at, (name, (model, batch)) in enumerate(asked.items()):

        def told(share: float, doing: str, at: int = at) -> None:
            progress((at + share) / len(asked), doing)

        found[name] = model_application(name, model, system, batch=batch, cluster=cluster, progress=told, cancel=cancel)
    return found


def model_application(
    name: str,
    model: ModelLike,
    system: SystemLike,
    *,
    batch: int,
    cluster: Cluster,
    progress: Progress = unheard,
    cancel: Cancel = never,
) -> Application:
    """Returns the scheduler's view of a model of the library: its best iteration on 1, 2, 4, ... GPUs of a node and on
    1, 2, 4, ... and all nodes.

    Args:
        name: in the jobs.
        model, system, batch: see `engine.planners.elastic.model_curve`.
        cluster: that is scheduled, whose nodes have no more GPUs than the system joins.
        progress: called with the share done (0 to 1) and the current step.
        cancel: True stops the search.

    Raises as `library_applications` does.
    """
    node = cluster.gpus_per_node
    inside = _powers_of_two(node)
    placements = [(gpus,) for gpus in inside] + [
        (node,) * nodes for nodes in _powers_of_two(cluster.nodes) if nodes > 1
    ]
    curve = model_curve(model, system, batch=batch, placements=placements, progress=progress, cancel=cancel)
    runs = curve[curve["raw_best"].notna()]
    if not len(runs):
        raise PlanError(f"Nothing of {name} runs on any of the cluster's sizes with {batch:,} samples.")
    speeds = MeasuredSpeeds(
        tuple(
            MeasuredRun(str(row["raw_plan"]), rotated(gpus_on_nodes(row["placement"])), float(row["iteration_s"]))
            for row in runs.to_dict("records")
        )
    )
    return Application(name, float(batch), float(runs["raw_best"].max()), speeds)


def _powers_of_two(most: int) -> Iterable[int]:
    """1, 2, 4, ... and the largest."""
    return sorted({2**power for power in range(most.bit_length()) if 2**power <= most} | {most})
