"""Tables of executions in files: reading CSV, Parquet and JSON in pieces, writing results as CSV or Parquet.

Files are read and written a piece at a time, so their size is bounded by the disk and not by memory. A faulty value is
not an error here: the engine says which row is invalid and why. A fault of the whole file is a `TableFileError`.
"""

from __future__ import annotations

import json
import os
import re
import stat
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from engine.columns import ALL_FIELDS, FIELDS, OUTCOME, Column, by_name, fields_of, statistics_of
from engine.executions.field_values import distinct, flag, number_in, quoted, whole_number
from engine.executions.work_sizes import work_sizes
from models.documents import shown

__all__ = ["READABLE", "WRITABLE", "ResultWriter", "TableFileError", "TableWriteError", "read_executions"]

READABLE: Final = (".csv", ".parquet", ".json")
WRITABLE: Final = (".csv", ".parquet")


LARGEST_JSON: Final = 200_000_000
"""Largest JSON file that is read [bytes]; it must fit in memory whole; about 300,000 executions."""

RESULT_LISTS: Final = ("top", "executions")
"""Keys under which the results of `best` and `evaluate` list executions."""

LONGEST_TEXT: Final = 4_000
"""Characters of the longest text in a Parquet file of executions; stage layouts have some hundred."""
LARGEST_TEXTS: Final = 400_000_000
"""Largest column of texts in a row group of a Parquet file, unpacked [bytes]."""
_SOME_TEXTS: Final = 1_000_000
"""Bytes that a column of texts may have however few rows there are."""

NAMES: Final = tuple(column.name for column in FIELDS)
ALL_NAMES: Final = tuple(column.name for column in ALL_FIELDS)


class TableFileError(ValueError):
    """A file that executions cannot be read from; the message is one sentence naming the file and what would do."""


class TableWriteError(TableFileError, OSError):
    """Results could not be written; nothing of them was kept."""


def read_executions(path: str | os.PathLike[str]) -> Iterator[pd.DataFrame]:
    """Yields the executions of a file in order, in tables of up to `WorkSizes.rows_of_file` rows with the 23 fields; at
    least one.

    Fields of the calibrated cost model beyond the 23 come where the file has them; other columns are left out. A
    `.json` file holds one execution as an object, as Calculon's files do, a list of them, or a result of `best` or
    `evaluate`. Cells of a `.csv` file
    become what the register says their field is, where they can.

    Raises `TableFileError` for a file that cannot be read or lacks a field.

    Args:
        path: of a `.csv`, `.parquet` or `.json` file.
    """
    file = Path(path)
    suffix = file.suffix.lower()
    if suffix not in READABLE:
        raise TableFileError(f"{file} cannot be read as executions; its name must end in {', '.join(READABLE)}.")
    try:
        _check_regular(file)
        read = {".csv": _read_csv, ".parquet": _read_parquet, ".json": _read_json}[suffix]
        pieces = read(file)
        yield from pieces
    except (pa.ArrowException, OSError, ValueError) as error:
        if isinstance(error, TableFileError):
            raise
        raise TableFileError(f"{file} cannot be read as {suffix[1:].upper()}: {_first_line(error)}.") from error


def _check_regular(file: Path) -> None:
    try:
        mode = os.stat(file).st_mode
    except FileNotFoundError:
        raise TableFileError(f"There is no file {file} to read executions from.") from None
    if not stat.S_ISREG(mode):  # opening a pipe or a terminal would wait for ever
        what = "a folder" if stat.S_ISDIR(mode) else "not a file"
        raise TableFileError(f"{file} is {what}; executions are read from a file.")


def _first_line(error: BaseException) -> str:
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    line = str(text).strip().split("\n", 1)[0]
    # Arrow quotes the row at fault, which may be a megabyte of anything.
    return re.sub(r"(got \d+):.*", r"\1", line).rstrip(".! ")[:300]


def _check_columns(file: Path, names: list[str]) -> None:
    missing = [name for name in NAMES if name not in names]
    if missing:
        shown = ", ".join(missing) if len(missing) < len(NAMES) else "execution fields at all"
        raise TableFileError(f"{file} has no {shown}; executions need the 23 columns {', '.join(NAMES)}.")
    repeated = sorted({name for name in names if name in ALL_NAMES and names.count(name) > 1})
    if repeated:
        raise TableFileError(f"{file} has more than one column {', '.join(repeated)}; each may appear once.")


