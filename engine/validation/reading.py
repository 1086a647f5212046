"""Tables of measured runs: reading them and finding the faults of each row.

Two layouts are read: the schema of `data/runs.csv`, and vTrain's published tables, recognised by their header. Every
field comes out in one type, regardless of the file; unreadable values are named row by row.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import numpy as np
import numpy.typing as npt
import pandas as pd

from engine.executions.csv_tables import MOST_COLUMNS, file_content, parsed, text_of
from engine.executions.field_values import distinct, number_in, quoted, whole_number
from models.documents import shown

__all__ = ["NUMBERS", "TEXTS", "TRUTHS", "Runs", "RunsFileError", "library_runs", "read_runs", "runs_in", "runs_of"]

MOST_BYTES = 50_000_000
"""Largest file of runs that is read [bytes]; a run takes some 500 to 1,000."""
MOST_RUNS = 100_000
"""Most runs of a table. Source: stated by us."""

COUNTS = (
    "hidden",
    "ffn",
    "layers",
    "heads",
    "kv_heads",
    "head_dim",
    "vocab",
    "seq_len",
    "moe_experts",
    "moe_topk",
    "moe_ffn",
    "moe_shared",
    "moe_dense_layers",
    "moe_groups",
    "moe_groups_per_token",
    "mtp_layers",
    "gpus_per_node",
    "num_gpus",
    "tp",
    "pp",
    "dp",
    "cp",
    "ep",
    "vpp",
    "mbs",
    "gbs",
    "zero_stage",
    "core",
)
"""Whole numbers."""
MEASURES = ("step_time_s", "tokens_per_s_per_gpu", "mem_gib")
"""Positive measured numbers."""
NUMBERS = COUNTS + MEASURES
TRUTHS = ("gated_mlp", "tied_embeddings", "seq_parallel", "fsdp")
TEXTS = (
    "id",
    "source",
    "date",
    "framework",
    "family",
    "model",
    "attn",
    "hardware",
    "scaleup",
    "scaleout",
    "recompute",
    "dtype",
    "schedule",
    "layout",
    "mem_kind",
    "status",
    "notes",
    "group",
    "split",
    "completeness",
)
MAY_BE_ZERO = frozenset(
    {
        "moe_experts",
        "moe_topk",
        "moe_ffn",
        "moe_shared",
        "moe_dense_layers",
        "mtp_layers",
        "zero_stage",
        "core",
    }
)
NONE_IS_ZERO = frozenset({"cp", "ep", "vpp"})
"""Degrees for which tables write 0 instead of 1."""
LARGEST = 1e9
"""Largest number of a column of a table. Source: stated by us."""
LARGEST_OF = {"zero_stage": 3.0, "core": 1.0}
BLANK = frozenset(
    {"nan", "none given", "n/a", "na", "null", "unknown", "not stated", "not given", "not reported", "?", "-", "–", "—"}
)
"""Words in any letter case that mean that a cell is empty; for numbers and truths also "none"."""

VTRAIN = {
    "# GPUs": "num_gpus",
    "global batch": "gbs",
    "micro batch": "mbs",
    "hidden size": "hidden",
    "attention heads": "heads",
    "# layers": "layers",
    "sequence length": "seq_len",
    "tensor parallelism": "tp",
    "data parallelism": "dp",
    "pipeline parallelism": "pp",
}
VTRAIN_TIME = "iteration time (ms)"
ONCE = (*NUMBERS, *TRUTHS, *TEXTS, *VTRAIN, VTRAIN_TIME)
"""Columns with a meaning, in any letter case."""
VTRAIN_FACTS: dict[str, object] = {
    "framework": "vTrain (Megatron-LM)",
    "family": "dense_megatron",
    "hardware": "A100-80GB-SXM",
    "vocab": 51200,
    "gated_mlp": False,
    "tied_embeddings": True,
    "cp": 1,
    "vpp": 1,
    "recompute": "full",
    "seq_parallel": False,
    "zero_stage": 0,
    "fsdp": False,
    "dtype": "fp16",
    "status": "ok",
    "split": "calibration",
    "core": 1,
    "completeness": "full",
}
"""Settings that vTrain's paper states for all its runs: full recomputation, 1F1B, no interleaving, no overlap, 16 bits,
A100.
"""


class RunsFileError(ValueError):
    """A table of runs that cannot be read at all; one sentence."""


@dataclass(frozen=True, slots=True)
class Runs:
    """Runs in one type per field, with the faults of each row ("" without a fault).

    `table` has every column of `NUMBERS` and `TRUTHS` as float64 (NaN where not given), of `TEXTS` as str ("" where not
    given), plus further columns of the file unchanged. `faults` is one sentence per row [rows].
    """

    table: pd.DataFrame
    faults: npt.NDArray[np.object_]


def library_runs() -> Runs:
    """Returns the measured runs of the package: `runs.csv`, `runs_2026_11.csv` and vTrain's two tables."""
    packaged = _library_runs()
    return Runs(packaged.table.copy(), packaged.faults.copy())


