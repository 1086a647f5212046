"""Predictions of the surface and of measured runs, by the revision of the package that is imported.

Run as a script, `evaluation.py ROOT QUESTIONS RUNS FOLDER`, it writes the predictions of the revision in the folder
ROOT. It therefore uses only names that earlier revisions have, too.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

import engine
import models
from engine.columns import ALL_FIELDS
from engine.validation import validate

__all__ = [
    "OUTCOME_COLUMNS",
    "RUN_COLUMNS",
    "RUN_FILE",
    "SURFACE_FILE",
    "UNKNOWN_FIELD",
    "UNKNOWN_MODEL",
    "predict_measured_runs",
    "predict_parts",
]

OUTCOME_COLUMNS = ("outcome", "seconds", "gib")
"""Prediction of an execution: "ok" or the code of the reason against it, seconds per step, memory per processor
[GiB]."""
RUN_COLUMNS = ("id", "status", "reason", "predicted_step_time_s", "predicted_mem_gib")
SURFACE_FILE, RUN_FILE = "surface.csv", "runs.csv"
UNKNOWN_MODEL, UNKNOWN_FIELD = "unknown_model_or_system", "unknown_field"
"""Outcomes where a revision does not have the model, the system or a field."""
GIB = 2.0**30


def predict_parts(
    parts: Iterable[Mapping[str, Any]], progress: Callable[[int], None] | None = None
) -> list[dict[str, Any]]:
    """Return the predictions of executions, one record of `OUTCOME_COLUMNS` each, in order.

    Args:
        parts: mappings with `model`, `seq_size` [tokens], `system` and `executions`, as in `surface.SurfacePart`.
        progress: called with the number of parts that are done.
    """
    found: list[dict[str, Any]] = []
    for number, part in enumerate(parts, 1):
        found += _predict_part(part["model"], part["seq_size"], part["system"], part["executions"])
        if progress is not None:
            progress(number)
    return found


def _predict_part(
    model: str, seq_size: int, system: str, executions: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    columns = {column.name for column in ALL_FIELDS}
    unknown = [not columns.issuperset(each) for each in executions]
    rows = [{name: value for name, value in each.items() if name in columns} for each in executions]
    try:
        loaded = models.load(model)
        if loaded.seq_size != seq_size:
            loaded = models.edited(loaded, {"seq_size": seq_size})
        table = engine.evaluate(loaded, system, pd.DataFrame(rows), cost_model="calibrated")
    except ValueError:  # of documents that this revision does not have or cannot read
        return [_outcome(UNKNOWN_MODEL) for _ in executions]
    statistics = zip(table["reason"], table["total_time"], table["proc_mem_tier1_cap_req"], strict=True)
    return [
        _outcome(UNKNOWN_FIELD) if other else _outcome(str(reason) or "ok", float(seconds), float(memory) / GIB)
        for other, (reason, seconds, memory) in zip(unknown, statistics, strict=True)
    ]


def _outcome(outcome: str, seconds: float = math.nan, gib: float = math.nan) -> dict[str, Any]:
    return {"outcome": outcome, "seconds": seconds, "gib": gib}


def predict_measured_runs(path: Path) -> pd.DataFrame:
    """Return the predictions of measured runs by this revision: `RUN_COLUMNS`.

    A run that this revision cannot read in the table, where later words state it, is predicted as the revision's own
    table states it.

    Args:
        path: table of measured runs.
    """
    found = validate(path)[list(RUN_COLUMNS)]
    own = validate()[list(RUN_COLUMNS)].drop_duplicates("id").set_index("id").reindex(found["id"]).reset_index()
    is_better = ((found["status"] != "predicted") & (own["status"] == "predicted")).to_numpy(bool)
    found.loc[is_better] = own.loc[is_better].to_numpy()
    return found


def _write_predictions(root: Path, questions: Path, runs: Path, folder: Path) -> None:
    found = Path(engine.__file__).resolve()
    if not found.is_relative_to(root.resolve()):
        raise SystemExit(f"{found} was imported instead of the revision in {root}.")
    parts = json.loads(questions.read_text(encoding="utf-8"))
    surface = pd.DataFrame(predict_parts(parts), columns=list(OUTCOME_COLUMNS))
    surface.to_csv(folder / SURFACE_FILE, index=False)
    predict_measured_runs(runs).to_csv(folder / RUN_FILE, index=False)


if __name__ == "__main__":
    _write_predictions(*map(Path, sys.argv[1:5]))
