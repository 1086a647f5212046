"""The cost models side by side, behind one interface: which there are, which is used, and their steps.

`calculon` is exact against Calculon 0.1.0, with its quirks; `calibrated` predicts measured runs. Either gives a space
of executions, plans of it, and evaluated rows of plans; what explores, reduces, stores and shows them is the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.cost_models.calculon.bounds import Candidates
from engine.cost_models.calculon.bounds import bounds as exact_bounds
from engine.cost_models.calculon.bounds import candidates as exact_candidates
from engine.cost_models.calculon.prepared_rows import Group, Plan, prepare_exact
from engine.cost_models.calculon.steps import RowChunk, evaluate_exact_rows
from engine.cost_models.calibrated.bounds import CalibratedCandidates, calibrated_bounds, calibrated_candidates
from engine.cost_models.calibrated.rows.evaluation import evaluate_calibrated_rows
from engine.cost_models.calibrated.rows.prepared_rows import CalibratedPlan, prepare_calibrated
from engine.cost_models.calibrated.space import CalibratedSpace
from engine.space.space import Space
from hardware import Calibration, System
from models import Model

__all__ = [
    "AnyCandidates", "AnyPlan", "bounds", "candidates", "evaluate_rows", "prepare", "space_of",
]  # fmt: skip

AnyPlan = Plan | CalibratedPlan
AnyCandidates = Candidates | CalibratedCandidates

def space_of(
    cost_model: str,
    model: Model,
    system: System,
    *,
    num_procs: int,
    max_batch_size: int,
    datatype: str,
    limits: Mapping[str, Any] | None = None,
    calibration: Calibration | None = None,
) -> Space:
    """The space of a cost model. Raises `engine.space.space.SpaceError` or `engine.executions.limits.LimitError`."""
    if cost_model == "calculon":
        return Space(
            model, system, num_procs=num_procs, max_batch_size=max_batch_size, datatype=datatype, limits=limits
        )
    return CalibratedSpace(
        model, system, num_procs=num_procs, max_batch_size=max_batch_size, datatype=datatype, limits=limits,
        calibration=calibration,
    )  # fmt: skip


def prepare(space: Space, numbers: range, *, rows: bool = True) -> AnyPlan:
    """The plan of these cells of a space: what cannot run rejected, the rest ready. Without `rows` none are listed."""
    if isinstance(space, CalibratedSpace):
        return prepare_calibrated(space, numbers, rows=rows)
    return prepare_exact(space, numbers, rows=rows)


def evaluate_rows(plan: AnyPlan, group: Group, part: slice) -> RowChunk:
    """Headline figures of all executions of a chunk of a plan's rows."""
    if isinstance(plan, CalibratedPlan):
        return evaluate_calibrated_rows(plan, group, part)
    return evaluate_exact_rows(plan, group, part)


def candidates(plan: AnyPlan) -> AnyCandidates:
    """The rows of a plan that share a bound on their sample rate."""
    return calibrated_candidates(plan) if isinstance(plan, CalibratedPlan) else exact_candidates(plan, plan.fits)


def bounds(plan: AnyPlan, rows: AnyCandidates) -> npt.NDArray[np.float64]:
    """The sample rate that no execution of a candidate exceeds [samples/s] [candidates], up to rounding."""
    if isinstance(plan, CalibratedPlan):
        assert isinstance(rows, CalibratedCandidates)
        return calibrated_bounds(plan, rows)
    assert isinstance(rows, Candidates)
    return exact_bounds(plan, rows)
