"""Self-describing exports: CSV, Parquet, JSON and Excel, with units, scenario and version inside.

Rows stream from the query to the file in batches; the table is never whole in memory, and files are written without
seeking, so that they can be sent while they grow. Every format carries the same account of itself: Parquet in its
metadata, JSON in its first key, CSV in a second file of a zip archive, Excel on a second sheet.
"""

from __future__ import annotations

import contextlib
import gzip
import importlib.metadata
import io
import json
import math
import re
import zipfile
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import IO, Any, Final, NamedTuple, Protocol

import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from dashboard.files.column_text import joined, json_values
from dashboard.files.excel import MOST_ROWS, write_excel
from dashboard.jobs.scratch_folders import scratch_folder
from dashboard.queries.accuracy import label_of
from engine import Exploration, Scenario
from engine.columns import DERIVED, FIT, Column, by_name, stored_of
from engine.economics import derived_columns
from engine.executions.work_sizes import work_sizes
from engine.recommendation import FIT_NEEDS, table_with_fit
from engine.store import StoreCondition

__all__ = [
    "FORMATS",
    "MOST_ROWS",
    "Format",
    "about",
    "archive",
    "described",
    "file_name",
    "heading",
    "is_large",
    "json_rows",
    "of_frame",
    "of_rows",
    "of_scenario",
    "too_many",
    "version",
]

_WIDEST: Final = {
    "csv": {"float64": 26, "int64": 26, "bool": 26, "str": 26},
    "excel": {"float64": 64, "int64": 40, "bool": 24, "str": 96},
}
"""Most bytes of a value before compression, by format and type: a number of 17 digits with sign, exponent and
separator, or with the markup of a sheet."""


class Format(NamedTuple):
    """A file format to export to."""

    label: str
    mime: str
    suffix: str
    note: str
    """Description of the format, and the place of its description of itself."""
    most: float = math.inf
    """Rows it can hold."""


FORMATS: Final[dict[str, Format]] = {
    "csv": Format("CSV", "application/zip", ".csv.zip", "zip archive; scenario in about.json"),
    "parquet": Format("Parquet", "application/vnd.apache.parquet", ".parquet", "scenario in the metadata"),
    "json": Format("JSON", "application/gzip", ".json.gz", "packed with gzip; scenario first"),
    "excel": Format(
        "Excel",
        "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
        ".xlsx",
        "scenario on the second sheet",
        MOST_ROWS,
    ),
}


class Described(Protocol):
    """Protocol of a column, or of a parameter of What-if: name, unit and label."""

    @property
    def name(self) -> str: ...
    @property
    def unit(self) -> str: ...
    @property
    def label(self) -> str: ...
    @property
    def description(self) -> str: ...


def heading(column: Described) -> str:
    """Returns names and unit of a column, as files print it: "total_time [s]"; no unit for counts and words."""
    return f"{column.name} [{column.unit}]" if column.unit else column.name


def too_many(kind: str, rows: int) -> bool:
    """Returns whether a format cannot hold that many rows."""
    return rows > FORMATS[kind].most


def file_name(scenario: Scenario, what: str, kind: str) -> str:
    """Return the name of an export: "gpt3-175B_h100_512_executions.csv.zip"."""
    parts = (scenario.model.name, scenario.system.name, str(scenario.num_procs), what)
    return "_".join(re.sub(r"[^\w.-]+", "-", part) for part in parts) + FORMATS[kind].suffix


def about(exploration: Exploration, names: Sequence[str], selection: Sequence[str]) -> dict[str, Any]:
    """Return the description that a file carries. selection: sentences on which executions it holds, and in which
    order."""
    return {
        "format": "shardscape-executions/1",
        **of_scenario(exploration.scenario),
        "executions_of_the_space": exploration.total,
        "feasible": exploration.feasible,
        "selection": list(selection),
        "infinite_values": "written as Infinity in JSON and as inf elsewhere",
        "columns": [described(by_name(name)) for name in names],
    }


def of_scenario(scenario: Scenario) -> dict[str, Any]:
    """Return the description of the scenario and of the cost model that every file carries."""
    return {
        "software": f"shardscape {version()}",
        "cost_model": scenario.physics,
        "calibration": _describe_calibration(scenario),
        "label": label_of(scenario),
        "scenario": scenario.to_document(),
    }


