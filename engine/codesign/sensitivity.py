"""Worth of one more dollar: every rate and capacity of a design slightly higher, searched again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

import hardware
import models
from engine.codesign.answers import At, Results
from engine.codesign.errors import StudyError
from engine.codesign.points import rows_of
from engine.codesign.quantities import quantity
from engine.codesign.schema import MIX
from engine.codesign.study import Study
from engine.whatif.parameters import changed, parameters
from models.documents import shown

__all__ = ["sensitivity"]


def sensitivity(
    found: Results,
    design: int,
    *,
    objective: str | None = None,
    factor: float = 1.1,
    of: str = MIX,
    at: At = "middle",
    cancel: Callable[[], bool] | None = None,
) -> pd.DataFrame:
    """Returns what more of each rate and capacity is worth to a design, the best use of money first.

    One row per What-if parameter of the system that changes no layout: `parameter`, `label`, `unit`, `value`, `higher`,
    the objective's `gain` [fraction], the dollars `more` that it costs, and `gain_per_usd`, NaN where it costs nothing.
    Every point is searched again.

    Args:
        found: results whose study it is about.
        design: number of the design.
        objective: a quantity; None for the first of the study's.
        factor: by which each value is multiplied, or divided where less is better [dimensionless]; above 1.
        of: the mix, or the name of a model.
        at: which end of the ranges of prices counts.
        cancel: says, between two searches, whether to stop.

    Raises `StudyError` for a design that there is not or that does not run, for a quantity that there is not, and for a
    factor that is not above 1; `StudyCancelled` on `cancel`.
    """
    if isinstance(factor, bool) or not 1.0 < factor <= 100.0:
        raise StudyError(f"The factor is {shown(factor)}; it must be a number above 1 and at most 100.")
    study = found.study
    asked = quantity(study.document.objectives[0] if objective is None else objective)
    chosen = study.design(design)
    base = [study.scenario_at(chosen, model) for model in range(len(study.models))]
    moved = [
        each
        for each in parameters(base[0])
        if each.about == "system" and not each.layout and not each.part_of and each.value > 0
    ]
    lower_is_more = {each.name for each in moved if each.name.endswith("_latency")}
    values = {each.name: each.value / factor if each.name in lower_is_more else each.value * factor for each in moved}
    systems = [base[0].system, *(changed(base[0], {name: value}).system for name, value in values.items())]
    around = Study.from_document(
        _build_document(study, chosen.datatype, base[0].num_procs, base[0].max_batch_size)
        | {
            "models": [
                {"model": models.to_document(each.model), "weight": mixed.weight}
                for each, mixed in zip(base, study.document.models, strict=True)
            ],
            "systems": [hardware.to_document(system) for system in systems],
            "objectives": [asked.name],
        },
        "the designs around this one",
    )
    rows = rows_of(around, np.arange(around.designs), cancel=cancel).to_pandas()
    rows = rows.sort_values("point").reset_index(drop=True)
    table = Results(around, rows).designs(of, at)
    own, others = table.iloc[0], table.iloc[1:]
    if own["status"] != "ok":
        raise StudyError(f"Design {design:,} does not run, so nothing can be better by a share; take one that does.")
    sign = 1.0 if asked.better == "higher" else -1.0
    gain = sign * (others[asked.name].to_numpy() / float(own[asked.name]) - 1.0)
    more = others["usd"].to_numpy() - float(own["usd"])
    with np.errstate(divide="ignore", invalid="ignore"):
        worth = np.where(more > 0, gain / more, np.nan)
    result = pd.DataFrame(
        {
            "parameter": [each.name for each in moved],
            "label": [each.label for each in moved],
            "unit": [each.unit for each in moved],
            "value": [each.value for each in moved],
            "higher": list(values.values()),
            "gain": gain,
            "more": more,
            "gain_per_usd": worth,
        }
    )
    return result.sort_values("gain_per_usd", ascending=False, kind="stable").reset_index(drop=True)


def _build_document(study: Study, datatype: int, processors: int, batch: int) -> dict[str, Any]:
    document = study.to_document()
    for key in ("edits", "follow", "constraints", "name", "description", "prune"):
        document.pop(key, None)
    return document | {
        "sizes": [processors],
        "datatypes": [study.document.datatypes[datatype]],
        "batches": [{"samples": batch}],
    }
