"""Curves of jobs and services on GPUs of a pool: rates of proven or recommended executions, loads of deployments."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

import numpy as np

from engine.economics import RunInputs, parameter_count, training_run
from engine.exploration.run import ExplorationCancelled
from engine.fleet.problem import JobSize, ReplicaChoice
from engine.planners.elastic.resource_curve import kept_smaller
from engine.post_training.search import ALL_SPLITS, PostTrainingGoal, PostTrainingPlan, find_post_training
from engine.recommendation.training_plans import coarse_sizes
from engine.scenarios.scenario import Scenario
from engine.serving import ServiceSizing
from engine.serving.days import best_by_size
from engine.space.space import SpaceError

__all__ = ["JobCurve", "ReinforcementSize", "choose_replica", "curve_of_job", "curve_of_reinforcement", "step_tokens"]

T = TypeVar("T")
PARTS: Final = 16
"""Parts of a pool whose multiples are tried as sizes. Source: stated by us."""


@dataclass(frozen=True, slots=True)
class JobCurve:
    """Sizes at which a job runs on a pool, and why it does not at others."""

    sizes: tuple[JobSize, ...]
    refused: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class ReinforcementSize:
    """Step of reinforcement learning on a number of GPUs: mode, the GPUs that train and generate, and its time [s]."""

    mode: str
    gpus_train: int
    gpus_rollout: int
    step_s: float
    execution: Mapping[str, Any]
    """Execution of the GPUs that train."""


def curve_of_job(
    pool: int,
    gpus: int,
    scenario_at: Callable[[int], Scenario],
    search: Callable[[Scenario], Mapping[str, Any] | None],
    inputs: RunInputs,
    tell: Callable[[float, str], None] = lambda share, doing: None,
    cancel: Callable[[], bool] = lambda: False,
    further: Sequence[int] = (),
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
        further: sizes besides, for changes of the pool.

    Raises `engine.ExplorationCancelled`.
    """
    sizes: list[JobSize] = []
    refused: dict[int, str] = {}
    node = scenario_at(gpus).system.node_size
    tried = sorted({*_list_sizes(gpus, node), *further})
    if not tried:
        refused[gpus] = _describe_remainder(gpus, node)
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
        sizes.append(JobSize(pool, size, inputs.tokens / run.wall_s, execution))
    return JobCurve(tuple(_keep_faster(sizes, [each.tokens_per_s for each in sizes])), refused)


def _keep_faster(sizes: Sequence[T], rates: Sequence[float]) -> list[T]:
    """Return the sizes that are faster than all smaller ones: Elastic's rule for curves, without its least gain."""
    kept = kept_smaller(np.asarray(rates, np.float64), 0.0)
    return [size for place, size in enumerate(sizes) if kept[place] == place]


def curve_of_reinforcement(
    pool: int,
    gpus: int,
    goal: PostTrainingGoal,
    inputs: RunInputs,
    is_elastic: bool,
    tell: Callable[[float, str], None] = lambda share, doing: None,
    cancel: Callable[[], bool] = lambda: False,
    further: Sequence[int] = (),
) -> JobCurve:
    """Return the rates of reinforcement learning on whole nodes of a pool [tokens of samples/s].

    At each size the fastest mode and split counts, if it is faster than every smaller size. An elastic job also has
    the other splits with the training side of one of these: its rollout grows and shrinks without a restart. Rates
    include failures of the GPUs that train; one of the rollout takes away a replica for a while, which is left out.

    Args:
        pool: position of the pool.
        gpus: of the pool that may be used.
        goal: of the search, on any number of GPUs.
        inputs: of the run, with the tokens of all samples.
        is_elastic: whether the job may change its size.
        tell: called with the share that is done and the current step.
        cancel: returns whether to stop.
        further: sizes besides, for changes of the pool.

    Raises `engine.ExplorationCancelled`, and the errors of making a space.
    """
    refused: dict[int, str] = {}
    tried = sorted({*_list_sizes(gpus, goal.system.node_size), *further})
    if not tried:
        refused[gpus] = _describe_remainder(gpus, goal.system.node_size)
    plans = {}
    for place, size in enumerate(tried):
        tell(place / len(tried), f"{size:,} GPUs")
        plans[size] = find_post_training(
            replace(goal, num_procs=size),
            cancel=cancel,
            with_change=False,
            evaluate_all=ALL_SPLITS if is_elastic else 0,
        )
    best: list[tuple[int, ReinforcementSize]] = []
    for size, plan in plans.items():
        chosen = plan.chosen
        if chosen is None:
            refused[size] = " ".join(dict.fromkeys(plan.reasons.values()))
        else:
            step, gpus_train, gpus_rollout = chosen.step, chosen.gpus_train, chosen.gpus_rollout
            row = ReinforcementSize(step.mode, gpus_train, gpus_rollout, step.seconds, chosen.execution)
            best.append((size, row))
    best = _keep_faster(best, [1.0 / each.step_s for _, each in best])
    sides: dict[tuple[str, int], ReinforcementSize] = {}
    if is_elastic:
        sides = {_training_side(each): each for _, each in best if each.mode != "colocated"}
    shown = sorted([*best, *_other_splits(plans, sides)], key=lambda pair: (pair[0], pair[1].step_s))
    groups = {side: number for number, side in enumerate(sides)}
    return JobCurve(
        tuple(
            JobSize(pool, size, _reinforcement_rate(goal, each, inputs), each, groups.get(_training_side(each)))
            for size, each in shown
        ),
        refused,
    )


def _training_side(size: ReinforcementSize) -> tuple[str, int]:
    return size.mode, size.gpus_train


def _other_splits(
    plans: Mapping[int, PostTrainingPlan],
    sides: Mapping[tuple[str, int], ReinforcementSize],
) -> list[tuple[int, ReinforcementSize]]:
    """Return the splits of other sizes with the same training side, each faster than the smaller ones of its side."""
    found: list[tuple[int, ReinforcementSize]] = []
    for side, known in sides.items():
        fastest = math.inf
        for size, plan in plans.items():
            for point in plan.curve:
                if (point.mode, point.gpus_train) != side or point.seconds is None or point.seconds >= fastest:
                    continue
                fastest = point.seconds
                chosen = plan.chosen
                if chosen is None or (chosen.step.mode, chosen.gpus_train) != side:
                    row = replace(known, gpus_rollout=point.gpus_rollout, step_s=point.seconds)
                    found.append((size, row))
    return found


def _reinforcement_rate(goal: PostTrainingGoal, size: ReinforcementSize, inputs: RunInputs) -> float:
    """Return the tokens of samples per second, failures of the GPUs that train included."""
    rate = step_tokens(goal) / size.step_s
    run = training_run(inputs, tokens_per_s=rate, num_procs=size.gpus_train, parameters=goal.parameters)
    return inputs.tokens / run.wall_s


def step_tokens(goal: PostTrainingGoal) -> float:
    """Return the tokens of the samples of a step, prompts and responses.

    Args:
        goal: of the search.
    """
    return goal.work.samples * (goal.work.prompt + goal.work.law.mean)


def _describe_remainder(gpus: int, node: int) -> str:
    return f"{gpus:,} {'GPU is' if gpus == 1 else 'GPUs are'} less than a node of {node:,}."


def _list_sizes(gpus: int, node: int) -> list[int]:
    """Return the sizes that are tried on so many GPUs: 1, 2, 3, 4, 6, 8, 12, ... nodes, and sixteenths of all."""
    largest = gpus // node * node
    part = max(largest // node // PARTS, 1) * node
    return sorted({*coarse_sizes(node, node, largest), *range(part, largest + 1, part), largest} - {0})


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
