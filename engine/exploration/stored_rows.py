"""Evaluated rows as stored rows: Arrow tables with the columns that their cost model stores."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from engine.columns import Column, fields_of, headline_of, headline_schema
from engine.cost_models.contract import PreparedCells
from engine.executions.arrays import distinct
from engine.space.rows import ExchangeVariant, RowChunk

__all__ = ["schema_for", "to_arrow"]


@cache
def schema_for(cost_model: str) -> pa.Schema:
    """Returns the schema of stored rows under a cost model.

    Args:
        cost_model: its name.
    """
    return headline_schema(cost_model)


"""Arrow schema of a stored row by cost model."""


def to_arrow(prepared: PreparedCells, rows: RowChunk) -> pa.Table:
    """Returns the executions of evaluated rows, one stored row each, variant after variant.

    Args:
        prepared: the cells that the rows are of.
        rows: a chunk of them, evaluated.
    """
    fields = _build_fields(prepared, rows)
    batches = [_build_variant(prepared, rows, variant, fields) for variant in rows.variants]
    return pa.Table.from_batches(batches, schema_for(prepared.space.cost_model))


def _build_fields(prepared: PreparedCells, rows: RowChunk) -> dict[str, npt.NDArray[Any]]:
    """Fields that all variants share [rows]; words as positions."""
    cell = rows.cell
    fields: dict[str, npt.NDArray[Any]] = {
        "tensor_par": prepared.cells.tensor_par[cell],
        "pipeline_par": prepared.cells.pipeline_par[cell],
        "data_par": prepared.cells.data_par[cell],
        "batch_size": prepared.cells.batch_size[cell],
        "microbatch_size": prepared.points.microbatch_size[rows.point],
        "pipeline_interleaving": prepared.points.interleaving[rows.point],
        "schedule": prepared.points.schedule[rows.point],
        "stage_layout": prepared.points.layout[rows.point],
    }
    fields |= prepared.space.further(prepared.cells.number[cell])
    for name in prepared.space.mode_fields:
        if name != "data_par_overlap":
            fields[name] = prepared.modes.fields[name][rows.mode]
    return fields


def _build_variant(
    prepared: PreparedCells, rows: RowChunk, variant: ExchangeVariant, shared: dict[str, npt.NDArray[Any]]
) -> pa.RecordBatch:
    count = len(variant.ids)
    constant = {
        "num_procs": prepared.space.num_procs,
        "tensor_par_net": rows.group.tensor_net,
        "pipeline_par_net": rows.group.pipeline_net,
        "data_par_net": variant.data_net,
        "data_par_overlap": variant.overlapped,
    }
    pick: Any = slice(None) if variant.rows is None else variant.rows
    arrays: list[pa.Array] = [pa.array(variant.ids)]
    for column in fields_of(prepared.space.cost_model):
        if column.name == "datatype":
            arrays.append(_build_words(np.zeros(count, np.int8), (prepared.space.datatype,)))
        elif column.name in constant and column.name not in shared:
            value = constant[column.name]
            arrays.append(pa.array(np.full(count, value, bool if column.dtype == "bool" else np.int32)))
        else:
            arrays.append(_build_field(column, shared[column.name][pick]))
    for column in headline_of(prepared.space.cost_model):
        values = variant.metrics[column.name] if column.name in variant.metrics else rows.metrics[column.name][pick]
        arrays.append(pa.array(values))
    return pa.RecordBatch.from_arrays(arrays, schema=schema_for(prepared.space.cost_model))


def _build_field(column: Column, values: npt.NDArray[Any]) -> pa.Array:
    if column.dtype == "bool":
        return pa.array(values)
    if column.dtype == "str":
        if column.open is None:
            return _build_words(values.astype(np.int8), column.choices)
        # Rows need only their own words, not all words that the process has met.
        first, which = distinct(values)
        words = tuple(column.words[values[row]] for row in first.tolist())
        return _build_words(which.astype(np.int8), words)
    return pa.array(values.astype(np.int32))


def _build_words(codes: npt.NDArray[np.int8], words: tuple[str, ...]) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(words, pa.string()))
