"""The planner as the contract has it: a problem that can be written down becomes a plan with its alternatives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from engine.columns.percentages import format_percent
from engine.planners.contract import (
    Alternative,
    Cancel,
    Placement,
    Plan,
    PlanCancelledError,
    PlanError,
    PlanFigure,
    Progress,
    Stage,
    never,
    unheard,
)
from engine.planners.intra_operator.library import any_mesh
from engine.planners.intra_operator.mesh import Mesh
from engine.planners.intra_operator.names import described
from engine.planners.intra_operator.search import IntraOperatorPlan, search
from models import Model, to_document
from models.loader import ModelLike

__all__ = ["VERSION", "IntraOperatorProblem", "solve"]

VERSION: Final = "2"
NAME: Final = "intra_operator"


@dataclass(frozen=True)
class IntraOperatorProblem:
    """A model, a mesh and a batch. `layers` and `memory_limit` [bytes] are the model's and the mesh's where None,
    `counted` has the further arguments of `search`."""

    model: ModelLike
    mesh: Mesh
    batch: int = 16
    layers: int | None = None
    memory_limit: float | None = None
    counted: Mapping[str, Any] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """Returns everything that the plan depends on, as JSON."""
        model = to_document(self.model) if isinstance(self.model, Model) else str(self.model)
        return {
            "model": model,
            "mesh": self.mesh.document(),
            "batch": self.batch,
            "layers": self.layers,
            "memory_limit": self.memory_limit,
            "counted": dict(self.counted),
        }


def solve(problem: IntraOperatorProblem, progress: Progress = unheard, cancel: Cancel = never) -> Plan:
    """Returns the best plan of a problem: one stage with all layers on all devices, split inside.

    Args:
        problem: model, mesh and batch.
        progress: called with the share done (0 to 1) and the current step.
        cancel: called before and after the search, which takes seconds; True stops it.

    Returns:
        The plan, with the search itself as `extra["search"]`. Alternatives are the vectors with a name, each with its
        seconds or the reason why it is impossible.

    Raises:
        PlanError: an invalid argument, or no plan fits.
        PlanCancelledError: `cancel` returned True.
    """
    progress(0.0, "Counting what every strategy costs")
    if cancel():
        raise PlanCancelledError
    found = search(
        problem.model,
        any_mesh(problem.mesh),
        batch=problem.batch,
        layers=problem.layers,
        memory_limit=problem.memory_limit,
        **problem.counted,
    )
    if cancel():
        raise PlanCancelledError
    progress(1.0, "Done")
    if found.chosen is None:
        raise PlanError(found.infeasible)
    figures = _plan_figures(found)
    stage = Stage(0, len(found.layers), Placement(tuple(range(found.mesh.devices))), figures)
    details = described(found.chosen.vectors, [each.name for each in found.layers], found.widths)
    return Plan(
        NAME,
        VERSION,
        problem,
        (stage,),
        figures,
        "step_time",
        _list_alternatives(found),
        (*details, *found.notes),
        {"search": found},
    )


def _plan_figures(found: IntraOperatorPlan) -> tuple[PlanFigure, ...]:
    chosen = found.chosen
    assert chosen is not None
    return (
        PlanFigure("step_time", chosen.seconds, "s", "Step"),
        PlanFigure("compute_time", chosen.compute_seconds, "s", "Computation"),
        PlanFigure("communication_time", chosen.communication_seconds, "s", "Collectives"),
        PlanFigure("volume", chosen.volume, "bytes", "Volume of collectives"),
        PlanFigure("memory", chosen.memory, "bytes", "Memory of a device"),
        PlanFigure("throughput", found.tflops * 1e12, "FLOP/s", "Throughput of all devices"),
    )


def _list_alternatives(found: IntraOperatorPlan) -> tuple[Alternative, ...]:
    chosen = found.chosen
    assert chosen is not None
    rows = []
    for row in found.named.to_dict("records"):
        limit = found.memory_limit
        if row["reason"]:
            rows.append(Alternative(row["solution"], None, row["reason"]))
        elif not row["fits"]:
            reason = f"It takes {row['memory']:,.0f} bytes per device; the limit is {limit:,.0f}."
            rows.append(Alternative(row["solution"], None, reason))
        elif row["solution"] != chosen.solution:
            slower = row["seconds"] / chosen.seconds - 1.0
            rows.append(Alternative(row["solution"], row["seconds"], f"A step takes {format_percent(slower)} longer."))
    return tuple(rows)
