"""Studies of the What-if page as a file: a table each, with their scenario."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pandas as pd

from dashboard.files import exports
from dashboard.pages.whatif.change_table import change_rows
from dashboard.words.names import FIXED
from engine.columns import by_name, fields_of
from engine.whatif import Point

if TYPE_CHECKING:
    from dashboard.pages.whatif.board import WhatIfBoard

__all__ = ["file", "study_tables"]

RATE: Final = "sample_rate"
EFFICIENCY: Final = "total_efficiency"
_ABOUT: Final = {
    "parameters": "Each parameter alone changed by a factor, the whole space searched again.",
    "sweep": "One parameter swept, the whole space searched again at every value.",
    "sweep_two": "Two parameters swept, the whole space searched again at every pair of values.",
    "sizes": "The recommended execution, or the fastest, at every number of GPUs.",
    "changes": "Each change alone, and all together, for every model and number of GPUs.",
}


_FIXED: Final = FIXED.replace(" ", "_")
_BATCHES: Final = {
    "kept": "up to the scenario's largest at every size",
    "scaled": "up to the scenario's largest in proportion to the GPUs",
}


def file(board: WhatIfBoard) -> bytes:
    """Returns a zip archive of the studies so far, a CSV file each, with their account."""
    found = study_tables(board)
    names = [RATE, EFFICIENCY, *(column.name for column in fields_of(board.scenario.cost_model))]
    account = {
        "format": "shardscape-studies/1",
        **exports.of_scenario(board.scenario),
        "changed_in_all": {exports.heading(board.every[name]): value for name, value in board.around.items()},
        "files": {f"{name}.csv": _describe_study(board, name, len(table)) for name, table in found.items()},
        "batch_of_sizes": _BATCHES[board.asked.batch],
        _FIXED: "an execution kept as it is: of the parameters the best with what is changed in all, of the "
        "sweeps the best of the scenario",
        f"{_FIXED}s": _fixed_layouts(board),
        "columns": [
            *(exports.described(which) for which in board.every.values()),
            *(exports.described(by_name(name)) for name in names),
        ],
    }
    return exports.archive(account, found)


def _fixed_layouts(board: WhatIfBoard) -> dict[str, dict[str, Any]]:
    """Return the executions kept as fixed layouts, by file; empty if nothing runs."""
    kept = {
        "parameters.csv": board.fastest.best if board.around else board.fastest.base,
        "sweep.csv": board.fastest.base,
        "sweep_two.csv": board.fastest.base,
    }
    names = [column.name for column in fields_of(board.scenario.cost_model)]
    return {
        file: {name: execution[name].item() if hasattr(execution[name], "item") else execution[name] for name in names}
        for file, execution in kept.items()
        if execution is not None
    }


def _describe_study(board: WhatIfBoard, name: str, rows: int) -> str:
    run = {
        "parameters": board.tornado,
        "sweep": board.sweep,
        "sweep_two": board.two,
        "sizes": board.sizes,
        "changes": board.table,
    }[name]
    assert run is not None
    return _ABOUT[name] if run.state == "done" else f"{_ABOUT[name]} {rows:,} of {run.total:,} points are known so far."


def study_tables(board: WhatIfBoard) -> dict[str, pd.DataFrame]:
    """Returns the tables of the studies, in order of their values."""
    found = {
        "parameters": pd.DataFrame(
            [
                {
                    "parameter": which.name,
                    "label": which.label,
                    "unit": which.unit,
                    "base": which.value,
                    "factor": factor,
                    **_point_row(board, point, {"value": point.values[which.name]}),
                }
                for which, factor, point in list(board.tornado.found)
            ]
        ),
        "sweep": _sweep_table(board, list(board.sweep.found), [board.one]),
    }
    if board.two is not None:
        found["sweep_two"] = _sweep_table(board, list(board.two.found), [board.x, board.y])
    if board.sizes is not None:
        found["sizes"] = _sweep_table(board, list(board.sizes.found), ["procs"])
    if board.table is not None:
        found["changes"] = change_rows(board)
    return found


def _sweep_table(board: WhatIfBoard, points: list[Point], names: list[str]) -> pd.DataFrame:
    ordered = sorted(points, key=lambda point: tuple(point.values[name] for name in names))
    headings = {name: exports.heading(board.every[name]) for name in names}
    sized = names == ["procs"]
    return pd.DataFrame(
        [_point_row(board, point, {headings[name]: point.values[name] for name in names}, sized) for point in ordered]
    )


def _point_row(board: WhatIfBoard, point: Point, values: dict[str, Any], sized: bool = False) -> dict[str, Any]:
    """Return a point as a row. sized: True to give efficiency instead of the fixed layout's throughput."""
    rate = exports.heading(by_name(RATE))
    more = {exports.heading(by_name(EFFICIENCY)): point.efficiency} if sized else {f"{_FIXED}_{rate}": point.kept}
    best = point.execution or {}
    fields = fields_of(board.scenario.cost_model)
    return {
        **values,
        rate: point.rate,
        **more,
        "feasible": point.feasible,
        **{exports.heading(column): best.get(column.name) for column in fields},
        "problem": point.problem,
    }
