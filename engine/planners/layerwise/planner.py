"""Planner: stages with devices and figures for a profile, batch and cluster, with the rejected candidates."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from engine.columns.percentages import format_percent
from engine.planners.contract import Cancel, Placement, PlanError, PlanFigure, Progress, never, unheard
from engine.planners.layerwise.baselines import DataParallel, data_parallel, largest_batch
from engine.planners.layerwise.cluster import MachineCluster, cluster_of
from engine.planners.layerwise.paper import PaperSearch, PlannedStage
from engine.planners.layerwise.problem import LayerwiseProblem, checked
from engine.planners.layerwise.profiles.checks import suspicions
from engine.planners.layerwise.profiles.profile import LayerProfile
from engine.planners.layerwise.profiles.reading import profile_from
from engine.planners.layerwise.profiles.states import States, states_of
from engine.planners.layerwise.quick_searches import ReleasedPlan, list_searches
from engine.planners.layerwise.result import Candidate, LayerStage, LayerwisePlan
from engine.planners.layerwise.stage_figures import stage_figures
from engine.planners.layerwise.value import StageGroup, microbatches, step_time

__all__ = ["VERSION", "plan", "planned", "solve"]

VERSION: Final = "1"
LISTED: Final = 40
"""Candidates of the paper's search that are listed at most."""


def plan(
    profile: LayerProfile | str | os.PathLike[str],
    *,
    profile_batch: float | None = None,
    global_batch: int,
    machines: MachineCluster | Sequence[int],
    microbatch: int = 1,
    mode: str = "released",
    progress: Progress = unheard,
    cancel: Cancel = never,
    **choices: Any,
) -> LayerwisePlan:
    """Finds stages and devices for the layers of a profile.

    Args:
        profile: a path, a text or a parsed profile.
        profile_batch: the samples at which it was taken; where its file says so it can be left out.
        global_batch: samples of a step.
        machines: a cluster, or where the numbers of each machine's devices end: `[8, 16]`.
        microbatch: samples of a microbatch of one pipeline.
        mode: `released`, the searches of HPGO 0.9.2, or `paper`, the paper's latency objective.
        progress, cancel: see `engine.planners.contract`.
        choices: further fields of `engine.planners.layerwise.problem.LayerwiseProblem`.

    Raises:
        engine.planners.contract.PlanError: something of it is not understood, or no plan can run.
        engine.planners.contract.PlanCancelledError: `cancel` said so.
    """
    read = profile_from(profile)
    batch = read.batch if profile_batch is None else profile_batch
    if batch is None:
        raise PlanError("The profile does not say at which batch it was taken; give profile_batch, in samples.")
    problem = LayerwiseProblem(read, batch, global_batch, cluster_of(machines), microbatch, mode, **choices)
    return solve(problem, progress, cancel)


def solve(problem: LayerwiseProblem, progress: Progress = unheard, cancel: Cancel = never) -> LayerwisePlan:
    """Returns the best plan of a problem.

    Args:
        problem: profile, cluster, batch and choices.
        progress: called with the share done (0 to 1) and the current step.
        cancel: called often; True stops the search.

    Raises as `plan` does.
    """
    checked(problem)
    progress(0.0, "Cutting the graph")
    return planned(problem, states_of(problem.profile), progress, cancel)


def planned(
    problem: LayerwiseProblem, own: States, progress: Progress = unheard, cancel: Cancel = never
) -> LayerwisePlan:
    """Solves a checked problem with the states of its profile at its own batch, for callers that plan it often.

    Args:
        problem: profile, cluster, batch and choices.
        own: states of the problem's profile, at the profile's own batch.
        progress: called with the share done (0 to 1) and the current step.
        cancel: called often; True stops the search.

    Raises as `plan` does, except for faults that `checked` rules out.
    """
    states = own.at(problem.global_batch, problem.profile_batch)
    search = None
    if problem.mode == "released":
        candidates = _released_candidates(problem, states, progress, cancel)
    else:
        search = PaperSearch.of(problem, states)
        candidates = _by_latency(problem, states, search, progress, cancel)
    if candidates[0].value is None:
        raise PlanError(f"No plan can run: {candidates[0].reason}.")
    return _build_plan(problem, states, candidates, search)


