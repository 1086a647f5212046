"""Tables whose columns have any type: every value means what the plain value means, or is refused by name and row."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import engine
from engine.columns import FIELDS, by_name
from engine.executions.field_values import objects
from engine.executions.files import ResultWriter, TableFileError, read_executions
from engine.validation import runs_of
from tests.engine.validation.runs import table as runs_table
from tests.properties.column_types import columns, is_empty, meaning

MALFORMED = {"missing_value", "not_an_integer", "not_a_boolean", "not_a_word", "out_of_range"}
SEEN = ["status", "reason", "reason_text", "total_time", "proc_mem_tier1_cap_req"]
FIELDS_OF_A_KIND = {
    "calculon": ("tensor_par", "weight_offload", "activation_recompute"),
    "calibrated": ("zero_stage", "expert_overlap", "launch"),
}
PAIRS = [(model, field) for model, names in FIELDS_OF_A_KIND.items() for field in names]


@pytest.fixture(scope="module")
def plain() -> dict[str, Any]:
    """The fields of an execution that runs."""
    limits = {"tensor_par": 2, "weight_offload": False, "activation_recompute": "none"}
    found = engine.explore(
        "gpt3-13B", "a100_80g", num_procs=8, max_batch_size=8, datatype="float16", limits=limits
    ).best
    assert found is not None
    base = {column.name: found[column.name] for column in FIELDS}
    return base | {"context_par": 1, "zero_stage": 1, "launch": "fused", "expert_overlap": False}


def _of_type(execution: dict[str, Any], field: str, series: pd.Series[Any]) -> pd.DataFrame:
    """The execution as often as the column has rows, with the column in place of a field."""
    every = _repeated(tuple(execution.items()))
    assert len(series) <= len(every)
    return every.head(len(series)).assign(**{field: series})


@cache
def _repeated(fields: tuple[tuple[str, Any], ...]) -> pd.DataFrame:
    """As many equal executions as the longest column has rows, and all columns of the types that Parquet has."""
    return pd.DataFrame({name: [value] * 600 for name, value in fields})


def _evaluated(table: pd.DataFrame, cost_model: str) -> pd.DataFrame:
    return engine.evaluate("gpt3-13B", "a100_80g", table, cost_model=cost_model)


def _seen(table: pd.DataFrame) -> list[dict[Any, Any]]:
    """What is seen of each row, with None for a figure that it does not have."""
    return table[SEEN].astype(object).where(table[SEEN].notna(), None).to_dict("records")


def _columns(plain: dict[str, Any], field: str) -> Iterator[tuple[str, list[Any], pd.Series[Any]]]:
    kind = by_name(field).dtype
    return columns(plain[field] if kind == "int64" else 2, plain[field] if kind == "str" else "none")


@pytest.mark.parametrize(("cost_model", "field"), PAIRS)
def test_a_value_means_the_same_in_a_column_of_any_type(plain: dict[str, Any], cost_model: str, field: str) -> None:
    """Every type is a column of fields of two kinds at least, and of a field that each cost model reads: which values a
    column has is found out by one function for all of them. The column of everything is one of each field."""
    kind, turn = by_name(field).dtype, PAIRS.index((cost_model, field))
    *typed, mixture = _columns(plain, field)
    every = [*typed[turn % 2 :: 2], mixture]
    values = {
        (type(value), value): value
        for _, cells, _ in every
        for cell in cells
        if (value := meaning(kind, cell)) is not None or is_empty(cell)
    }
    alone = _evaluated(_of_type(plain, field, pd.Series([*values.values()], dtype=object)), cost_model)
    known = dict(zip(values, _seen(alone), strict=True))
    results = [_evaluated(_of_type(plain, field, series), cost_model)[SEEN] for _, _, series in every]
    found = iter(_seen(pd.concat(results, ignore_index=True)))
    for (name, cells, series), result in zip(every, results, strict=True):
        assert len(result) == len(series) == len(cells), name
        for cell, seen in zip(cells, found, strict=False):
            value, told = meaning(kind, cell), (name, type(cell), seen)
            if value is not None or is_empty(cell):
                assert seen == known[type(value), value], told
            else:
                assert seen["status"] == "invalid", told
                assert seen["reason"] in MALFORMED, told
                assert seen["reason_text"].startswith(f"{field} is "), told
            assert len(seen["reason_text"]) < 400, told
            assert seen["reason_text"].isprintable(), told


@pytest.mark.parametrize("field", FIELDS_OF_A_KIND["calculon"])
def test_a_parquet_column_of_any_type_is_read_as_it_is(plain: dict[str, Any], field: str, tmp_path: Path) -> None:
    """Every type is a column of fields of two kinds: files are read without knowing which field it is."""
    turn = FIELDS_OF_A_KIND["calculon"].index(field)
    pieces: dict[Any, list[tuple[pd.DataFrame, list[Any]]]] = {}
    for number, (_, _, series) in enumerate(_columns(plain, field)):
        if (number + number // 3) % 3 == turn:  # types come in threes
            continue
        table = _of_type(plain, field, series)
        try:
            pq.write_table(pa.Table.from_pandas(table), tmp_path / "executions.parquet")
        except (pa.ArrowException, OverflowError, ValueError, TypeError):
            continue  # a column that Parquet has nothing for
        (piece,) = read_executions(tmp_path / "executions.parquet")
        pieces.setdefault(piece[field].dtype, []).append((piece, objects(series).tolist()))
    assert sum(map(len, pieces.values())) > 35
    assert len(pieces) > 12
    # Columns that were read as one type are one column of it.
    joined = [pd.concat([piece for piece, _ in pairs], ignore_index=True) for pairs in pieces.values()]
    assert [table[field].dtype for table in joined] == [*pieces]
    results = [_evaluated(table, "calculon") for table in joined]
    plain_cells = [cell for pairs in pieces.values() for _, cells in pairs for cell in cells]
    # The test above has them mean the same in the columns that were written.
    expected = _evaluated(_of_type(plain, field, pd.Series(plain_cells, dtype=object)), "calculon")[SEEN]
    found = pd.concat([result[SEEN] for result in results], ignore_index=True)
    alike = ["status", "reason", "total_time", "proc_mem_tier1_cap_req"]
    pd.testing.assert_frame_equal(found[alike], expected[alike])

    for suffix in (".csv", ".parquet"):
        with ResultWriter(tmp_path / f"results{suffix}", "calculon") as writer:
            for result in results:
                writer.write(result)
        (written,) = read_executions(tmp_path / f"results{suffix}")
        again, runs = _evaluated(written, "calculon")[SEEN], found["status"] == "ok"
        pd.testing.assert_frame_equal(again[runs], found[runs])
    assert not (again["status"][~runs] == "ok").any()  # of Parquet: in a CSV file "2" and 2 are the same


@pytest.mark.parametrize("suffix", ["csv", "json"])
@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("2", 2),
        ("2.0", 2),
        ("0.2e1", 2),
        ("2.00000000000000000001", None),
        ("2.5", None),
        ("1e400", None),
        ("9" * 400, None),
        ("2e-99999999999999999999", None),
        ("-2", -2),
        ("true", None),
    ],
)
def test_numbers_in_text_are_read_to_the_last_digit(
    plain: dict[str, Any], suffix: str, text: str, number: int | None, tmp_path: Path
) -> None:
    words = {name: json.dumps(value) for name, value in plain.items()} | {"tensor_par": text}
    file = tmp_path / f"executions.{suffix}"
    if suffix == "json":
        file.write_text(f"{{{', '.join(f'{json.dumps(name)}: {word}' for name, word in words.items())}}}")
    else:
        file.write_text(f"{','.join(words)}\n{','.join(words.values())}\n")
    (piece,) = read_executions(file)
    found = _evaluated(piece, "calculon").iloc[0]
    if number is None:
        assert found["reason"] in MALFORMED
        assert "tensor_par" in found["reason_text"]
    else:
        expected = _evaluated(pd.DataFrame([{**plain, "tensor_par": number}]), "calculon").iloc[0]
        assert found[SEEN].equals(expected[SEEN])


@pytest.mark.parametrize("text", ["2_0", "٢", "0x2", "2,0", "two", "1e", "--2", "+", ".", "8" * 5000])
def test_what_only_a_programming_language_takes_for_a_number_is_refused(
    plain: dict[str, Any], text: str, tmp_path: Path
) -> None:
    words = {**plain, "tensor_par": f'"{text}"'}
    (tmp_path / "executions.csv").write_text(f"{','.join(words)}\n{','.join(map(str, words.values()))}\n", "utf-8")
    (piece,) = read_executions(tmp_path / "executions.csv")
    assert _evaluated(piece, "calculon").loc[0, "reason"] in {"not_an_integer", "out_of_range"}


@pytest.mark.parametrize(
    ("change", "told"),
    [('"tensor_par": 2, "tensor_par": 4', "twice"), (f'"tensor_par": {"9" * 5000}', "too many digits")],
)
def test_json_that_says_two_things_or_too_much_is_refused(
    plain: dict[str, Any], change: str, told: str, tmp_path: Path
) -> None:
    others = json.dumps({name: value for name, value in plain.items() if name != "tensor_par"})
    file = tmp_path / "execution.json"
    file.write_text(f"{{{change}, {others[1:]}")
    with pytest.raises(TableFileError, match=told):
        list(read_executions(file))


def test_half_a_character_is_refused_and_written(plain: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "execution.json"
    file.write_text(json.dumps({**plain, "datatype": "\ud800"}))
    (piece,) = read_executions(file)
    found = _evaluated(piece, "calculon")
    assert found.loc[0, "status"] == "invalid"
    for suffix in (".csv", ".parquet"):
        with ResultWriter(tmp_path / f"results{suffix}", "calculon") as writer:
            writer.write(found)


@pytest.mark.parametrize(
    "notes",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"{}",
        b'{"columns": 3}',
        b'{"index_columns": ["tensor_par"], "columns": []}',
        b'{"columns": [], "index_columns": [{"kind": "range"}], "column_indexes": [{}], "pandas_version": "x"}',
        b"\xff",
    ],
)
def test_notes_for_pandas_in_a_parquet_file_change_nothing(plain: dict[str, Any], notes: bytes, tmp_path: Path) -> None:
    table = pa.Table.from_pandas(pd.DataFrame([plain] * 3), preserve_index=False)
    pq.write_table(table.replace_schema_metadata({b"pandas": notes}), tmp_path / "executions.parquet")
    (piece,) = read_executions(tmp_path / "executions.parquet")
    assert (_evaluated(piece, "calculon")["status"] == "ok").all()


LABELS: dict[str, Any] = {
    "repeated": lambda table: pd.concat([table, table[["tensor_par"]]], axis=1),
    "of several levels": lambda table: pd.concat({"a": table}, axis=1),
    "numbers": lambda table: table.set_axis(range(table.shape[1]), axis=1),
    "not available": lambda table: table.rename(columns={"tensor_par": pd.NA}),
}


@pytest.mark.parametrize("labels", LABELS)
@pytest.mark.parametrize("cost_model", ["calculon", "calibrated"])
def test_labels_of_columns_that_name_no_field_are_one_sentence(
    plain: dict[str, Any], labels: str, cost_model: str
) -> None:
    with pytest.raises(engine.ExecutionTableError, match="tensor_par"):
        _evaluated(LABELS[labels](pd.DataFrame([plain])), cost_model)


@pytest.mark.parametrize(
    "index",
    [[7, 7], [None, None], [pd.NA, "b"], pd.MultiIndex.from_tuples([(1, 2), (1, 2)]), pd.to_datetime(["2024", None])],
)
def test_rows_keep_their_labels(plain: dict[str, Any], index: Any) -> None:
    table = pd.DataFrame([plain] * 2).set_axis(index, axis=0).astype({"zero_stage": object})
    table["launch"] = pd.Series(["fused", None], dtype=object).to_numpy()
    found = _evaluated(table, "calibrated")
    assert found.index.equals(table.index)
    assert (found["status"] == "ok").all()


_APART = re.compile("; (?=tp is |fsdp is )")
"""Between the faults of two fields."""


def test_columns_of_any_type_are_runs_or_faults() -> None:
    """Runs come as text, so text that is a number is one there; anything else is what it is elsewhere."""
    for name, cells, series in columns(2, "none"):
        runs = runs_of(runs_table(*[{}] * len(cells)).assign(tp=series, fsdp=series))
        for field, kind, other in (("tp", "int64", "fsdp is "), ("fsdp", "bool", "tp is ")):
            for cell, value, faults in zip(cells, runs.table[field], runs.faults, strict=True):
                fault = "; ".join(one for one in _APART.split(faults) if not one.startswith(other))
                told = (name, field, type(cell), value, faults)
                means = meaning(kind, cell)
                if isinstance(cell, str) and cell.strip() == "2" and kind == "int64":
                    means = 2
                if means is not None and (kind == "bool" or 1 <= means <= 10**9):
                    assert (value, fault) == (means, ""), told
                elif (isinstance(cell, str) and cell.strip() in ("", "none")) or is_empty(cell):
                    assert (value != value, fault) == (True, ""), told
                elif not isinstance(cell, str) or cell != "true":
                    assert value != value, told
                    assert field in fault, told
                assert len(fault) < 200, told