def _field_names_among(names: Iterable[str]) -> list[str]:
    """The fields among the columns of a file, in the order of the register."""
    there = set(names)
    return [name for name in ALL_NAMES if name in there]


def _read_csv(file: Path) -> Iterator[pd.DataFrame]:
    with pa.csv.open_csv(file) as header:
        _check_columns(file, header.schema.names)
        names = _field_names_among(header.schema.names)
    options = pa.csv.ConvertOptions(
        include_columns=names, column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False
    )
    with pa.csv.open_csv(file, convert_options=options) as reader:
        yield from _join_batches(reader, [by_name(name) for name in names])


def _join_batches(batches: Iterator[pa.RecordBatch], columns: Sequence[Column]) -> Iterator[pd.DataFrame]:
    """Batches of text joined into pieces, each column typed; an empty piece where there is no row at all."""
    kept: list[pa.RecordBatch] = []
    rows = 0
    given = False
    for batch in batches:
        kept.append(batch)
        rows += batch.num_rows
        if rows >= work_sizes().rows_of_file:
            yield _convert_texts(pa.Table.from_batches(kept), columns)
            kept, rows, given = [], 0, True
    if rows:
        yield _convert_texts(pa.Table.from_batches(kept), columns)
    elif not given:
        yield pd.DataFrame({column.name: pd.Series([], dtype=column.dtype) for column in columns})


def _convert_texts(table: pa.Table, wanted: Sequence[Column]) -> pd.DataFrame:
    columns = {}
    for column in wanted:
        encoded = table[column.name].combine_chunks().dictionary_encode()
        if isinstance(encoded, pa.ChunkedArray):
            encoded = encoded.combine_chunks()
        values = [_from_text(column, text.strip()) for text in encoded.dictionary.to_pylist()]
        columns[column.name] = _build_series(column, values, encoded.indices.to_numpy())
    return pd.DataFrame(columns)


def _from_text(column: Column, text: str) -> Any:
    """Return the value of a text cell; the text itself if it is no value of the field."""
    if text == "":
        return None
    if column.dtype == "str":
        return text
    exact = number_in(text)
    if column.dtype == "bool":
        known = {"true": True, "false": False}.get(text.lower(), flag(exact))
        return text if known is None else known
    if exact is None:
        return None if text.lower() == "nan" else text
    number = whole_number(exact)
    return exact if number is None else number


def _build_series(column: Column, values: list[Any], codes: np.ndarray[Any, Any]) -> pd.Series[Any]:
    """The values at `codes`, in the field's own type where all of them have it."""
    plain = {"int64": int, "bool": bool, "str": str}[column.dtype]
    if values and all(type(value) is plain for value in values):
        with suppress(OverflowError, UnicodeEncodeError):  # too large, or half of a character
            if plain is str:
                words = pa.DictionaryArray.from_arrays(codes, pa.array(values, pa.string()))
                return pd.Series(pd.array(words.cast(pa.string()), dtype="str"))
            return pd.Series(np.array(values, dtype=column.dtype)[codes])
    distinct = np.empty(len(values), dtype=object)
    distinct[:] = values
    return pd.Series(distinct[codes], dtype=object)


def _read_parquet(file: Path) -> Iterator[pd.DataFrame]:
    with pq.ParquetFile(file) as described:
        schema = described.schema_arrow
        _check_columns(file, list(schema.names))
        names = _field_names_among(schema.names)
        texts = [name for name in names if _is_text(schema.field(name).type)]
        _check_sizes(file, described.metadata, names, texts)
    if texts:
        # As a dictionary, a text that many rows have takes its memory once.
        with pq.ParquetFile(file, read_dictionary=texts) as looked_at:
            for batch in looked_at.iter_batches(work_sizes().rows_of_file, columns=texts):
                _check_texts(file, batch)
    with pq.ParquetFile(file) as source:
        given = False
        for batch in source.iter_batches(work_sizes().rows_of_file, columns=names):
            yield _from_arrow(file, batch, names)
            given = True
        if not given:
            yield _from_arrow(file, schema.empty_table().combine_chunks(), names)


def _is_text(kind: pa.DataType) -> bool:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return any(check(kind) for check in (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary))