def _released_candidates(
    problem: LayerwiseProblem, states: States, progress: Progress, cancel: Cancel
) -> list[Candidate]:
    """Returns all candidates of the released searches, the best first, infeasible ones last."""
    cluster, batch, size = problem.cluster, problem.global_batch, problem.microbatch
    found: list[Candidate] = []
    asked = list(list_searches(states, cluster, batch, size, cancel))
    for number, (name, search) in enumerate(asked):
        progress(number / len(asked), name)
        found.extend(_evaluate_candidate(problem, states, each) for each in search())
    if cluster.size > len(states):
        told = f"{cluster.size} stages are more than the {len(states)} states that the layers can be cut into"
        found.append(Candidate(f"straight-{cluster.size}", None, told))
    return sorted(found, key=_sort_key)


def _evaluate_candidate(problem: LayerwiseProblem, states: States, found: ReleasedPlan) -> Candidate:
    count = microbatches(problem.global_batch, found.copies, problem.microbatch)
    stages = tuple(_layer_stage(group, len(states)) for group in found.groups)
    if not count:
        told = (
            f"{found.copies} pipelines share {problem.global_batch} samples, less than one microbatch of "
            f"{problem.microbatch} for each"
        )
        return Candidate(found.search, None, told, stages, found.copies)
    step = step_time(states, problem.cluster, found.groups, found.copies, found.block, count)
    return Candidate(found.search, states.total / float(step.total), "", stages, found.copies)


def _by_latency(
    problem: LayerwiseProblem, states: States, search: PaperSearch, progress: Progress, cancel: Cancel
) -> list[Candidate]:
    """Returns the plans of the paper's search, the released plans valued by its objective, and one stage on all
    devices."""
    shapes: dict[str, tuple[tuple[int, int, tuple[int, ...]], ...]] = {
        "one stage": ((0, len(states), tuple(range(problem.cluster.size))),)
    }
    if problem.cluster.uniform:
        for each in _released_candidates(replace(problem, mode="released"), states, unheard, cancel):
            if each.stages and all(stage.start < stage.stop for stage in each.stages):
                shape = tuple((stage.start, stage.stop, stage.devices) for stage in each.stages)
                shapes.setdefault(f"released {each.name}", shape)
    known = {name: search.fitted(shape) for name, shape in shapes.items()}
    found = search.found(list(known.values()), progress, cancel)
    tried = [("paper search", plan) for plan in found[:LISTED]] + list(known.items())
    made: dict[tuple[tuple[int, tuple[int, ...]], ...], Candidate] = {}
    for name, plan in tried:
        key = tuple((stage.stop, stage.devices) for stage in plan)
        if key not in made:
            made[key] = _paper_candidate(states, search, name, plan)
    return sorted(made.values(), key=_sort_key)


def _paper_candidate(states: States, search: PaperSearch, name: str, plan: Sequence[PlannedStage]) -> Candidate:
    stages = tuple(
        LayerStage(each.start, each.stop, Placement(each.devices), (), each.stop, len(each.devices), each.recompute)
        for each in plan
    )
    if search.share is not None and any(search.share % len(each.devices) for each in plan):
        told = f"a microbatch of {search.share} does not divide into whole samples for the devices of every stage"
        return Candidate(name, None, told, stages)
    if not search.fits(plan):
        needs = search.memory(plan)
        worst, need = max(enumerate(needs), key=lambda each: each[1] / search.cluster.memory(plan[each[0]].devices))
        room = search.cluster.memory(plan[worst].devices)
        told = f"stage {worst + 1} needs {need / 1e9:.1f} GB of the {room / 1e9:.1f} GB that its devices have"
        return Candidate(name, None, told, stages)
    return Candidate(name, states.total / search.value(plan).total, "", stages)


def _layer_stage(group: StageGroup, count: int) -> LayerStage:
    return LayerStage(group.start, group.stop(count), Placement(group.devices), (), group.end, group.units)


def _sort_key(candidate: Candidate) -> tuple[Any, ...]:
    """Sort key of candidates: higher speedup first, then fewer stages, earlier cuts, lower devices."""
    value = -1.0 if candidate.value is None else candidate.value
    # Rounding of sums in another order is no difference.
    rounded = float(f"{value:.11e}")
    shape = [(stage.start, stage.end) for stage in candidate.stages]
    return (-rounded, len(candidate.stages), shape, [stage.devices for stage in candidate.stages], candidate.name)


