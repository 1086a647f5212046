"""The plans that CFP runs before it decides: each segment's fastest vector, three templates, and the search's optimum.

Source: CFP (published code): the best vector of every segment on its own, [1,1,1,1], [0,1,1,1] and [0,1,0,2] in all
segments, and what dynamic programming finds; the fastest in real runs is taken.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pandas as pd

from engine.planners.contract import PlanError
from engine.planners.intra_operator.layer_costs import FIRST, Vector
from engine.planners.intra_operator.search import IntraOperatorPlan
from engine.planners.intra_operator.steps import step_of
from engine.planners.intra_operator.uniform import costs_of

__all__ = ["run_time_candidates"]

TEMPLATES: Final = ((1, 1, 1, 1), (0, 1, 1, 1), (0, 1, 0, 2))
"""Vectors of four ParallelBlocks that CFP tries in all segments: columns 0, tokens 1, rows 2. Source: as for the
module."""


def run_time_candidates(plan: IntraOperatorPlan) -> pd.DataFrame:
    """Returns the plans that CFP would run, with their predictions.

    Args:
        plan: from `search`, on a mesh of one axis.

    Returns:
        One row per candidate: candidate ("fastest of each segment", "template 1,1,1,1", ..., "search"), vectors,
        solution, seconds, compute_seconds, communication_seconds [s], volume, memory [bytes], fits, reason (why it
        cannot be; then the figures are not numbers), the fastest that fits first.

    Raises:
        PlanError: the mesh has two axes.
    """
    if plan.mesh.outer is not None:
        raise PlanError("The candidates are vectors of one mesh axis; leave the outer axis.")
    kinds = costs_of(plan.layers, plan.mesh, plan.widths)
    order = [each.name for each in plan.layers]
    rows: list[dict[str, Any]] = []
    for called, vectors in _list_candidates(plan):
        reasons = [
            costs.reasons[costs.vectors.index(vector)] if vector in costs.vectors else "No such vector."
            for costs, vector in ((kinds[name], vector) for name, vector in zip(order, vectors, strict=True))
        ]
        reason = next((why for why in reasons if why), "")
        row: dict[str, Any] = {"candidate": called, "vectors": vectors, "reason": reason, "fits": False}
        figures = ("seconds", "compute_seconds", "communication_seconds", "volume", "memory")
        row |= {"solution": "", **dict.fromkeys(figures, np.nan)}
        if not reason:
            step = step_of(kinds, order, plan.mesh, vectors, plan.widths)
            row |= {"solution": step.solution, **{name: getattr(step, name) for name in figures}}
            row["fits"] = plan.memory_limit is None or step.memory <= plan.memory_limit
        rows.append(row)
    columns = ["candidate", "vectors", "solution", *figures, "fits", "reason"]
    table = pd.DataFrame(rows, columns=columns)
    return table.sort_values(["fits", "seconds"], ascending=[False, True], kind="stable", ignore_index=True)


def _list_candidates(plan: IntraOperatorPlan) -> Iterator[tuple[str, tuple[Vector, ...]]]:
    kinds = costs_of(plan.layers, plan.mesh, plan.widths)
    alone: dict[str, Vector] = {}
    for name, each in kinds.items():
        seconds = np.where(each.possible, each.seconds(plan.mesh)[FIRST], np.inf)
        alone[name] = each.vectors[int(seconds.argmin())]
    yield "fastest of each segment", tuple(alone[each.name] for each in plan.layers)
    for template in TEMPLATES:
        yield f"template {','.join(map(str, template))}", (template,) * len(plan.layers)
    if plan.chosen is not None:
        yield "search", plan.chosen.vectors