def _check_sizes(file: Path, metadata: pq.FileMetaData, names: Sequence[str], texts: Sequence[str]) -> None:
    """Refuses fields that are too large when unpacked: a file of a few kilobytes can hold gigabytes."""
    for group in range(metadata.num_row_groups):
        rows = metadata.row_group(group).num_rows
        for position in range(metadata.row_group(group).num_columns):
            column = metadata.row_group(group).column(position)
            name = column.path_in_schema.partition(".")[0]
            size, most = column.total_uncompressed_size, _SOME_TEXTS + LONGEST_TEXT * rows
            if name in texts and size > min(most, LARGEST_TEXTS):
                raise TableFileError(
                    f"{file} has {size / 1e6:,.0f} MB of text in {rows:,} values of {name}; an execution has words "
                    "there."
                )
            if name in names and column.num_values > _SOME_TEXTS + rows:  # lists
                raise TableFileError(
                    f"{file} has {column.num_values:,} values of {name} in {rows:,} rows; an execution has one."
                )


def _from_arrow(file: Path, batch: pa.RecordBatch | pa.Table, names: Sequence[str]) -> pd.DataFrame:
    """Return the columns by their Arrow types, ignoring a file's metadata for pandas."""
    columns = {}
    for name in names:
        try:
            columns[name] = batch.column(name).to_pandas()
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            kind = batch.schema.field(name).type
            raise TableFileError(
                f"{file} has a column {name} of type {shown(str(kind))[1:-1]}, which cannot be read: "
                f"{_first_line(error)}."
            ) from error
    return pd.DataFrame(columns)


def _check_texts(file: Path, batch: pa.RecordBatch) -> None:
    """Refuses texts longer than any word of an execution."""
    for field in batch.schema:
        column = batch.column(field.name)
        texts = column.dictionary if pa.types.is_dictionary(field.type) else column
        longest = pc.max(pc.binary_length(texts)).as_py() or 0
        if longest > LONGEST_TEXT:
            raise TableFileError(f"{file} has a {field.name} of {longest:,} characters; an execution has a word there.")


def _read_json(file: Path) -> Iterator[pd.DataFrame]:
    size = file.stat().st_size
    if size > LARGEST_JSON:
        raise TableFileError(
            f"{file} has {size / 1e6:,.0f} MB; JSON is read up to {LARGEST_JSON / 1e6:,.0f} MB, larger tables from "
            "CSV or Parquet."
        )
    try:
        text = file.read_bytes().decode("utf-8-sig")
        document = json.loads(
            text, parse_float=_parse_exact_number, object_pairs_hook=lambda pairs: _each_once(file, pairs)
        )
    except (json.JSONDecodeError, TableFileError):
        raise
    except RecursionError:
        raise TableFileError(f"{file} is nested too deeply for a file of executions.") from None
    except UnicodeDecodeError as error:
        raise TableFileError(f"{file} is not UTF-8 text (byte {error.start}), so it is not JSON.") from None
    except ValueError:  # Python reads whole numbers of some thousand digits only
        raise TableFileError(f"{file} holds a number with too many digits for a field of an execution.") from None
    records = _list_records(document)
    if not isinstance(records, list) or not all(isinstance(record, Mapping) for record in records):
        raise TableFileError(f"{file} holds no execution; it must be an object with the 23 fields, or a list of such.")
    names = list(NAMES)
    if records:
        names = _field_names_among(name for record in records for name in record)
        _check_columns(file, names)
    together = work_sizes().rows_of_file
    for start in range(0, max(len(records), 1), together):
        part = records[start : start + together]
        rows = np.arange(len(part))
        yield pd.DataFrame(
            {name: _build_series(by_name(name), [record.get(name) for record in part], rows) for name in names}
        )


def _list_records(document: Any) -> Any:
    """Return the executions of a document: the list in a result of `best` or `evaluate`, or the document itself."""
    if not isinstance(document, Mapping):
        return document
    listed = [document[name] for name in RESULT_LISTS if isinstance(document.get(name), list)]
    return listed[0] if listed else [document]


def _parse_exact_number(text: str) -> float | Decimal:
    """A number with a point or an exponent; not as a float where that would make a whole number of it."""
    number = float(text)
    if not number.is_integer():
        return number
    try:
        exact = Decimal(text)
    except ArithmeticError:  # an exponent of twenty digits
        return float("nan")
    return number if exact == number else exact


