"""Files and tables made to be expensive or misread: every reader answers soon, in one sentence of its own."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import engine
from dashboard.link.document_validation import Refused
from dashboard.pages.validation.queries import read_upload
from engine import serving
from engine.calibrate import CalibrateError, read_paths
from engine.columns import FIELDS
from engine.executions.files import TableFileError, read_executions
from engine.validation import RunsFileError, read_runs, runs_of, validate
from tests.engine.validation.runs import table as runs_table

SOON = 60.0
"""Tells what never ends or grows with the square [s], whatever the machine: the files below took minutes, or for ever.
What reads them takes milliseconds."""

READERS: dict[str, tuple[Callable[[Path], Any], type[Exception]]] = {
    "validate": (lambda path: validate(read_runs(path)), RunsFileError),
    "upload": (lambda path: read_upload(path.read_bytes(), path.name), Refused),
    "calibrate": (lambda path: read_paths([path]), CalibrateError),
    "evaluate": (lambda path: list(read_executions(path)), TableFileError),
}
RUNS = runs_table({}).to_csv(index=False).splitlines()
HEADER, ROW = RUNS[0].encode(), RUNS[1].encode()
WIDE = b",".join(b"c%d" % number for number in range(20_000))

REFUSED: dict[str, bytes] = {
    "20,000 columns": HEADER + b"," + WIDE + b"\n" + ROW + b"\n",
    "20,000 empty columns": HEADER + b"," * 20_000 + b"\n" + ROW + b"\n",
    "20,000 nameless columns": b"," * 20_000 + b"\n" + ROW + b"\n",
    "a row of 20,000 values": HEADER + b"\n" + ROW + b"\n" + WIDE + b"\n",
    "only rows of 20,000 values": HEADER + b"\n" + (WIDE + b"\n") * 20,
    "a column twice": HEADER + b",tp\n" + ROW + b",7\n",
    "a column twice in another letter case": HEADER + b",TP\n" + ROW + b",7\n",
    "no line end in a megabyte": b"x" * 1_000_000,
    "quotes that never end": HEADER + b'\n"' + ROW + b"\n" + (b"x" * 99 + b"\n") * 15_000,
    "nothing": b"",
    "line ends": b"\n" * 1_000_000,
    "zeros": bytes(1_000_000),
    "half of UTF-16": b"\xff\xfe\x00",
    "quotes": b'"' * 1_000_000,
    "a name of a megabyte": b"hardware,hidden,layers," + b"x" * 1_000_000 + b",tp,tp\n1,2,3,4,5,6\n",
    "line ends in a name": b'"a\nb","c\r\nd",e\n1,2,3\n',
}


def _refused(reader: str, path: Path) -> str:
    read, error = READERS[reader]
    began = time.perf_counter()
    with pytest.raises(error) as refused:
        read(path)
    assert time.perf_counter() - began < SOON
    return str(refused.value)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("content", REFUSED)
def test_a_hostile_file_is_refused_soon_and_in_one_sentence(reader: str, content: str, tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_bytes(REFUSED[content])
    told = _refused(reader, path)
    assert "table" in told
    assert told.isprintable(), told
    assert len(told) < 700, told


@pytest.mark.parametrize("reader", ["validate", "calibrate", "evaluate"])
@pytest.mark.parametrize("made", ["folder", "pipe", "nothing", "loop"])
def test_what_is_no_file_is_refused_without_waiting(reader: str, made: str, tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    if made == "folder":
        path.mkdir()
    elif made == "pipe":
        os.mkfifo(path)
    elif made == "loop":
        path.symlink_to(path)
    assert "table.csv" in _refused(reader, path)


@pytest.mark.parametrize("field", ["source", "notes", "recompute", "hardware", "tp", "group", "date"])
def test_cells_of_a_megabyte_are_soon_read(field: str) -> None:
    cells = ("x" * 1_000_000, "1" * 100_000, "a b " * 100_000, "(" * 200_000, "<b>" * 100_000)
    began = time.perf_counter()
    found = validate(runs_table(*({field: cell} for cell in cells), {}))
    assert time.perf_counter() - began < SOON
    assert found["reason_text"].str.len().max() < 1_000
    assert found["status"][len(cells)] == "predicted"


def test_tables_of_20_000_columns_are_soon_answered() -> None:
    further = pd.DataFrame({f"c{number}": [number] for number in range(20_000)})
    began = time.perf_counter()
    with pytest.raises(RunsFileError, match=r"20,0\d\d columns"):
        runs_of(pd.concat([runs_table({}), further], axis=1))
    deployment = pd.DataFrame([{"tensor_par": 8, "pipeline_par": 1, "batch": 1, "prompt": 8, "output": 8}])
    table = pd.concat([deployment, further], axis=1)
    assert serving.evaluate("llama-3-8B", "h100_80g_sxm", table).loc[0, "status"] == "ok"
    best = engine.best("megatron-126M", "a100_80g", num_procs=1, max_batch_size=1, datatype="float16")
    execution = pd.DataFrame([{column.name: best[column.name] for column in FIELDS}])
    for cost_model in engine.COST_MODELS:
        found = engine.evaluate(
            "megatron-126M", "a100_80g", pd.concat([further, execution], axis=1), cost_model=cost_model
        )
        assert found.loc[0, "status"] == "ok"
    assert time.perf_counter() - began < SOON


def test_an_executions_file_of_20_000_columns_is_soon_read(tmp_path: Path) -> None:
    """Further columns are no fault there: results have more than a hundred."""
    best = engine.best("megatron-126M", "a100_80g", num_procs=1, max_batch_size=1, datatype="float16")
    values = {column.name: best[column.name] for column in FIELDS} | {f"c{number}": 1 for number in range(19_977)}
    pq.write_table(pa.table({name: [value] for name, value in values.items()}), tmp_path / "wide.parquet")
    row = ",".join(map(str, values.values()))
    (tmp_path / "wide.csv").write_text(f"{','.join(values)}\n{row}\n{row}\n")
    for name in ("wide.csv", "wide.parquet"):
        began = time.perf_counter()
        (table,) = read_executions(tmp_path / name)
        assert time.perf_counter() - began < SOON
        assert list(table.columns) == [column.name for column in FIELDS]
        assert (engine.evaluate("megatron-126M", "a100_80g", table)["status"] == "ok").all()