def _build_plan(
    problem: LayerwiseProblem, states: States, candidates: list[Candidate], search: PaperSearch | None
) -> LayerwisePlan:
    """The plan of the first candidate with its figures."""
    best, *others = candidates
    value = best.value or 0.0
    baselines = _compute_baselines(problem, states)
    count = microbatches(problem.global_batch, best.copies, problem.microbatch)
    stages = stage_figures(states, problem, best.stages, count)
    figures = [
        PlanFigure("speedup", value, "", "Speedup over one device"),
        PlanFigure("step_time", states.total / value, "s", "Step time"),
        PlanFigure("sample_rate", problem.global_batch * value / states.total, "samples/s", "Throughput"),
        PlanFigure("microbatches", count, "", "Microbatches of a pipeline"),
    ]
    if search is None:
        groups = [StageGroup(stage.start, stage.end, stage.units, stage.devices) for stage in best.stages]
        # The block is the step minus its other parts.
        block = _largest_block(states, problem, best)
        step = step_time(states, problem.cluster, groups, best.copies, block, count)
        figures += [
            PlanFigure("blocks", float(step.blocks), "s", "Blocks after the first"),
            PlanFigure("fill", float(step.fill), "s", "Fill of the pipeline"),
            PlanFigure("transfers", float(step.transfers), "s", "Transfers between stages"),
            PlanFigure("exposed_reduce", float(step.exposed_reduce), "s", "Exposed all-reduce"),
        ]
    else:
        plan = [PlannedStage(stage.start, stage.stop, stage.devices, stage.recompute) for stage in best.stages]
        phases = search.value(plan)
        figures += [
            PlanFigure("warmup", phases.warmup, "s", "Warm-up up to the pivot"),
            PlanFigure("steady", phases.steady, "s", "Steady phase of the pivot"),
            PlanFigure("ending", phases.ending, "s", "Ending with the all-reduce"),
        ]
    return LayerwisePlan(
        planner="layerwise",
        version=VERSION,
        problem=problem,
        stages=stages,
        figures=tuple(figures),
        objective="speedup",
        alternatives=tuple(_with_reason(each, value) for each in others),
        notes=_collect_notes(problem, states, value, baselines, search),
        candidates=(best, *(_with_reason(each, value) for each in others)),
        copies=best.copies,
        microbatches=count,
        states=states,
        baselines=baselines,
    )


def _largest_block(states: States, problem: LayerwiseProblem, best: Candidate) -> float:
    """The largest block of a released plan for the whole batch, so that its step time is the one of its value [s]."""
    groups = [StageGroup(stage.start, stage.end, stage.units, stage.devices) for stage in best.stages]
    count = microbatches(problem.global_batch, best.copies, problem.microbatch)
    twice = 2.0 if best.name.startswith("straight") else 1.0
    block = 0.0
    for number, group in enumerate(groups):
        block = max(block, states.span(states.time, group.start, group.stop(len(states)) - 1) / len(group.devices))
        if number + 1 < len(groups):
            rate = problem.cluster.move_rate(group.devices, groups[number + 1].devices)
            block = max(block, rate * twice * float(states.out[group.end - 1]))
    return block if count else 0.0


def _with_reason(candidate: Candidate, best: float) -> Candidate:
    """Returns a candidate with the reason why it was not chosen."""
    if candidate.value is None:
        return candidate
    slower = best / candidate.value - 1
    reason = (
        "equal; more stages, or later cuts and devices" if slower < 1e-11 else f"{format_percent(slower)} longer step"
    )
    return replace(candidate, reason=reason)


def _compute_baselines(problem: LayerwiseProblem, states: States) -> DataParallel:
    cluster, per_sample, largest = problem.cluster, problem.per_sample, problem.largest
    if per_sample is None:
        per_sample = float(states.activation[-1]) / problem.global_batch
    if largest is None:
        memory = cluster.memory(range(cluster.size))
        largest = largest_batch(states, memory, problem.optimizer, per_sample)
    return data_parallel(states, cluster, problem.global_batch, largest)


def _collect_notes(
    problem: LayerwiseProblem, states: States, value: float, baselines: DataParallel, search: PaperSearch | None
) -> tuple[str, ...]:
    """Caveats on the figures."""
    notes = list(suspicions(problem.profile, problem.profile_batch))
    if states.linearised:
        number = len(problem.profile.layers)
        notes.append(
            f"Only one order of the {number} layers is cut: their graph has too many frontiers, or parts that nothing "
            "joins."
        )
    if search is not None and search.consecutive:
        notes.append("The cluster has too many ways to place stages; each takes the devices next to the last one's.")
    if search is not None and search.narrowed:
        notes.append(
            f"Of the {len(states)} states the search cuts along one chain, and where the released plans cut: there are "
            "too many for all."
        )
    if problem.cluster.uniform and baselines.best > value:
        notes.append(f"Data parallelism with overlap is better by its own model: a speedup of {baselines.best:.4g}.")
    return tuple(notes)
