"""Measured runs and their predictions, computed once per server; filters, tables of errors, uploads."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd
import streamlit as st

from dashboard.compat.caches import remembered
from dashboard.link.document_validation import Refused, sentence
from dashboard.widgets.upload import read_file
from engine import validation
from engine.questions.documents.validations import ValidationQuestion
from engine.questions.validations import find_predictions
from engine.validation import Runs, RunsFileError, generation_of
from engine.validation.accepted import stored_errors
from engine.validation.error_tables import error_statistics, source_family
from engine.validation.ranking import layout_groups
from engine.validation.reading import runs_in
from engine.validation.selection import reported, sources_of
from engine.validation.uncertainty import Interval, interval
from engine.validation.words import accelerator_named, datatype_of

__all__ = [
    "EVERY",
    "MOST_BYTES",
    "MOST_RUNS",
    "Filters",
    "PredictedRuns",
    "counted_rows",
    "error_rows",
    "field_values",
    "headline_errors",
    "is_selected",
    "load_packaged_runs",
    "load_uploaded_runs",
    "memory_rows",
    "read_upload",
    "unsupported_rows",
    "with_calculon",
]

MOST_BYTES: Final = 2_000_000
"""Largest upload that is read [bytes]."""
MOST_RUNS: Final = 5_000
EVERY: Final = "all"
TEXTS: Final = ("hardware", "family", "framework", "dtype", "recompute", "attn", "software_rule")


@dataclass(frozen=True, slots=True)
class PredictedRuns:
    """Runs with their predictions. Shared by sessions: never change the tables.

    `rows` has one row per run: the fields of the runs, the columns of `engine.validation.validate`, and `source_family`
    and `counted` (whether errors are reported on it). `parts` has the parts of each predicted step [s].
    """

    key: str
    runs: Runs
    rows: pd.DataFrame
    parts: pd.DataFrame
    is_packaged: bool


class Filters(NamedTuple):
    """Filters of the page: one source, accelerator and family each, or all."""

    source: str = EVERY
    hardware: str = EVERY
    family: str = EVERY


def _predict_runs(key: str, runs: Runs, is_packaged: bool) -> PredictedRuns:
    predictions = find_predictions(ValidationQuestion(), runs).table
    rows = pd.concat([runs.table, predictions.drop(columns=["id"])], axis=1)
    # The runs have a field `status`, too: how the run ended.
    rows = rows.loc[:, ~rows.columns.duplicated(keep="last")].copy()
    rows["source_family"] = source_family(runs.table["source"]).replace("", "not given")
    rows["counted"] = reported(runs.table)
    rows["row"] = np.arange(1, len(rows) + 1)
    return PredictedRuns(key, runs, rows, validation.breakdown(runs), is_packaged)


@st.cache_resource(show_spinner="Predicting the measured runs", max_entries=1)
def load_packaged_runs() -> PredictedRuns:
    """Returns the package's runs with their predictions."""
    return _predict_runs("packaged", validation.library_runs(), True)


def load_uploaded_runs(content: bytes, name: str) -> PredictedRuns:
    """Returns the runs of an uploaded CSV file with their predictions. Raises `Refused` with one sentence."""
    return _predict_upload(hashlib.sha256(content).hexdigest(), name, content)


@st.cache_resource(show_spinner="Predicting the uploaded runs", max_entries=6)
def _predict_upload(key: str, name: str, _content: bytes) -> PredictedRuns:
    return _predict_runs(key, read_file(read_upload, _content, name), False)


def read_upload(content: bytes, name: str) -> Runs:
    """Return the runs of an uploaded CSV file, typed. Raises `Refused`; bad rows only get a fault."""
    try:
        runs = runs_in(content, name, most_bytes=MOST_BYTES, most_runs=MOST_RUNS)
    except RunsFileError as problem:
        raise Refused(sentence(problem)) from None
    if not len(runs.table):
        raise Refused(f"{name} has no run; below the header there must be a row per run.")
    return runs


def is_selected(checked: PredictedRuns, filters: Filters) -> pd.Series[bool]:
    """Returns for each row whether it passes the filters."""
    keep = pd.Series(True, index=checked.rows.index)
    for name, wanted in zip(("source_family", "hardware", "family"), filters, strict=True):
        if wanted != EVERY:
            keep &= checked.rows[name] == wanted
    return keep


