"""Curves of jobs and services on GPUs of a pool: rates of proven or recommended executions, loads of deployments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from engine.economics import RunInputs, parameter_count, training_run
from engine.exploration.run import ExplorationCancelled
from engine.fleet.problem import JobSize, ReplicaChoice
from engine.recommendation.training_plans import coarse_sizes
from engine.scenarios.scenario import Scenario
from engine.serving import ServiceSizing
from engine.serving.days import best_by_size
from engine.space.space import SpaceError

__all__ = ["JobCurve", "choose_replica", "curve_of_job"]

PARTS: Final = 16
"""Parts of a pool whose multiples are tried as sizes. Source: stated by us."""


@dataclass(frozen=True, slots=True)
class JobCurve:
    """Sizes at which a job runs on a pool, and why it does not at others."""

    sizes: tuple[JobSize, ...]
    refused: Mapping[int, str]


def curve_of_job(
    pool: int,
    gpus: int,
    scenario_at: Callable[[int], Scenario],
    search: Callable[[Scenario], Mapping[str, Any] | None],
    inputs: RunInputs,
    tell: Callable[[float, str], None] = lambda share, doing: None,
    cancel: Callable[[], bool] = lambda: False,
) -> JobCurve:
    """Return the rates of a job on whole nodes of a pool: 1, 2, 3, 4, 6, 8, 12, ... of them, and sixteenths of all.

    A size counts only if it is faster than every smaller one. Rates include failures, checkpoints and restarts, as
    `engine.economics.training_run` has them.

    Args:
        pool: position of the pool.
        gpus: of the pool that may be used.
        scenario_at: returns the scenario on so many GPUs.
        search: returns the execution to run of a scenario; None if none is allowed or runs.
        inputs: of the training run, with its tokens.
        tell: called with the share that is done and the current step.
        cancel: returns whether to stop.

    Raises `engine.ExplorationCancelled`.
    """
    sizes: list[JobSize] = []
    refused: dict[int, str] = {}
    node = scenario_at(gpus).system.node_size
    largest = gpus // node * node
    part = max(largest // node // PARTS, 1) * node
    tried = sorted({*coarse_sizes(node, node, largest), *range(part, largest + 1, part), largest} - {0})
    if not tried:
        refused[gpus] = f"{gpus:,} GPUs are less than a node of {node:,}."
    for place, size in enumerate(tried):
        if cancel():
            raise ExplorationCancelled("The plan was cancelled.")
        tell(place / len(tried), f"{size:,} GPUs")
        try:
            scenario = scenario_at(size)
            execution = search(scenario)
        except SpaceError as problem:
            refused[size] = str(problem)
            continue
        if execution is None:
            refused[size] = "No execution fits with the memory that is kept free."
            continue
        plain = float(execution["sample_rate"]) * scenario.model.seq_size
        run = training_run(
            inputs, tokens_per_s=plain, num_procs=size, parameters=float(parameter_count(scenario.model))
        )
        rate = inputs.tokens / run.wall_s
        if not sizes or rate > sizes[-1].tokens_per_s:
            sizes.append(JobSize(pool, size, rate, execution))
    return JobCurve(tuple(sizes), refused)


def choose_replica(pool: int, gpus: int, sizing: ServiceSizing) -> tuple[ReplicaChoice, ...]:
    """Return the deployment of a service on a pool, if any holds the limits: of all sizes the one with the highest load
    per GPU, of equal ones the smallest.

    Args:
        pool: position of the pool.
        gpus: of the pool that may be used.
        sizing: services that hold the limits on the pool's system.
    """
    found = [ReplicaChoice(pool, size, load, row) for size, load, row in best_by_size(sizing) if size <= gpus]
    return tuple(sorted(found, key=lambda each: (-each.capacity / each.gpus, each.gpus))[:1])
