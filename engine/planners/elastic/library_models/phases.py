"""A model of the library over phases in which its resources change: the best plan of each, and the cost of changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from engine.planners.contract import Cancel, PlanCancelledError, PlanError, Progress, never, unheard
from engine.planners.elastic.library_models.curves import ModelPoint, model_point
from engine.planners.elastic.library_models.failures import RESTART
from engine.planners.elastic.library_models.movement import movement
from engine.planners.elastic.over_time import Phase, phases_of
from engine.planners.elastic.placements import placement_text
from hardware import SystemLike, system_of
from models import ModelLike, model_of
from models.documents import shown

__all__ = ["model_phases"]


def model_phases(
    model: ModelLike,
    system: SystemLike,
    phases: Iterable[Phase | Mapping[str, Any] | Sequence[Any]] | pd.DataFrame | str,
    *,
    batch: int,
    restart_s: float = RESTART,
    datatype: str = "bfloat16",
    limits: Mapping[str, Any] | None = None,
    progress: Progress = unheard,
    cancel: Cancel = never,
) -> pd.DataFrame:
    """Returns one row per phase: `start_s`, `end_s`, `placement`, `gpus`, `plan`, `chosen`, `throughput` [samples/s], 0
    where nothing runs; `moves_gib`, the most that one GPU receives at its start; `paused_s`, restart and movement; and
    `samples` trained. A job that has had no GPUs comes from a checkpoint, whose reading is not counted.

    Args:
        model: name, path or model itself.
        system: name, path or system itself; its innermost network is a node.
        phases: see `engine.planners.elastic.over_time.phases_of`; lost nodes and spares are phases of their own.
        batch: samples of an iteration.
        restart_s: downtime at each change of plan or placement [s].
        datatype, limits: see `engine.planners.elastic.library_models.model_point`.
        progress: called with the share done (0 to 1) and the current step.
        cancel: called after every phase; True stops the search.

    Raises as `model_point` and `phases_of` do, and `engine.planners.contract.PlanCancelledError` where `cancel`
    returned True.
    """
    if isinstance(restart_s, bool) or not isinstance(restart_s, int | float) or not 0 <= restart_s < 1e15:
        raise PlanError(f"restart_s is {shown(restart_s)}; give seconds from 0 on.")
    given, network, machine = phases_of(phases), model_of(model), system_of(system)
    known: dict[tuple[tuple[int, ...], float], ModelPoint] = {}
    rows: list[dict[str, Any]] = []
    start, before = 0.0, None
    for at, phase in enumerate(given):
        if cancel():
            raise PlanCancelledError("The phases are not wanted any more.")
        progress(at / len(given), f"Phase {at + 1}")
        # The best plan depends on placement and bandwidth only, so phases that repeat them share one search.
        key = (phase.nodes, phase.bandwidth)
        if phase.nodes and key not in known:
            known[key] = model_point(
                network,
                machine,
                placement=phase.nodes,
                batch=batch,
                bandwidth=phase.bandwidth,
                datatype=datatype,
                limits=limits,
            )
        point = known.get(key)
        point = point if point is not None and point.execution else None
        changed = at > 0 and point is not None and point is not before
        moved = movement(before, point, survivors=range(before.gpus)) if changed and before and point else None
        # A phase that ends before the job runs again trains nothing.
        pause = min(phase.duration_s, restart_s + (moved.seconds if moved else 0.0)) if changed else 0.0
        rate = point.throughput if point else 0.0
        rows.append(
            {
                "phase": at + 1,
                "start_s": start,
                "end_s": start + phase.duration_s,
                "placement": placement_text(phase.nodes),
                "gpus": sum(phase.nodes),
                "plan": point.plan if point else "",
                "chosen": point.chosen if point else "",
                "throughput": rate,
                "moves_gib": moved.most / 2**30 if moved else 0.0,
                "paused_s": pause,
                "samples": rate * (phase.duration_s - pause),
            }
        )
        start, before = start + phase.duration_s, point
    return pd.DataFrame(rows)