def counted_rows(checked: PredictedRuns, filters: Filters) -> pd.DataFrame:
    """Returns the counted rows: reported, filtered, predicted and measured."""
    keep = is_selected(checked, filters) & checked.rows["counted"] & np.isfinite(checked.rows["error"])
    found: pd.DataFrame = checked.rows[keep]
    return found


def headline_errors(checked: PredictedRuns, filters: Filters) -> dict[str, float]:
    """Returns `engine.validation.error_tables.ERROR_COLUMNS` over the filtered rows."""
    keep = (is_selected(checked, filters) & checked.rows["counted"]).to_numpy(bool)
    rows = checked.rows
    return error_statistics(
        rows["predicted_step_time_s"].to_numpy(np.float64)[keep],
        rows["measured_step_time_s"].to_numpy(np.float64)[keep],
        layout_groups(checked.runs.table)[keep],
        rows["gbs"].to_numpy(np.float64)[keep],
    )


@st.cache_resource(show_spinner="Asking Calculon's model about every run that it can express", max_entries=4)
def with_calculon(_checked: PredictedRuns, key: str) -> pd.DataFrame:
    """Return predictions of both models; takes several seconds."""
    return find_predictions(ValidationQuestion(calculon=True), _checked.runs).table


@remembered(64)
def error_rows(_checked: PredictedRuns, key: str, filters: Filters, calculon: bool) -> pd.DataFrame:
    """Return errors per source and hardware of the filtered rows, summary rows first.

    The stored table is used if it has the answer: for the package's runs, not filtered by family.
    """
    checked = _checked
    keep = is_selected(checked, filters)
    if checked.is_packaged and filters.family == EVERY:
        table = stored_errors()
        names = set(checked.rows["source_family"][keep] + ", " + checked.rows["hardware"][keep])
        wanted = (table["kind"] == "source and hardware") & table["name"].isin(names)
        if filters == Filters():
            wanted |= table["kind"] == "set"
        return table[wanted].reset_index(drop=True)
    keep &= checked.rows["counted"]
    if not keep.any():
        return pd.DataFrame(columns=["kind", "name"])
    predictions = with_calculon(checked, key) if calculon else checked.rows
    table = validation.error_table(
        checked.runs.table[keep].reset_index(drop=True), predictions[keep.to_numpy(bool)].reset_index(drop=True)
    )
    shown = (table["kind"] == "source and hardware") | (table["name"] == "all rows")
    return table[shown].reset_index(drop=True)


def memory_rows(checked: PredictedRuns, filters: Filters) -> pd.DataFrame:
    """Return errors of memory per source, of the filtered rows."""
    keep = is_selected(checked, filters) & checked.rows["counted"]
    if not keep.any():
        return pd.DataFrame(columns=["name", "rows", "mean", "median", "largest", "bias"])
    table = checked.runs.table[keep].reset_index(drop=True)
    return validation.memory_table(table, checked.rows[keep].reset_index(drop=True))


def unsupported_rows(checked: PredictedRuns, filters: Filters) -> pd.DataFrame:
    """Returns every row without a prediction: row, id, source, hardware, reason, reason_text."""
    keep = is_selected(checked, filters) & (checked.rows["status"] != "predicted")
    names = ["row", "id", "reason", "reason_text", "model", "hardware", "source_family"]
    return checked.rows.loc[keep, names]


def field_values(rows: pd.DataFrame, field: str) -> pd.Series[Any]:
    """Returns a field of the rows for the residual chart: numbers, or words with "not given" where empty."""
    if field == "year":
        parts = rows["date"].astype(str).str.extract(r"^(\d{4})(?:-(\d\d))?").astype(np.float64)
        return parts[0] + (parts[1].fillna(7) - 1) / 12
    if field in TEXTS:
        return rows[field].astype(str).str.slice(0, 40).replace("", "not given")
    return rows[field].astype(np.float64)


def interval_of(row: pd.Series[Any]) -> Interval | None:
    """Return the errors of unseen runs of its kind and of other sources; None without such runs."""
    named = accelerator_named(str(row["hardware"]))
    if named is None:
        return None
    system = named[0]
    source = str(sources_of(row.to_frame().T)[0])
    datatype = datatype_of(str(row["dtype"]))
    return interval(
        generation=generation_of(system),
        experts=bool(row["moe_experts"] > 0),
        bits=None if datatype is None else datatype.bits,
        without=source,
    )
