"""Executions as arrays: reading a table of the 23 fields and checking each row.

An `Executions` holds one array per field [rows]: whole numbers as int64, booleans as bool, words as the position in
the field's list of choices (int64, -1 for a word that is not in it). Rows with a malformed value are marked with a
reason and carry harmless values, so that arithmetic on the whole array never meets them unprepared.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from engine.columns import FIELDS, Column
from engine.executions import reasons
from engine.executions.arrays import Flags, Ints
from engine.executions.field_values import (
    MISSING,
    Fault,
    column_names,
    convert,
    to_flag,
    to_open_word,
    to_whole,
    to_word,
)
from engine.executions.rules import mode_rules
from models import datatypes

__all__ = [
    "DATATYPES",
    "FIELD_NAMES",
    "LARGEST",
    "ExecutionTableError",
    "Executions",
    "Malformed",
    "Parsed",
    "check_fields",
    "mark",
    "parse",
    "parse_columns",
]


FIELD_NAMES: tuple[str, ...] = tuple(column.name for column in FIELDS)

DATATYPES: Mapping[str, int] = {each.name: each.bits // 8 for each in datatypes.for_products(program="calculon")}
"""Datatypes of the reference, with their width [bytes]."""

LARGEST = 2**31 - 1
"""Largest whole number accepted in a field; products of three of them and a model's sizes stay exact enough."""


class ExecutionTableError(ValueError):
    """Table of executions that cannot be read; the message names the column and the reason."""


@dataclass(slots=True)
class Executions:
    """The 23 fields of many executions, each an array [rows]; words are positions in their list of choices."""

    num_procs: Ints
    tensor_par: Ints
    pipeline_par: Ints
    data_par: Ints
    tensor_par_net: Ints
    pipeline_par_net: Ints
    data_par_net: Ints
    batch_size: Ints
    microbatch_size: Ints
    datatype: Ints
    fused_activation: Flags
    attention_type: Ints
    activation_recompute: Ints
    pipeline_interleaving: Ints
    optimizer_sharding: Flags
    tensor_par_comm_type: Ints
    tensor_par_overlap: Ints
    seq_par_ag_redo: Flags
    data_par_overlap: Flags
    weight_offload: Flags
    activations_offload: Flags
    optimizer_offload: Flags
    training: Flags

    def __len__(self) -> int:
        return len(self.num_procs)


@dataclass(slots=True)
class Malformed:
    """Faults of malformed rows for their sentences: one entry per reason and field."""

    number: int
    field: str
    accepted: str
    rows: Ints
    values: list[str]


class Parsed(NamedTuple):
    """Columns of a table, and the faults of its rows."""

    arrays: dict[str, npt.NDArray[Any]]
    """By the name of the column, each [rows]."""
    reason: npt.NDArray[np.int16]
    """Number of the first reason of each row, 0 where every value is well formed [rows]."""
    malformed: list[Malformed]
    gaps: dict[str, Flags]
    """Rows in which an optional column of the table has no value, by name, each [rows]; only columns with a value
    elsewhere."""


def words_of(column: Column, datatypes: Sequence[str] = tuple(DATATYPES)) -> tuple[str, ...]:
    """Returns the words a text field may hold, in the order of their positions.

    Args:
        column: a text field of the register.
        datatypes: the words of the datatype, which the register leaves open.
    """
    return column.choices or tuple(datatypes)


def parse(table: pd.DataFrame) -> tuple[Executions, npt.NDArray[np.int16], list[Malformed]]:
    """Read a table with the 23 fields of an execution.

    Returns the executions, the reason number of each row [rows] (0: well formed) and the malformed values. Raises
    `ExecutionTableError` for something that is not a table, or lacks or repeats a column.

    Args:
        table: input of any type.
    """
    parsed = parse_columns(table, FIELDS)
    return Executions(**parsed.arrays), parsed.reason, parsed.malformed


