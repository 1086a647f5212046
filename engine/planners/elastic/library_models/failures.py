"""Loss of nodes: the options of a job, and the cost of each."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Real
from typing import Any, Final

import pandas as pd

from engine.planners.contract import PlanError
from engine.planners.elastic.library_models.curves import ModelPoint, model_point
from engine.planners.elastic.library_models.movement import Movement, movement
from engine.planners.elastic.limits import checked_whole
from engine.planners.elastic.placements import PlacementLike, gpus_on_nodes, placement_text
from hardware import SystemLike, system_of
from models import ModelLike, model_of
from models.documents import shown

__all__ = ["after_failure"]

RESTART: Final = 260.0
"""Default downtime of a restart [s]: that of a reallocation in the artifact of Morphling/Rubick."""

MOST_SHRUNK: Final = 32
"""Numbers of nodes that are tried, from all that are left to half of them."""


def after_failure(
    model: ModelLike,
    system: SystemLike,
    *,
    placement: PlacementLike,
    batch: int,
    lost: int = 1,
    spares: int = 0,
    repair_s: float = 3600.0,
    restart_s: float = RESTART,
    checkpoint_gb_per_s: float = 10.0,
    datatype: str = "bfloat16",
    limits: Mapping[str, Any] | None = None,
) -> pd.DataFrame:
    """Returns the options of a job that loses its last nodes, the best first.

    Ways: `spares`, the same plan with as many spare nodes in their place; `shrink`, the best plan on the nodes that are
    left, or on some of them; `wait`, standing still until they are repaired. Columns: `way`, `placement`, `plan`,
    `chosen`, `throughput` [samples/s]; `moves_gib`, what the GPU that gets most receives; `checkpoint_gib`, what no
    survivor holds and has to be read; `pause_s`, restart, movement and reading; `samples`, trained until the repair is
    done.

    Args:
        model: name, path or model itself.
        system: name, path or system itself; its innermost network is a node.
        placement: GPUs on each node before.
        batch: samples of an iteration.
        lost: nodes that are lost, the last ones.
        spares: nodes that stand by, like those.
        repair_s: until lost nodes are back [s].
        restart_s: standstill of any restart [s].
        checkpoint_gb_per_s: at which all of the job read a checkpoint together [GB/s].
        datatype, limits: see `model_point`.

    Raises:
        engine.planners.contract.PlanError: something is not understood, or nothing runs before the failure.
        models.ModelFileError, hardware.SystemFileError and others: as `engine.best` raises.
    """
    nodes = gpus_on_nodes(placement)
    gone = checked_whole(lost, "Lost nodes are", 1, len(nodes))
    standing_by = checked_whole(spares, "Spare nodes are", 0, 10_000)
    for what, value in (("repair_s", repair_s), ("restart_s", restart_s), ("checkpoint_gb_per_s", checkpoint_gb_per_s)):
        _check_positive(what, value)
    network, machine = model_of(model), system_of(system)
    asked: dict[str, Any] = {"batch": batch, "datatype": datatype, "limits": limits}
    before = model_point(network, machine, placement=nodes, **asked)
    if not before.execution:
        raise PlanError(f"Nothing of {network.name} runs on {placement_text(nodes)} with {batch} samples.")
    kept = sum(nodes[: len(nodes) - gone])
    rows = [_recovery_row("wait", before, None, math.inf, repair_s, checkpoint_gb_per_s)]
    rows[0] |= {"throughput": 0.0, "placement": placement_text(nodes)}
    if standing_by >= gone:
        moved = movement(before, before, [*range(kept), *([-1] * (before.gpus - kept))])
        rows.append(_recovery_row("spares", before, moved, restart_s, repair_s, checkpoint_gb_per_s))
    left = len(nodes) - gone
    # Fewer nodes may do more: a batch divides among some numbers of GPUs better than among others.
    counts = range(left, max(left // 2, left - MOST_SHRUNK), -1)
    found = [model_point(network, machine, placement=nodes[:count], **asked) for count in counts]
    running = [point for point in found if point.execution]
    if running:
        shrunk = max(running, key=lambda point: point.throughput)
        moved = movement(before, shrunk, range(shrunk.gpus), range(kept))
        rows.append(_recovery_row("shrink", shrunk, moved, restart_s, repair_s, checkpoint_gb_per_s))
    table = pd.DataFrame(rows).sort_values("samples", ascending=False, kind="stable")
    return table.reset_index(drop=True)


def _check_positive(what: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 < float(value) < 1e15:
        raise PlanError(f"{what} is {shown(value)}; give a number above 0.")


def _recovery_row(
    way: str, point: ModelPoint, moved: Movement | None, restart_s: float, repair_s: float, rate: float
) -> dict[str, Any]:
    # Pause = restart + movement between GPUs + reading what no GPU holds from the checkpoint.
    read = moved.lost if moved else 0.0
    pause = restart_s + (moved.seconds if moved else 0.0) + read / (rate * 1e9)
    return {
        "way": way,
        "placement": placement_text(point.nodes),
        "plan": point.plan,
        "chosen": point.chosen,
        "throughput": point.throughput,
        "moves_gib": moved.most / 2**30 if moved else 0.0,
        "checkpoint_gib": read / 2**30,
        "pause_s": min(pause, repair_s),
        "samples": point.throughput * max(repair_s - pause, 0.0),
    }
