"""Best throughput of a model of the library over GPUs: the proven optimum of all its executions at every size."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import numpy as np
import pandas as pd

from engine.executions.execution_names import execution_name
from engine.exploration.proven_optimum import best
from engine.planners.contract import Cancel, PlanCancelledError, PlanError, Progress, check_joined, never, unheard
from engine.planners.elastic.library_models.movement import movement
from engine.planners.elastic.limits import checked_bandwidth, checked_whole
from engine.planners.elastic.placements import (
    MOST_GPUS,
    PlacementLike,
    gpus_on_nodes,
    placement_text,
    placements_filling,
)
from engine.planners.elastic.resource_curve import KEEP_SMALLER, kept_smaller
from engine.planners.elastic.splits.jobs import SplitJob
from hardware import System, SystemLike, limit_nodes, system_of
from models import ModelLike, model_of

__all__ = ["ModelPoint", "model_curve", "model_job", "model_point"]

MOST_SIZES: Final = 1_024
"""Most numbers of GPUs of a curve. Source: stated by us."""

TOLD: Final = (
    ("zero_stage", "ZeRO {}", 0),
    ("microbatch_size", "microbatch {}", None),
    ("pipeline_interleaving", "{} chunks", 1),
    ("activation_recompute", "recompute {}", "none"),
    ("optimizer_offload", "optimizer offloaded", False),
    ("weight_offload", "weights offloaded", False),
    ("activations_offload", "activations offloaded", False),
)
"""Fields of an execution that its description names after its degrees: format, and the value that is left out."""


@dataclass(frozen=True)
class ModelPoint:
    """The best execution of a model on some GPUs.

    `execution` has its fields and statistics, empty where nothing runs; `system` is the one with nodes of this
    placement; `not_measured` is what the execution rests on that was never measured.
    """

    nodes: tuple[int, ...]
    system: System
    execution: Mapping[str, Any]
    not_measured: tuple[str, ...] = ()

    @property
    def gpus(self) -> int:
        """Returns all GPUs."""
        return sum(self.nodes)

    @property
    def throughput(self) -> float:
        """Returns the throughput [samples/s], NaN where nothing runs."""
        return float(self.execution.get("sample_rate", math.nan))

    @property
    def plan(self) -> str:
        """Returns the name of the execution, its degrees; empty where nothing runs."""
        return execution_name(self.execution) if self.execution else ""

    @property
    def chosen(self) -> str:
        """Returns the other choices of the execution in words."""
        words = [
            text.format(self.execution[name])
            for name, text, plain in TOLD
            if name in self.execution and self.execution[name] != plain and not _is_absent(self.execution[name])
        ]
        return ", ".join(words)


def _is_absent(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def model_point(
    model: ModelLike,
    system: SystemLike,
    *,
    placement: PlacementLike,
    batch: int,
    datatype: str = "bfloat16",
    bandwidth: float = 0.0,
    limits: Mapping[str, Any] | None = None,
) -> ModelPoint:
    """Returns the proven optimum of a model on a placement, with an unchanged global batch.

    Args:
        model: name, path or model itself.
        system: name, path or system itself; its innermost network is a node.
        placement: GPUs on each node; unequal nodes count as the smallest, but for a last one that is not full.
        batch: samples of an iteration.
        datatype: of the matrix arithmetic.
        bandwidth: limit between nodes [GB/s] of a GPU, 0 for the system's.
        limits: of the executions that are tried, as for `engine.explore`.

    Raises:
        engine.planners.contract.PlanError: placement, batch or bandwidth are not understood.
        models.ModelFileError, hardware.SystemFileError, engine.LimitError and others: as `engine.best` raises.
    """
    nodes = gpus_on_nodes(placement)
    samples = checked_whole(batch, "Samples of an iteration are", 1, 10**9)
    whole = system_of(system)
    check_joined(whole, sum(nodes))
    placed = _limit_system(whole, nodes, checked_bandwidth(bandwidth))
    found = best(
        model_of(model),
        placed,
        num_procs=sum(nodes),
        max_batch_size=samples,
        datatype=datatype,
        limits={"batch_size": [samples], **(limits or {})},
    )
    never = found.scenario.not_measured(found) if found else ()
    return ModelPoint(nodes, placed, dict(found), never)


def _limit_system(system: System, nodes: tuple[int, ...], bandwidth: float) -> System:
    """Returns the system with nodes of these sizes, and a limit of bandwidth between them."""
    wide = system.node_size
    full = set(nodes[:-1]) or {nodes[0]}
    size = min(nodes) if len(full) > 1 or nodes[-1] > min(full) else nodes[0]
    if max(nodes) > wide:
        raise PlanError(f"A node of {max(nodes)} GPUs is larger than the {wide} that {system.name} joins.")
    return limit_nodes(system, size if len(nodes) > 1 else wide, bandwidth)


def model_curve(
    model: ModelLike,
    system: SystemLike,
    *,
    batch: int,
    gpus: Iterable[int] | None = None,
    placements: Iterable[PlacementLike] | None = None,
    datatype: str = "bfloat16",
    bandwidth: float = 0.0,
    limits: Mapping[str, Any] | None = None,
    keep_smaller: float = KEEP_SMALLER,
    progress: Progress = unheard,
    cancel: Cancel = never,
) -> pd.DataFrame:
    """Returns the best throughput of a model over GPUs, and the bytes moved from each size to the next.

    One row per size, rising: `gpus`, `placement`; `raw_best` [samples/s] and `raw_plan`, the proven optimum at exactly
    this size, NaN and empty where nothing runs; `chosen`, the other choices of the execution; `stored_best`,
    `stored_plan`, `stored_gpus` after the keep-smaller rule; `gain` [samples/s per GPU]; `iteration_s`; `memory_gib`,
    `weights_gib`, `optimizer_gib` of the fullest GPU; `not_measured`, effects in the optimum without any measurement,
    separated by semicolons; `moves_gib`, the most that one GPU receives of weights and optimizer when the job comes
    from the next smaller size that runs, and `moves_s`, the least time for it.

    Args:
        model: name, path or model itself.
        system: name, path or system itself; its innermost network is a node.
        batch: samples of an iteration, the same at every size.
        gpus: sizes, which fill whole nodes; 1, 2, 4, ... 64 where None.
        placements: instead of sizes.
        datatype, bandwidth, limits: see `model_point`.
        keep_smaller: share by which a larger size has to be better.
        progress: called with the share done (0 to 1) and the current step.
        cancel: called after every size; True stops the search.

    Raises as `model_point` does, and `engine.planners.contract.PlanCancelledError` where `cancel` returned True.
    """
    network, whole = model_of(model), system_of(system)
    asked = _placements_of_sizes(whole, gpus, placements)
    points: list[ModelPoint] = []
    for at, nodes in enumerate(asked):
        if cancel():
            raise PlanCancelledError("The curve is not wanted any more.")
        progress(at / len(asked), f"{sum(nodes)} GPUs")
        points.append(
            model_point(
                network,
                whole,
                placement=nodes,
                batch=batch,
                datatype=datatype,
                bandwidth=bandwidth,
                limits=limits,
            )
        )
    return _build_curve_table(points, keep_smaller)


def _placements_of_sizes(
    system: System, gpus: Iterable[int] | None, placements: Iterable[PlacementLike] | None
) -> list[tuple[int, ...]]:
    if gpus is not None and placements is not None:
        raise PlanError("Give sizes or placements, not both.")
    size = system.node_size
    if placements is None:
        numbers = [2**power for power in range(7)] if gpus is None else list(islice(gpus, MOST_SIZES + 1))
        found = [placements_filling(checked_whole(each, "GPUs are", 1, MOST_GPUS), size) for each in numbers]
    else:
        found = [gpus_on_nodes(each) for each in islice(placements, MOST_SIZES + 1)]
    if not 1 <= len(found) <= MOST_SIZES:
        raise PlanError(f"A curve has 1 to {MOST_SIZES:,} sizes; {'more' if found else 'none'} were given.")
    return sorted(dict.fromkeys(found), key=lambda nodes: (sum(nodes), -nodes[0]))


def _build_curve_table(points: Sequence[ModelPoint], share: float) -> pd.DataFrame:
    rates = np.array([point.throughput for point in points], np.float64)
    kept = kept_smaller(rates, share)
    there = kept >= 0
    stored = np.where(there, rates[kept], np.nan)
    gpus = np.array([point.gpus for point in points], np.float64)
    steps = np.diff(gpus, prepend=0.0)
    # Gain: throughput per further GPU after the keep-smaller rule, from one listed size to the next.
    rises = np.diff(np.where(there, stored, 0.0), prepend=0.0)
    last: ModelPoint | None = None
    rows: list[dict[str, Any]] = []
    for at, point in enumerate(points):
        run = point.execution
        moved = movement(last, point, survivors=range(last.gpus)) if last is not None and run else None
        rows.append(
            {
                "gpus": point.gpus,
                "placement": placement_text(point.nodes),
                "raw_best": point.throughput,
                "raw_plan": point.plan,
                "chosen": point.chosen,
                "stored_best": stored[at],
                "stored_plan": points[kept[at]].plan if there[at] else "",
                "stored_gpus": gpus[kept[at]] if there[at] else math.nan,
                "gain": rises[at] / steps[at] if steps[at] else math.nan,
                "iteration_s": float(run.get("total_time", math.nan)),
                "memory_gib": float(run.get("proc_mem_tier1_cap_req", math.nan)) / 2**30,
                "weights_gib": float(run.get("weight_space", math.nan)) / 2**30,
                "optimizer_gib": float(run.get("optimizer_space", math.nan)) / 2**30,
                "not_measured": "; ".join(point.not_measured),
                "moves_gib": moved.most / 2**30 if moved else math.nan,
                "moves_s": moved.seconds if moved else math.nan,
            }
        )
        last = point if run else last
    return pd.DataFrame(rows)


def model_job(
    model: ModelLike,
    system: SystemLike,
    *,
    batch: int,
    gpus: int,
    guarantee: float | None = None,
    name: str | None = None,
    **choices: Any,
) -> SplitJob:
    """Returns a job for `engine.planners.elastic.split`, planned on the model's own curve.

    Args:
        model, system, batch: see `model_curve`.
        gpus: the most that the job may get.
        guarantee: throughput that it must reach [samples/s], None for a best-effort job.
        name: of the job; that of the model where None.
        choices: further arguments of `model_curve`.

    Raises as `model_curve` does.
    """
    table = model_curve(
        model, system, batch=batch, gpus=range(1, checked_whole(gpus, "GPUs are", 1, MOST_SIZES) + 1), **choices
    )
    rates = tuple(float(rate) for rate in table["raw_best"])
    return SplitJob(name or model_of(model).name, None, None, guarantee, rates, tuple(table["raw_plan"]), batch)
