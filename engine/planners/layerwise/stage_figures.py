"""The figures of each stage of a plan: times of a microbatch, all-reduce, output and memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from engine.planners.contract import PlanFigure
from engine.planners.layerwise.memory import in_flight, stage_memory
from engine.planners.layerwise.problem import LayerwiseProblem
from engine.planners.layerwise.profiles.states import States
from engine.planners.layerwise.result import LayerStage

__all__ = ["stage_figures"]


def stage_figures(
    states: States, problem: LayerwiseProblem, stages: Sequence[LayerStage], count: int
) -> tuple[LayerStage, ...]:
    """Returns the stages with their figures, by half-open ranges of states.

    Args:
        states: at the batch of a step.
        problem: profile, cluster, batch and choices.
        stages: of the plan, from the first on, of which ranges and devices are read.
        count: microbatches of one pipeline.
    """
    return tuple(
        replace(stage, figures=_figures_of_stage(states, problem, stages, number, max(count, 1)))
        for number, stage in enumerate(stages)
    )


def _figures_of_stage(
    states: States, problem: LayerwiseProblem, stages: Sequence[LayerStage], number: int, count: int
) -> tuple[PlanFigure, ...]:
    stage, cluster = stages[number], problem.cluster
    group = stage.devices
    # States hold the batch of a step: a replica computes 1 / (microbatches x replicas) of it at a time.
    share = 1 / (count * len(group))
    # Replicas wait for each other, so the slowest kind of processor sets the pace.
    forward, both = max((states.on(kind) for kind in sorted(cluster.kinds(group))), key=lambda each: float(each[1][-1]))
    filled = stage.start < stage.stop
    last = stage.stop - 1
    ahead = states.span(forward, stage.start, last) * share if filled else 0.0
    back = states.span(both, stage.start, last) * share - ahead if filled else 0.0
    held = states.span(states.parameters, stage.start, last) if filled else 0.0
    kept_bytes = states.span(states.activation, stage.start, last) * share if filled else 0.0
    entering = float(states.out[stage.start - 1]) * share if stage.start else 0.0
    kept = int(in_flight(len(stages) - number, count, problem.policy))
    needed = stage_memory(
        np.array(held), np.array(kept_bytes), np.array(entering), kept, problem.optimizer, recompute=stage.recompute
    )
    # What is handed on is counted by microbatch, over all replicas, not by replica.
    cut = float(states.out[last]) / count if filled and number + 1 < len(stages) else 0.0
    moved = cut * cluster.move_rate(group, stages[number + 1].devices) if cut else 0.0
    return (
        PlanFigure("forward_time", ahead, "s", "Forward pass of a microbatch"),
        PlanFigure("backward_time", back + (ahead if stage.recompute else 0.0), "s", "Backward pass of a microbatch"),
        PlanFigure("reduce_time", cluster.reduce_time(group, held), "s", "All-reduce of a step"),
        PlanFigure("cut_bytes", cut, "bytes", "Handed on per microbatch"),
        PlanFigure("transfer_time", moved, "s", "Transfer of a microbatch"),
        PlanFigure("parameters", held, "bytes", "Parameters"),
        PlanFigure("kept_microbatches", kept, "", "Microbatches in flight"),
        PlanFigure("memory", float(needed), "bytes", "Memory of a device"),
        PlanFigure("memory_room", cluster.memory(group), "bytes", "Memory that a device has"),
    )
