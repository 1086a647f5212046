"""Comparison of a library model's plan with the exhaustive exploration: its own time, the cost model's, and the proven
best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pandas as pd

import engine
from engine.executions.execution_names import execution_name
from engine.planners.contract import PlanError
from engine.planners.intra_operator.layer_costs import Vector
from engine.planners.intra_operator.search import IntraOperatorPlan
from hardware.loader import SystemLike
from models.loader import ModelLike

__all__ = ["beside_exploration", "plan_degrees"]

COST_MODEL: Final = "calibrated"
CHOICES: Final = {"microbatch_size": "microbatch", "zero_stage": "ZeRO", "activation_recompute": "recompute"}
"""Choices of an execution that are reported next to its name."""


def plan_degrees(plan: IntraOperatorPlan, vectors: Sequence[Vector] | None = None) -> dict[str, int] | None:
    """Returns the degrees of parallelism that equal a plan, or None if the space of executions has none.

    Data parallelism, Megatron's tensor parallelism and experts split over a mesh axis are such degrees, the same for
    all layers; mixed plans are not.

    Args:
        plan: from `search`.
        vectors: of all layers; the chosen ones where None.
    """
    if vectors is None:
        vectors = plan.chosen.vectors if plan.chosen is not None else ()
    degrees = {"tensor_par": 1, "data_par": 1, "expert_par": 1}
    mixture = any(each.visits for each in plan.layers)
    for axis, devices in enumerate(plan.mesh.shape):
        kinds = {_axis_kind([one[axis] if isinstance(one, tuple) else one for one in each]) for each in vectors}
        core = {kind for kind, _ in kinds}
        experts = {split for _, split in kinds if split is not None}
        if len(core) != 1 or core & {None} or len(experts) > 1:
            return None
        degrees["tensor_par" if core == {"tensor"} else "data_par"] *= devices
        if experts == {True}:
            degrees["expert_par"] *= devices
    return degrees if mixture else {name: value for name, value in degrees.items() if name != "expert_par"}


def _axis_kind(vector: Sequence[int]) -> tuple[str | None, bool | None]:
    """Returns the kind of parallelism of a layer along one axis, and whether its experts are split there, None without
    experts."""
    experts = 3 in vector
    plain = [each for each in vector if each != 3]
    if all(each == 1 for each in plain):
        return "data", True if experts else None
    routed = len(vector) >= 4 and experts
    attention = plain[:3] if routed else vector
    if tuple(attention) in ((0, 2, 0, 2), (1, 0, 2, 0, 2), (0, 2, 1), (1, 0, 2)):
        return "tensor", True if experts else None
    return None, None


def beside_exploration(
    plan: IntraOperatorPlan,
    model: ModelLike,
    system: SystemLike,
    *,
    batch: int,
    datatype: str = "bfloat16",
) -> pd.DataFrame:
    """Compares a plan with the calibrated cost model's figures of it, and with the proven best of all executions.

    Args:
        plan: from `search`, for the model and a mesh of the system.
        model: name, path or model itself.
        system: name, path or system itself.
        batch: sequences of the step, as planned.
        datatype: of the matrix arithmetic.

    Returns:
        Three rows: what ("this plan", "its degrees as an execution", "best of all executions"), solution, seconds of a
        step [s], sample_rate [samples/s], memory of a device [bytes], note (a caveat, or the reason for a missing
        figure).

    Raises:
        PlanError: no plan fits.
        models.ModelFileError, hardware.SystemFileError: the documents.
    """
    if plan.chosen is None:
        raise PlanError(plan.infeasible)
    chosen = plan.chosen
    asked: dict[str, Any] = {
        "num_procs": plan.mesh.devices,
        "max_batch_size": batch,
        "datatype": datatype,
        "cost_model": COST_MODEL,
    }
    rows = [
        {
            "what": "this plan",
            "solution": chosen.solution,
            "seconds": chosen.seconds,
            "sample_rate": batch / chosen.seconds,
            "memory": chosen.memory,
            "note": "" if len(plan.notes) == 0 else plan.notes[0],
        }
    ]
    degrees = plan_degrees(plan)
    if degrees is None:
        note = "Layers that are split in different ways are no execution."
        rows.append(_row_without_figures("its degrees as an execution", note))
    else:
        stages = [3] if plan.widths.fsdp else [1, 2] if plan.widths.zero else [0]
        limits: dict[str, Any] = {name: [value] for name, value in degrees.items()}
        size = batch // degrees["data_par"] // plan.widths.accumulation
        limits |= {"pipeline_par": [1], "batch_size": [batch], "microbatch_size": [size], "zero_stage": stages}
        # What selective recomputation gives up, scores of attention, fused kernels never keep.
        limits |= {"activation_recompute": ["full" if plan.widths.recompute == "full" else "none"]}
        rows.append(_best_row("its degrees as an execution", model, system, asked, limits))
    rows.append(_best_row("best of all executions", model, system, asked, None))
    return pd.DataFrame(rows)


def _best_row(
    what: str, model: ModelLike, system: SystemLike, asked: Mapping[str, Any], limits: Mapping[str, Any] | None
) -> dict[str, Any]:
    found = engine.best(model, system, limits=limits, **asked)
    if not found:
        return _row_without_figures(what, "By the cost model no such execution runs.")
    choices = [f"{short} {found[name]}" for name, short in CHOICES.items() if name in found]
    solution = ", ".join([execution_name(found), *choices])
    rate = float(found["sample_rate"])
    return {
        "what": what,
        "solution": solution,
        "seconds": float(found["batch_size"]) / rate,
        "sample_rate": rate,
        "memory": float(found["proc_mem_tier1_cap_req"]),
        "note": "With embedding, head and launches.",
    }


def _row_without_figures(what: str, note: str) -> dict[str, Any]:
    nan = float("nan")
    return {"what": what, "solution": "", "seconds": nan, "sample_rate": nan, "memory": nan, "note": note}
