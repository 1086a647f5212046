"""Whole columns as text at once: many times faster than row by row."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["joined", "json_values"]


def joined(columns: Sequence[pa.Array], before: Sequence[str], after: str) -> bytes:
    """Returns the rows of text columns one after the other: before each value its own text, and one text after each
    row."""
    if not len(columns) or not len(columns[0]):
        return b""
    wide = pa.large_string()  # batches of long rows pass the 2 GiB of the ordinary type
    pieces: list[pa.Array | pa.Scalar] = []
    for text, column in zip(before, columns, strict=True):
        pieces += [pa.scalar(text, wide), column.cast(wide)]
    rows = pc.binary_join_element_wise(*pieces, pa.scalar(after, wide), pa.scalar("", wide))
    length = int(pc.sum(pc.binary_length(rows)).as_py())
    return bytes(rows.buffers()[2].slice(0, length))


def json_values(column: pa.Array) -> pa.Array:
    """Returns a column as JSON writes it. Infinite values become texts, absent ones null."""
    kind = column.type
    if pa.types.is_boolean(kind):
        text = pc.if_else(column, "true", "false")
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
        distinct = column.dictionary_encode()
        written = pa.array([json.dumps(word) for word in distinct.dictionary.to_pylist()], pa.string())
        text = written.take(distinct.indices)
    else:
        text = column.cast(pa.string())
        if pa.types.is_floating(kind):
            infinite = pc.if_else(pc.less(column, 0.0), '"-Infinity"', '"Infinity"')
            text = pc.if_else(pc.is_inf(column), infinite, text)
            text = pc.if_else(pc.is_nan(column), "null", text)
    return pc.fill_null(text, "null")
