"""Queries of the Explore page, remembered per exploration."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd
import streamlit as st

from dashboard.derived import Metric
from dashboard.memory_needs import needs_of
from engine import Exploration, reasons
from engine.columns import by_name
from engine.store import Condition

__all__ = [
    "CHOICES", "TABLE_ROWS", "Spread", "cells_of", "choice_costs", "least_demanding", "near_best", "reasons_in_cell",
    "spread_in_cell", "top_of_cell",
]  # fmt: skip

TABLE_ROWS: Final = 60
BINS: Final = 48

_MODES: Final = (
    "activation_recompute", "tensor_par_comm_type", "tensor_par_overlap", "optimizer_sharding", "data_par_overlap",
    "seq_par_ag_redo", "weight_offload", "activations_offload", "optimizer_offload", "fused_activation",
    "attention_type",
)  # fmt: skip
_NUMBERS: Final = (
    "microbatch_size", "pipeline_interleaving", "tensor_par_net", "pipeline_par_net", "data_par_net",
)  # fmt: skip
CHOICES: Final = (
    "activation_recompute", "tensor_par_comm_type", "tensor_par_overlap", "optimizer_sharding", "data_par_overlap",
    "microbatch_size", "pipeline_interleaving", "weight_offload", "activations_offload", "optimizer_offload",
    "seq_par_ag_redo", "tensor_par_net", "pipeline_par_net", "data_par_net", "fused_activation", "attention_type",
)  # fmt: skip
"""The fields that the map hides, in the order in which their cost is shown."""


class Spread(NamedTuple):
    """How the executions of a cell spread over step times."""

    counts: list[int]
    edges: list[float]
    """[s]"""


def _cell(tensor_par: int, pipeline_par: int) -> tuple[Condition, Condition]:
    return Condition("tensor_par", "=", tensor_par), Condition("pipeline_par", "=", pipeline_par)


@st.cache_data(show_spinner=False, max_entries=256)
def top_of_cell(_exploration: Exploration, key: str, cell: tuple[int, int], statistic: str) -> pd.DataFrame:
    """The best executions of a cell, with the stored columns."""
    table: pd.DataFrame = _exploration.rows.top(TABLE_ROWS, statistic, where=_cell(*cell)).to_pandas()
    return table


@st.cache_data(show_spinner=False, max_entries=256)
def spread_in_cell(_exploration: Exploration, key: str, cell: tuple[int, int]) -> Spread:
    """Step times of a cell's feasible executions, up to 8 times the shortest."""
    times = _exploration.rows.table(["total_time"], where=_cell(*cell))["total_time"].to_numpy()
    if not len(times):
        return Spread([], [])
    # A long tail of very slow executions would squeeze everything worth seeing into one bin.
    high = min(float(times.max()), float(np.quantile(times, 0.98)) * 1.02, 8 * float(times.min()))
    low = float(times.min())
    counts, edges = np.histogram(times[times <= high], bins=BINS, range=(low, high if high > low else low * 1.01))
    return Spread(counts.tolist(), edges.tolist())


@st.cache_data(show_spinner=False, max_entries=256)
def near_best(_exploration: Exploration, key: str, rate: float, share: float = 0.95) -> tuple[int, int]:
    """(executions, cells) that reach a share of the best throughput [samples/s]."""
    where = [Condition("sample_rate", ">=", share * rate)]
    groups = _exploration.rows.best_by(["tensor_par", "pipeline_par"], "sample_rate", where=where)
    return int(np.sum(groups["rows"].to_numpy())), groups.num_rows


@st.cache_data(show_spinner=False, max_entries=64)
def choice_costs(_exploration: Exploration, key: str, statistic: str, factor: float) -> pd.DataFrame:
    """The best value of a metric per option of every hidden field that has more than one option.

    Columns: field, choice, value (NaN where nothing with that option is feasible), as `charts.choices` reads them.
    """
    higher = by_name(statistic).better != "lower"
    best: dict[tuple[str, Any], float] = {}
    for fields in (_MODES, _NUMBERS):
        groups = _exploration.rows.best_by(fields, statistic).to_pandas()
        for field in fields:
            found = groups.groupby(field, observed=True)["value"]
            for option, value in (found.max() if higher else found.min()).items():
                best[field, option] = float(value) * factor
    rows = [
        {"field": field, "choice": option, "value": best.get((field, option), float("nan"))}
        for field in CHOICES
        for option in _options(_exploration, field, [option for name, option in best if name == field])
    ]
    return pd.DataFrame(rows, columns=["field", "choice", "value"])


def _options(exploration: Exploration, field: str, found: list[Any]) -> list[Any]:
    """The options of a field in the space, none when there is only one."""
    space = exploration.scenario.space
    if field in _NUMBERS[2:]:
        options = sorted(found)
    elif field in _NUMBERS:
        attribute = "microbatches" if field == "microbatch_size" else "interleavings"
        options = sorted({value for cell in space.cells for value in getattr(cell, attribute)})
    else:
        present: set[Any] = set()
        for modes in space.modes:
            present |= set(modes.fields[field].tolist())
        words = by_name(field).choices
        options = [words[int(value)] if words else bool(value) for value in sorted(present, reverse=not words)]
    return options if len(options) > 1 else []


def reasons_in_cell(exploration: Exploration, cell: tuple[int, int]) -> dict[str, int]:
    """Executions of a cell that cannot run, by reason code, most frequent first."""
    total = np.zeros(len(reasons.REASONS) + 1, np.int64)
    for number, other in enumerate(exploration.scenario.space.cells):
        if (other.tensor_par, other.pipeline_par) == cell:
            total += exploration.reductions.rejected[number]
    found = {reasons.code_of(number): int(total[number]) for number in np.flatnonzero(total).tolist()}
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def cells_of(exploration: Exploration, metric: Metric) -> pd.DataFrame:
    """One row per (tensor, pipeline) pair with the best value of a metric, as `charts.cell_map` reads it.

    Where several batch sizes are tried, a pair stands for all of them: the best of their values, the sum of their
    counts, and the nearest of their obstacles.
    """
    cells = exploration.by_cell(metric.statistic)
    cells["value"] *= metric.factor
    if not cells.duplicated(["tensor_par", "pipeline_par"]).any():
        return cells
    sign = 1.0 if metric.column.better == "lower" else -1.0
    cells["_rank"] = (sign * cells["value"]).fillna(np.inf)
    cells["_miss"] = cells["shortfall_bytes"].fillna(np.inf)
    ordered = cells.sort_values(["_rank", "_miss"], kind="stable")
    pairs = ordered.groupby(["tensor_par", "pipeline_par"], sort=True)
    merged = pairs.first(skipna=False).reset_index()
    merged[["total", "feasible"]] = pairs[["total", "feasible"]].sum().to_numpy()
    return merged.drop(columns=["_rank", "_miss"])


@st.cache_data(show_spinner=False, max_entries=32)
def _needs(_exploration: Exploration, key: str) -> pd.DataFrame:
    return needs_of(_exploration.scenario)


def least_demanding(exploration: Exploration, cell: tuple[int, int]) -> tuple[int, str] | None:
    """(id, what would make it fit) of the execution of a cell that needs the least HBM; None where memory is not asked.
    """
    needs = _needs(exploration, exploration.key)
    here = needs[(needs["tensor_par"] == cell[0]) & (needs["pipeline_par"] == cell[1])]
    if not len(here):
        return None
    return int(here["id"].iloc[0]), str(here["remedy"].iloc[0])