def described(column: Described) -> dict[str, str]:
    """Return the description of a column in a file."""
    return {"name": column.name, "unit": column.unit, "label": column.label, "description": column.description}


def archive(account: Mapping[str, Any], tables: Mapping[str, pd.DataFrame]) -> bytes:
    """Returns small tables as CSV files of one zip archive, beside the account of them in about.json."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("about.json", json.dumps(account, indent=1))
        for name, table in tables.items():
            packed.writestr(f"{name}.csv", table.to_csv(index=False))
    return target.getvalue()


def _describe_calibration(scenario: Scenario) -> dict[str, Any] | None:
    """Return the calibration of the figures; None for cost models without one."""
    if scenario.calibration_name is None:
        return None
    used = scenario.used_calibration
    return {
        "name": used.name,
        "date": used.date,
        "fitted_on": used.fitted_on,
        "errors": [error.model_dump() for error in used.errors if error.held_out],
    }


def of_frame(exploration: Exploration, frame: pd.DataFrame, kind: str, selection: str) -> Callable[[], bytes]:
    """Returns a small table as a file, built when it is asked for."""

    def build() -> bytes:
        target = io.BytesIO()
        names = [str(name) for name in frame.columns]
        table = pa.Table.from_pandas(frame, preserve_index=False)
        _write_tables(target, kind, iter([table]), names, about(exploration, names, [selection]))
        return target.getvalue()

    return build


def of_rows(
    exploration: Exploration,
    kind: str,
    *,
    names: Sequence[str],
    where: Sequence[StoreCondition] = (),
    order_by: Sequence[tuple[str, Any]] = (),
    selection: Sequence[str] = (),
    tell: Callable[[float], None] | None = None,
    large: bool | None = None,
) -> Callable[[IO[bytes]], None]:
    """Return a function that writes the feasible executions that meet all conditions.

    names: of any columns; unstored ones are computed again, batch by batch. The function needs no seeking, and begins
    to write before all rows are sorted. tell: receives the written share of the rows after each batch. large: whether
    to write the zip archive in the form for more than 2 GiB; None: where the rows may need it.
    """

    def write(target: IO[bytes]) -> None:
        number = exploration.rows.count(where)
        zip64 = is_large(kind, number, names) if large is None else large
        # Closed here: what broke off would keep its rows, on disk and open, until the garbage is collected.
        with contextlib.closing(_rows(exploration, names, where, order_by)) as rows:
            tables = _report_progress(rows, number, tell)
            _write_tables(target, kind, tables, list(names), about(exploration, names, selection), large=zip64)

    return write


def is_large(kind: str, rows: int, names: Sequence[str]) -> bool:
    """Returns whether the rows, before they are packed, may need more than a plain zip archive can hold."""
    widths = _WIDEST.get(kind, {})
    return rows * sum(widths.get(by_name(name).dtype, 0) for name in names) > zipfile.ZIP64_LIMIT


def _report_progress(
    tables: Iterator[pa.Table], number: int, tell: Callable[[float], None] | None
) -> Iterator[pa.Table]:
    """Yield the tables and report the share of rows after each."""
    done = 0
    for table in tables:
        yield table
        done += len(table)
        if tell is not None:
            tell(done / number)


def _rows(
    exploration: Exploration, names: Sequence[str], where: Sequence[StoreCondition], order_by: Sequence[tuple[str, Any]]
) -> Generator[pa.Table, None, None]:
    """Yield the rows batch by batch, through a file, so that a slow reader does not hold the query."""
    known = {column.name for column in stored_of(exploration.scenario.cost_model)}
    derived = [column.name for column in DERIVED if column.name in names]
    asked = [name for name in names if name not in (*derived, FIT.name)]
    needed = [*(["sample_rate"] if derived else []), *(FIT_NEEDS if FIT.name in names else [])]
    asked += [name for name in needed if name not in asked]
    stored = known.issuperset(asked)
    with scratch_folder() as folder:
        path = folder / "rows.parquet"
        exploration.rows.export(path, names=asked if stored else ["id"], where=where, order_by=order_by)
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(work_sizes().rows_with_statistics, columns=asked if stored else ["id"]):
                if stored:
                    table = pa.Table.from_batches([batch])
                else:
                    frame = exploration.evaluate_ids(batch["id"].to_numpy())
                    table = pa.Table.from_pandas(frame[asked], preserve_index=False)
                if derived:
                    rates = pd.DataFrame({"sample_rate": table["sample_rate"].to_numpy()})
                    found = derived_columns(exploration.scenario, rates)
                    for name in derived:
                        table = table.append_column(name, pa.array(found[name]))
                if FIT.name in names:
                    table = table_with_fit(exploration.scenario, table)
                yield table.select(list(names))


def _write_tables(
    target: IO[bytes],
    kind: str,
    tables: Iterator[pa.Table],
    names: list[str],
    account: dict[str, Any],
    *,
    large: bool = False,
) -> None:
    """large: whether the rows as text may need more than a plain zip archive can hold."""
    columns = [by_name(name) for name in names]
    tables = (_plain_types(table, columns) for table in tables)
    if kind == "parquet":
        _write_parquet(target, tables, columns, account)
    elif kind == "json":
        _write_json(target, tables, account)
    elif kind == "excel":
        write_excel(target, tables, [heading(c) for c in columns], account, large=large)
    else:
        _write_csv(target, tables, columns, account, large)


def _plain_types(table: pa.Table, columns: Sequence[Column]) -> pa.Table:
    """The table with one plain type per kind of column, the same in every batch."""
    kinds = {"int64": pa.int64(), "float64": pa.float64(), "bool": pa.bool_(), "str": pa.string()}
    return table.cast(pa.schema([pa.field(column.name, kinds[column.dtype]) for column in columns]))


def _write_parquet(
    target: IO[bytes], tables: Iterable[pa.Table], columns: Sequence[Column], account: dict[str, Any]
) -> None:
    fields = [
        pa.field(field.name, field.type, metadata={"unit": column.unit, "label": column.label})
        for field, column in zip(_plain_types(_empty_table(columns), columns).schema, columns, strict=True)
    ]
    schema = pa.schema(fields, metadata={"shardscape": json.dumps(account)})
    with pq.ParquetWriter(target, schema, compression="zstd") as writer:
        for table in tables:
            writer.write_table(table.cast(schema))


def _empty_table(columns: Sequence[Column]) -> pa.Table:
    return pa.table({column.name: pa.array([], pa.null()) for column in columns})


def _write_csv(
    target: IO[bytes], tables: Iterable[pa.Table], columns: Sequence[Column], account: dict[str, Any], large: bool
) -> None:
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("about.json", json.dumps(account, indent=1))
        with archive.open("executions.csv", "w", force_zip64=large) as file:
            file.write((",".join(heading(column) for column in columns) + "\n").encode())
            options = pyarrow.csv.WriteOptions(include_header=False, quoting_style="needed")
            for table in tables:
                part = io.BytesIO()
                pyarrow.csv.write_csv(table, part, options)
                file.write(part.getbuffer())


def _write_json(target: IO[bytes], tables: Iterable[pa.Table], account: dict[str, Any]) -> None:
    with gzip.GzipFile(fileobj=target, mode="wb", compresslevel=1) as file:
        file.write(b'{"about": ' + json.dumps(account).encode() + b',\n"executions": [')
        separator = b"\n"
        for table in tables:
            if rows := json_rows(table):
                file.write(separator + rows)
                separator = b",\n"
        file.write(b"\n]}\n")


def json_rows(table: pa.Table) -> bytes:
    """Returns the rows of a table as JSON objects with commas between, every digit of them."""
    columns = [json_values(column.combine_chunks()) for column in table.columns]
    names = [f"{', ' if place else '{'}{json.dumps(name)}: " for place, name in enumerate(table.column_names)]
    return joined(columns, names, "},\n")[:-2]


def version() -> str:
    """Return the version of this package."""
    try:
        return importlib.metadata.version("shardscape")
    except importlib.metadata.PackageNotFoundError:
        return "(not installed)"
