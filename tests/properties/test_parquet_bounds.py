"""Parquet files of a few kilobytes that unpack to gigabytes are refused before they are unpacked."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engine.columns import FIELDS
from engine.executions.files import TableFileError, read_executions

WHOLE: dict[str, Any] = {column.name: {"int64": 1, "bool": True, "str": "none"}[column.dtype] for column in FIELDS}


def write(file: Path, rows: int, **texts: Any) -> Path:
    columns = {name: pa.array([value] * rows) for name, value in WHOLE.items()} | texts
    pq.write_table(pa.table(columns), file, compression="zstd")
    return file


@pytest.mark.parametrize(
    ("rows", "cells", "sentence"),
    [
        (1, lambda: pa.array(["x" * 40_000_000]), "MB of text in 1 values of tensor_par_overlap"),
        (20_000, lambda: pa.array(["none"] * 19_999 + ["x" * 20_000]), "tensor_par_overlap of 20,000 characters"),
        (
            20_000,
            lambda: pa.DictionaryArray.from_arrays(pa.array([0] * 20_000), ["x" * 500_000]),
            "tensor_par_overlap of 500,000 characters",
        ),
        (2, lambda: pa.array([[0] * 3_000_000, [1]]), "3,000,001 values of tensor_par_overlap in 2 rows"),
        (1, lambda: pa.array([b"x" * 40_000_000]), "MB of text in 1 values"),
    ],
)
def test_large_cells_are_refused_before_they_take_memory(tmp_path: Path, rows: int, cells: Any, sentence: str) -> None:
    file = write(tmp_path / "small.parquet", rows, tensor_par_overlap=cells())
    assert file.stat().st_size < 150_000
    before = pa.total_allocated_bytes()
    tracemalloc.start()
    with pytest.raises(TableFileError, match=sentence):
        list(read_executions(file))
    assert tracemalloc.get_traced_memory()[1] < 30_000_000
    tracemalloc.stop()
    assert pa.total_allocated_bytes() - before < 10_000_000


def test_executions_come_back_as_they_were(tmp_path: Path) -> None:
    (found,) = read_executions(write(tmp_path / "a.parquet", 3))
    assert found.to_dict("records") == [WHOLE] * 3
    (large,) = read_executions(write(tmp_path / "b.parquet", 3, datatype=pa.array(["float16"] * 3, pa.large_string())))
    assert large["datatype"].tolist() == ["float16"] * 3