def parse_columns(
    table: pd.DataFrame,
    wanted: Sequence[Column],
    datatypes: Sequence[str] = tuple(DATATYPES),
    optional: Collection[str] = (),
) -> Parsed:
    """Reads columns of a table.

    Raises `ExecutionTableError` as `parse` does.

    Args:
        table: input of any type.
        wanted: columns to read.
        datatypes: the words of the field datatype.
        optional: columns that may be absent or empty in a row without a fault.
    """
    if not isinstance(table, pd.DataFrame):
        raise ExecutionTableError(
            f"Executions must be a pandas DataFrame with the 23 execution fields, not {type(table).__name__}."
        )
    names = column_names(table)
    missing = [column.name for column in wanted if column.name not in names and column.name not in optional]
    if missing:
        raise ExecutionTableError(
            f"The table of executions has no column {', '.join(missing)}; it needs all 23 fields: "
            f"{', '.join(FIELD_NAMES)}."
        )
    repeated = [column.name for column in wanted if names.count(column.name) > 1]
    if repeated:
        raise ExecutionTableError(f"The table of executions has more than one column {', '.join(repeated)}.")
    reason = np.zeros(len(table), np.int16)
    malformed: list[Malformed] = []
    arrays: dict[str, npt.NDArray[Any]] = {}
    gaps: dict[str, Flags] = {}
    for column in wanted:
        if column.name not in names:
            continue
        words = words_of(column, datatypes)
        arrays[column.name], faults = _parse_column(column, table[column.name], words)
        for code, rows, values in faults:
            if code == MISSING and column.name in optional:
                gaps[column.name] = np.zeros(len(table), bool)
                gaps[column.name][rows] = True
                continue
            first = reason[rows] == reasons.FITS
            if first.any():
                number, new = reasons.number_of(code), rows[first]
                reason[new] = number
                accepted = ", ".join(words) if column.dtype == "str" else f"{LARGEST:,}"
                kept = [value for value, chosen in zip(values, first.tolist(), strict=True) if chosen]
                malformed.append(Malformed(number, column.name, accepted, new, kept))
    return Parsed(arrays, reason, malformed, gaps)


def _parse_column(column: Column, series: pd.Series[Any], words: Sequence[str]) -> tuple[npt.NDArray[Any], list[Fault]]:
    """One field as an array, and its malformed rows."""
    kind = series.dtype.kind if isinstance(series.dtype, np.dtype) else "object"
    if column.dtype == "int64":
        if kind in "iu" and len(series):
            values = series.to_numpy()
            if values.min() >= -LARGEST and values.max() <= LARGEST:
                return values.astype(np.int64, copy=False), []
        return convert(series, to_whole(LARGEST), np.int64)
    if column.dtype == "bool":
        return (series.to_numpy(), []) if kind == "b" else convert(series, to_flag, np.bool_)
    return convert(series, to_word(words) if column.open is None else to_open_word(column.position), np.int64)


def check_fields(e: Executions, reason: npt.NDArray[np.int16]) -> None:
    """Marks the rows that break a rule among their own fields (no model or system needed).

    The rules and their order are the assertions of the reference's constructor.

    Args:
        e: the executions [rows].
        reason: number of the first reason of each row, 0 for none [rows]; changed in place.
    """
    fields = {name: getattr(e, name) for name in FIELD_NAMES}
    rules = mode_rules(fields, single_tensor=e.tensor_par == 1, single_data=e.data_par == 1)
    degrees = np.minimum(np.minimum(e.tensor_par, e.pipeline_par), e.data_par)
    # In float64: three degrees may exceed int64, and a product that equals num_procs is small enough to be exact.
    product = e.tensor_par.astype(np.float64) * e.pipeline_par * e.data_par
    data_par = np.maximum(e.data_par, 1)
    local_batch = e.batch_size // data_par
    checks: tuple[tuple[str, Flags], ...] = (
        ("num_procs_not_positive", e.num_procs < 1),
        ("parallelism_not_positive", degrees < 1),
        ("parallelism_product", product != e.num_procs),
        ("batch_size_not_positive", e.batch_size < 1),
        ("microbatch_size_not_positive", e.microbatch_size < 1),
        ("batch_not_divisible_by_data_par", local_batch * data_par != e.batch_size),
        ("local_batch_not_divisible_by_microbatch", local_batch % np.maximum(e.microbatch_size, 1) != 0),
        ("unknown_attention_type", e.attention_type < 0),
        ("unknown_recompute", e.activation_recompute < 0),
        ("recompute_needs_training", rules["recompute_needs_training"]),
        ("interleaving_not_positive", e.pipeline_interleaving < 1),
        ("interleaving_needs_pipeline", (e.pipeline_par == 1) & (e.pipeline_interleaving != 1)),
        ("sharding_needs_data_par", rules["sharding_needs_data_par"]),
        ("unknown_tensor_par_comm_type", e.tensor_par_comm_type < 0),
        ("unknown_tensor_par_overlap", e.tensor_par_overlap < 0),
    )
    # A row keeps its first reason, so it does no harm that two of these rules stand above already.
    mark(reason, (*checks, *rules.items()))


def mark(reason: npt.NDArray[np.int16], checks: tuple[tuple[str, Flags], ...]) -> None:
    """Gives each row that has no reason yet the first of the checks that it fails.

    Args:
        reason: number of the first reason of each row, 0 for none [rows]; changed in place.
        checks: code of a reason, and which rows it holds for [rows], in order.
    """
    for code, failed in checks:
        if failed.any():
            np.copyto(reason, reasons.number_of(code), where=failed & (reason == reasons.FITS))
