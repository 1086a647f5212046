"""Plans over many batches or many numbers of devices, with the baselines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import pandas as pd

from engine.planners.contract import Cancel, PlanCancelledError, PlanError, Progress, never, unheard
from engine.planners.layerwise.cluster import MachineCluster
from engine.planners.layerwise.planner import planned
from engine.planners.layerwise.problem import LayerwiseProblem, checked
from engine.planners.layerwise.profiles.states import states_of
from engine.planners.layerwise.result import Candidate, LayerwisePlan

__all__ = [
    "BATCHES",
    "BATCH_COLUMNS",
    "DEVICE_COLUMNS",
    "batch_rows",
    "batch_sweep",
    "device_rows",
    "first_devices",
    "scalability",
]

OF_ALL: Final = ("data_parallel", "data_parallel_p3", "data_parallel_overlapped", "best_hybrid")
OF_DEVICES: Final = ("straight", "several_stages")
BATCH_COLUMNS: Final = ("global_batch", *OF_ALL, "stages", "search", "reason")
DEVICE_COLUMNS: Final = ("devices", *OF_ALL, *OF_DEVICES, "stages", "search", "reason")
"""Columns of the tables."""

BATCHES: Final = (32, *range(64, 4097, 64))
"""The batches of the authors' figures [samples]."""


def batch_sweep(
    problem: LayerwiseProblem,
    batches: Sequence[int] = BATCHES,
    progress: Progress = unheard,
    cancel: Cancel = never,
) -> pd.DataFrame:
    """Plans the problem at many batches: one row per batch with the speedups of the baselines, of the best plan and its
    stages.

    The graph is cut once for all of them. Batches at which nothing can run have a reason instead of a plan.

    Args:
        problem: profile, cluster, batch and choices.
        batches: samples of a step, one plan for each.
        progress: called with the share done (0 to 1) and the current step.
        cancel: called often; True stops the search.

    Raises `engine.planners.contract.PlanError` where the problem itself is invalid.
    """
    return _build_sweep_table(BATCH_COLUMNS, list(batch_rows(problem, batches, progress, cancel)))


def batch_rows(
    problem: LayerwiseProblem,
    batches: Sequence[int] = BATCHES,
    progress: Progress = unheard,
    cancel: Cancel = never,
) -> Iterator[dict[str, Any]]:
    """Yields the rows of `batch_sweep` as they are found, without the columns that they leave empty.

    Args:
        problem, batches, progress, cancel: see `batch_sweep`.

    Raises as `batch_sweep` does.
    """
    own = states_of(problem.profile)
    for number, batch in enumerate(batches):
        if cancel():
            raise PlanCancelledError
        progress(number / len(batches), f"batch {batch}")
        asked = replace(problem, global_batch=batch)
        if batch < problem.microbatch:
            yield {"global_batch": batch, "reason": f"a microbatch of {problem.microbatch} is larger"}
            continue
        checked(asked)
        try:
            found = planned(asked, own, cancel=cancel)
        except PlanError as error:
            yield {"global_batch": batch, "reason": str(error)}
            continue
        yield {"global_batch": batch, **_plan_row(found)}


def scalability(
    problem: LayerwiseProblem,
    sizes: Sequence[int] | None = None,
    progress: Progress = unheard,
    cancel: Cancel = never,
) -> pd.DataFrame:
    """Plans the problem on the first devices of its cluster: one row per number of devices, with the best straight
    pipeline, the best plan of several stages, and the best of all.

    Args:
        problem: profile, cluster, batch and choices.
        sizes: numbers of devices, one plan for each that the cluster has; every one from 2 where None.
        progress: called with the share done (0 to 1) and the current step.
        cancel: called often; True stops the search.

    Raises `engine.planners.contract.PlanCancelledError` where `cancel` returns True, and PlanError as `checked` does.
    """
    return _build_sweep_table(DEVICE_COLUMNS, list(device_rows(problem, sizes, progress, cancel)))


def device_rows(
    problem: LayerwiseProblem,
    sizes: Sequence[int] | None = None,
    progress: Progress = unheard,
    cancel: Cancel = never,
) -> Iterator[dict[str, Any]]:
    """Yields the rows of `scalability` as they are found, without the columns that they leave empty.

    Args:
        problem, sizes, progress, cancel: see `scalability`.

    Raises as `scalability` does.
    """
    own = states_of(checked(problem).profile)
    asked = [size for size in (sizes or range(2, problem.cluster.size + 1)) if 1 <= size <= problem.cluster.size]
    for number, size in enumerate(asked):
        if cancel():
            raise PlanCancelledError
        progress(number / len(asked), f"{size} devices")
        try:
            found = planned(replace(problem, cluster=first_devices(problem.cluster, size)), own, cancel=cancel)
        except PlanError as error:
            yield {"devices": size, "reason": str(error)}
            continue
        several = [each for each in found.candidates if each.value and len(each.stages) > 1]
        alone = [each for each in several if all(stage.units == 1 for stage in each.stages)]
        yield {
            "devices": size,
            **_plan_row(found),
            "straight": max((each.value or 0.0 for each in alone), default=None),
            "several_stages": max((each.value or 0.0 for each in several), default=None),
        }


def first_devices(cluster: MachineCluster, size: int) -> MachineCluster:
    """Returns the first devices of a cluster, in their machines.

    Args:
        cluster: machines with their devices and networks.
        size: how many devices are left.
    """
    machines, left = [], size
    for machine in cluster.machines:
        if left > 0:
            machines.append(replace(machine, devices=min(machine.devices, left)))
            left -= machine.devices
    return replace(cluster, machines=tuple(machines))


def _plan_row(found: LayerwisePlan) -> dict[str, Any]:
    baselines = found.baselines
    assert baselines is not None
    return {
        "data_parallel": baselines.plain,
        "data_parallel_p3": baselines.prioritised,
        "data_parallel_overlapped": baselines.overlapped,
        "best_hybrid": found.speedup,
        "stages": stages_text(found.candidates[0]),
        "search": found.candidates[0].name,
        "reason": "",
    }


def stages_text(candidate: Candidate) -> str:
    """Returns stages in a few characters: layers and devices of each.

    Args:
        candidate: stages that a search found.
    """
    return " | ".join(f"{stage.start}-{stage.stop} x{len(stage.devices)}" for stage in candidate.stages)


def _build_sweep_table(columns: Sequence[str], rows: list[dict[str, Any]]) -> pd.DataFrame:
    further = [name for name in OF_DEVICES if not any(name in row for row in rows)]
    return pd.DataFrame(rows, columns=[name for name in columns if name not in further])