def _each_once(file: Path, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise TableFileError(f"{file} has an execution with {shown(twice)} twice; each field may appear once.")
    return record


class ResultWriter:
    """Writes tables of results one after another into a `.csv` or `.parquet` file, which appears when it is whole.

    The columns come from a cost model. A Parquet file names it, and its calibration, in the metadata of its schema.
    Statistics of executions that do not run are empty (null). A field whose value is of the wrong type is empty in
    Parquet, where a column has one type; `reason_text` quotes the value. Use as a context manager.
    """

    def __init__(self, path: str | os.PathLike[str], cost_model: str, calibration: str | None = None) -> None:
        """Raises `TableWriteError` where `path` cannot be written, before anything has been computed."""
        self.path = Path(path)
        self.rows = 0
        suffix = self.path.suffix.lower()
        if suffix not in WRITABLE:
            raise TableFileError(f"{self.path} cannot be written; its name must end in {' or '.join(WRITABLE)}.")
        if self.path.is_dir():
            raise TableWriteError(f"{self.path} is a folder; results are written to a file.")
        if not self.path.parent.is_dir():
            raise TableWriteError(f"{self.path} cannot be written; the folder {self.path.parent} is missing.")
        self._as_text = suffix == ".csv"
        self._columns = (*fields_of(cost_model), *OUTCOME, *statistics_of(cost_model))
        named = {"cost_model": cost_model} | ({} if calibration is None else {"calibration": calibration})
        self._schema = _result_schema(self._columns, self._as_text).with_metadata(named)
        self._temporary = self.path.with_name(f".{uuid.uuid4().hex}{suffix}.tmp")
        try:
            self._writer = (
                pa.csv.CSVWriter(self._temporary, self._schema, write_options=_CSV_OPTIONS)
                if self._as_text
                else pq.ParquetWriter(self._temporary, self._schema, compression="zstd")
            )
        except (pa.ArrowException, OSError) as error:
            self._discard()
            raise self._explained(error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._writer.close()
            if kind is None:
                os.replace(self._temporary, self.path)
        except (pa.ArrowException, OSError) as problem:
            if kind is None:
                raise self._explained(problem) from problem
        finally:
            self._discard()

    def write(self, results: pd.DataFrame) -> None:
        """Adds results of `engine.evaluate`. Raises `TableWriteError`."""
        arrays = [_result_array(results[column.name], column, as_text=self._as_text) for column in self._columns]
        try:
            self._writer.write_table(pa.Table.from_arrays(arrays, schema=self._schema))
        except (pa.ArrowException, OSError) as error:
            raise self._explained(error) from error
        self.rows += len(results)

    def _explained(self, error: BaseException) -> TableWriteError:
        return TableWriteError(f"{self.path} cannot be written: {_first_line(error)}.")

    def _discard(self) -> None:
        with suppress(OSError):
            self._temporary.unlink(missing_ok=True)


_CSV_OPTIONS: Final = pa.csv.WriteOptions(quoting_style="needed")


def _result_schema(columns: Sequence[Column], as_text: bool) -> pa.Schema:
    types = {"int64": pa.int64(), "float64": pa.float64(), "bool": pa.bool_(), "str": pa.string()}
    return pa.schema(
        [
            pa.field(
                column.name,
                pa.string() if as_text and column.kind == "field" else types[column.dtype],
                metadata={"unit": column.unit, "label": column.label},
            )
            for column in columns
        ]
    )


def _result_array(series: pd.Series[Any], column: Column, *, as_text: bool) -> pa.Array:
    """Return a column of results in its written form."""
    if column.kind != "field":
        return pa.array(series, pa.string() if column.dtype == "str" else pa.float64(), from_pandas=True)
    if series.dtype == column.dtype and not as_text and column.dtype != "str":
        return pa.array(series)
    codes, values = distinct(series)
    if as_text:
        array = pa.array([_value_text(value) for value in values], pa.string())
    elif column.dtype == "str":
        array = pa.array([_value_text(value) if isinstance(value, str) else None for value in values], pa.string())
    elif column.dtype == "bool":
        array = pa.array([flag(value) for value in values], pa.bool_())
    else:
        numbers = [whole_number(value) for value in values]
        array = pa.array([n if n is not None and abs(n) < 2**63 else None for n in numbers], pa.int64())
    return array.take(pa.array(codes, mask=codes < 0))


def _value_text(value: Any) -> str:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()  # half a character has no encoding
    text = quoted(value)
    return text.lower() if isinstance(value, bool | np.bool_) else text