@cache
def _library_runs() -> Runs:
    """Return them as they were read once: every fit compares its runs with these."""
    data = files("engine.validation").joinpath("data")
    parts = []
    for name in ("runs.csv", "runs_2026_11.csv", "vtrain_single_node.csv", "vtrain_multi_node.csv"):
        with data.joinpath(name).open(encoding="utf-8") as file:
            parts.append(
                _to_runs_schema(pd.read_csv(file, dtype=str, keep_default_na=False), name.removesuffix(".csv"))
            )
    return parse_runs(pd.concat(parts, ignore_index=True))


def read_runs(path: str | os.PathLike[str]) -> Runs:
    """Returns the runs of a CSV file.

    Args:
        path: of a CSV file.

    Raises `RunsFileError` where it is no table of runs at all; bad rows only get a fault.
    """
    return runs_in(file_content(path, MOST_BYTES, RunsFileError), os.path.basename(path))


def runs_in(content: bytes, name: str, *, most_bytes: int = MOST_BYTES, most_runs: int = MOST_RUNS) -> Runs:
    """Returns the runs of what a CSV file called `name` holds.

    Args:
        content: of the file [bytes].
        name: of the table, for messages.
        most_bytes: the largest content that is read [bytes].
        most_runs: the most rows that are read.

    Raises `RunsFileError` as `read_runs` does.
    """
    label = shown(name)[1:-1]
    text = text_of(content, label, most_bytes, RunsFileError)
    raw = parsed(text, label, RunsFileError, most_rows=most_runs, once=ONCE)
    return parse_runs(_to_runs_schema(raw, os.path.splitext(label)[0]))


def runs_of(table: pd.DataFrame, name: str = "the table") -> Runs:
    """Returns the runs of a table in memory, in either layout; cells may be numbers or text.

    Args:
        table: columns in either layout; cells may be numbers or text [rows].
        name: of the table, for messages.

    Raises `RunsFileError` where it is no table of runs.
    """
    if not isinstance(table, pd.DataFrame):
        raise RunsFileError(f"Measured runs must be a pandas DataFrame, not {type(table).__name__}.")
    if table.shape[1] > MOST_COLUMNS:
        raise RunsFileError(f"{name} has {table.shape[1]:,} columns; a table of runs has up to {MOST_COLUMNS}.")
    labels = [str(label).strip() for label in table.columns]
    folded = [label.lower() for label in labels]
    twice = [column for column in ONCE if folded.count(column.lower()) > 1]
    if twice:
        raise RunsFileError(f"{name} has more than one column {twice[0]}; each may appear once.")
    texts = {label: _as_written(table.iloc[:, place]) for place, label in enumerate(labels)}
    return parse_runs(_to_runs_schema(pd.DataFrame(texts, index=range(len(table)), dtype=object), name))


def _as_written(series: pd.Series) -> npt.NDArray[np.object_]:
    """Return the cells of a column as a file would have them, "" for an empty cell [rows]."""
    codes, values = distinct(series)
    words = [value if isinstance(value, str) else _format_digits(value) or quoted(value) for value in values]
    return np.array([*words, ""], object)[np.where(codes < 0, len(words), codes)]


def _format_digits(value: object) -> str:
    number = whole_number(value) if isinstance(value, int | np.integer) else None
    return str(number) if number is not None and abs(number) < 1e18 else ""


def _to_runs_schema(raw: pd.DataFrame, name: str) -> pd.DataFrame:
    """The table in the schema of runs.csv, all text."""
    written = {column.lower(): column for column in ONCE}
    raw = raw.rename(columns=lambda column: written.get(str(column).strip().lower(), str(column).strip()))
    raw = raw.loc[:, ~raw.columns.duplicated()]
    if not set(VTRAIN) <= set(raw.columns):
        if not {"hardware", "hidden", "layers"} <= set(raw.columns):
            known = ", ".join(shown(str(column))[1:-1] for column in raw.columns[:8]) or "none"
            raise RunsFileError(
                f"{name} has the columns {known}, which are no table of runs; it must have at least hardware, hidden "
                "and layers as in runs.csv, or vTrain's columns."
            )
        return raw
    table = raw.rename(columns=VTRAIN)[list(VTRAIN.values())].copy()
    if VTRAIN_TIME in raw.columns:
        milliseconds = pd.to_numeric(raw[VTRAIN_TIME], errors="coerce")
        table["step_time_s"] = _as_text(milliseconds / 1e3)
    hidden = pd.to_numeric(table["hidden"], errors="coerce")
    heads = pd.to_numeric(table["heads"], errors="coerce")
    table["ffn"] = _as_text(4.0 * hidden)
    table["kv_heads"] = table["heads"]
    table["head_dim"] = _as_text(hidden / heads)
    for column, value in VTRAIN_FACTS.items():
        table[column] = str(value)
    kind = "single" if "single" in name else "multi" if "multi" in name else name
    table["source"] = f"vTrain {kind}"
    table["id"] = [f"vtrain-{kind}-{position}" for position in range(len(table))]
    if kind == "single":
        # Rows of one (tensor parallel, hidden, layers) cell share the host's noise: keep them in one fold.
        table["group"] = "vTrain single|" + table["tp"] + "|" + table["hidden"] + "|" + table["layers"]
    else:
        table["group"] = table["id"]
    return table


