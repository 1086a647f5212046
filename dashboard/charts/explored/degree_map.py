"""Map of tensor by pipeline parallel degree, with the reasons of infeasible cells."""

from collections.abc import Sequence

import pandas as pd

from dashboard.charts.elements.colour_scale import Domain
from dashboard.charts.elements.palette import palette
from dashboard.charts.elements.template import Chart, empty
from dashboard.charts.explored.best_map import HEIGHT, best_map
from dashboard.words.numbers import column_of, count, shortfall
from engine.columns import Column, by_name
from engine.executions.execution_names import DEGREES, execution_name

__all__ = ["degree_map"]


def degree_map(
    cells: pd.DataFrame,
    metric: Column | str,
    mode: str = "light",
    *,
    selected: tuple[int, int] | None = None,
    base_cell: tuple[int, int] | None = None,
    domain: Domain = "near best",
    height: int = HEIGHT,
    axes: tuple[Sequence[int], Sequence[int]] | None = None,
    among: Sequence[float] | None = None,
    bar: bool = True,
    narrow: bool = False,
) -> Chart:
    """Draws the map of tensor by pipeline parallel degree; its points carry customdata (tensor_par, pipeline_par, id).

    Args:
        cells: one row per pair with at least one execution, columns of `Exploration.by_cell` and `value`: tensor_par,
            pipeline_par, value in the metric's unit (NaN where nothing fits), total and feasible [executions], id of
            the best execution, reason_text of the nearest miss, shortfall_bytes [bytes] by which it misses the memory
            (0 or NaN where memory is not the reason); `may_fit`, whether the best exceeds a capacity within the limit
            (no cell without), is marked; further degrees are optional and only named on hovering.
        selected, base_cell: (tensor_par, pipeline_par). axes: tensor and pipeline degrees.
        metric, domain, height, among, bar, narrow: as for `best_map`.
    """
    cells = cells[cells["total"] > 0] if len(cells) else cells
    if not len(cells):
        why = "No pair of tensor and pipeline parallel degrees divides this system."
        return empty(palette(mode), height, why)
    columns = {
        name: cells[name].tolist()
        for name in ("tensor_par", "pipeline_par", "id", "shortfall_bytes", "reason_text", "feasible", "total")
    }
    pairs = [
        (int(tensor), int(pipeline))
        for tensor, pipeline in zip(columns["tensor_par"], columns["pipeline_par"], strict=True)
    ]
    marks = cells["may_fit"].tolist() if "may_fit" in cells else [False] * len(cells)
    rows = cells.filter(list(DEGREES)).to_dict("records")
    drawn = pd.DataFrame(
        {
            "x": [pipeline for _, pipeline in pairs],
            "y": [tensor for tensor, _ in pairs],
            "facet": "",
            "value": cells["value"].to_numpy(float),
            "at": pairs,
            "id": [-1 if pd.isna(number) else int(number) for number in columns["id"]],
            "name": [execution_name(row) for row in rows],
            "label": [shortfall(missing) for missing in columns["shortfall_bytes"]],
            "why": ["Nothing fits." if pd.isna(reason) else str(reason) for reason in columns["reason_text"]],
            "tally": [
                f"{count(fit)} of {count(total)} executions fit{' · the best may fit' if over else ''}"
                for fit, total, over in zip(columns["feasible"], columns["total"], marks, strict=True)
            ],
            "may_fit": marks,
        }
    )
    return best_map(
        drawn,
        by_name("pipeline_par"),
        by_name("tensor_par"),
        column_of(metric),
        mode,
        selected=selected,
        base_cell=base_cell,
        domain=domain,
        height=height,
        axes=(axes[1], axes[0]) if axes else None,
        among=among,
        bar=bar,
        narrow=narrow,
    )