def _as_text(values: pd.Series) -> pd.Series:
    return values.map(lambda value: "" if value != value else repr(float(value)))


def parse_runs(raw: pd.DataFrame) -> Runs:
    """Returns the runs of a table in the schema of runs.csv whose cells may hold anything.

    Args:
        raw: columns of runs.csv; cells may hold anything [rows].
    """
    table = raw.reset_index(drop=True)
    size = len(table)
    faults: list[list[str]] = [[] for _ in range(size)]
    columns: dict[str, object] = {}
    for name in TEXTS:
        columns[name] = _clean_texts(table[name]) if name in table else np.full(size, "", object)
    for name in COUNTS + MEASURES:
        check = _parse_count if name in COUNTS else _parse_measurement
        columns[name] = _parse_column(table, name, check, faults)
    for name in TRUTHS:
        columns[name] = _parse_column(table, name, _parse_truth, faults)
    ids = np.asarray(columns["id"], object)
    columns["id"] = np.array([ids[i] or f"row-{i + 1}" for i in range(size)], object)
    for name in table.columns:
        columns.setdefault(str(name), table[name])
    return Runs(pd.DataFrame(columns, index=range(size)), np.array(["; ".join(found) for found in faults], object))


def _clean_texts(values: pd.Series) -> npt.NDArray[np.object_]:
    cleaned = ["" if value is None or value != value else str(value).strip() for value in values]
    return np.array(["" if text.lower() in BLANK else text for text in cleaned], object)


def _parse_column(
    table: pd.DataFrame, name: str, read: Callable[[str, str], float], faults: list[list[str]]
) -> npt.NDArray[np.float64]:
    values = np.full(len(table), np.nan)
    if name not in table:
        return values
    known: dict[str, float | str] = {"": np.nan}
    for position, text in enumerate(_clean_texts(table[name])):
        if text not in known:
            known[text] = _value_or_fault(name, text, read)
        found = known[text]
        if isinstance(found, str):
            faults[position].append(found)
        else:
            values[position] = found
    return values


def _value_or_fault(name: str, text: str, read: Callable[[str, str], float]) -> float | str:
    """Return the value of a cell, or a sentence on its fault."""
    if text.lower() == "none":
        return np.nan
    try:
        return read(name, text)
    except ValueError as problem:
        return str(problem)


def _parse_number(name: str, text: str) -> float:
    exact = number_in(text)
    if exact is None:
        raise ValueError(f"{name} is {text[:40]!r}, which is not a number")
    value = float(exact)
    if not np.isfinite(value) or abs(value) > LARGEST_OF.get(name, LARGEST):
        raise ValueError(f"{name} is {text[:40]}, which is out of range")
    return value


def _parse_count(name: str, text: str) -> float:
    value = _parse_number(name, text)
    if value == 0 and name in NONE_IS_ZERO:
        return np.nan
    least = 0 if name in MAY_BE_ZERO else 1
    if value < least or whole_number(number_in(text)) is None:
        # vTrain-style derived head sizes may be fractions of an element; nothing else may.
        if name == "head_dim" and value > 0:
            return value
        raise ValueError(f"{name} is {text[:40]}; it must be a whole number of at least {least}")
    return value


def _parse_measurement(name: str, text: str) -> float:
    value = _parse_number(name, text)
    if value <= 0:
        raise ValueError(f"{name} is {text[:40]}; a measurement must be above 0")
    return value


def _parse_truth(name: str, text: str) -> float:
    word = text.lower()
    number = number_in(word)
    if word in ("true", "yes") or number == 1:
        return 1.0
    if word in ("false", "no") or number == 0:
        return 0.0
    raise ValueError(f"{name} is {text[:40]!r}; it must be True or False")
