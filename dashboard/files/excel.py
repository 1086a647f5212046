"""Excel workbooks, written by XlsxWriter one row at a time.

Texts are inline strings, which a spreadsheet never takes for formulas.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from dashboard.jobs.scratch_folders import scratch_folder

if TYPE_CHECKING:
    from xlsxwriter.worksheet import Worksheet

__all__ = ["MOST_ROWS", "write_excel"]

MOST_ROWS: Final = 1_048_575
"""Rows under the header; a sheet ends at 2**20."""

_LONGEST: Final = 32_000
"""Characters of a cell; Excel's limit is 32,767."""
_WIDEST: Final = 48
"""Width of a column at most [characters]."""


def write_excel(
    target: IO[bytes],
    tables: Iterable[pa.Table],
    header: Sequence[str],
    account: dict[str, Any],
    *,
    large: bool = False,
    title: str = "Executions",
) -> None:
    """Write a workbook: the rows of all tables under a header that stays in view, the account on a second sheet.

    Rows wait in files of a scratch folder, so that memory does not grow with them; the target gets the workbook when it
    is complete, and need not be able to seek.

    Args:
        target: receives the workbook. Empty writes before that let it raise when the client has disconnected.
        tables: of the same columns as `header`.
        header: names of the columns.
        account: facts about the rows.
        large: whether the sheet may pass 2 GiB before it is packed.
        title: of the first sheet, of letters and spaces.

    Raises ValueError beyond `MOST_ROWS` rows.
    """
    import xlsxwriter  # only exports need it

    with scratch_folder() as folder:
        path = folder / "workbook.xlsx"
        book = xlsxwriter.Workbook(path, {"constant_memory": True, "tmpdir": str(folder)})
        if large:
            book.use_zip64()
        try:
            sheet, facts = book.add_worksheet(title), book.add_worksheet("About")
            sheet.freeze_panes(1, 0)
            for column, name in enumerate(header):
                sheet.set_column(column, column, min(max(len(name) + 2, 9), _WIDEST))
                sheet.write_string(0, column, name)
            written = 0
            for table in tables:
                if written + len(table) > MOST_ROWS:
                    raise ValueError(f"An Excel sheet holds {MOST_ROWS:,} rows; choose CSV or Parquet for more.")
                _write_rows(sheet, table, written + 1)
                written += len(table)
                target.write(b"")
            for row, (key, text) in enumerate(_account_lines(account)):
                facts.write_string(row, 0, _printable_text(key))
                facts.write_string(row, 1, _printable_text(text))
        finally:
            book.close()
        with path.open("rb") as file:
            shutil.copyfileobj(file, target)


def _write_rows(sheet: Worksheet, table: pa.Table, first: int) -> None:
    """Write the rows of a table from a row of the sheet on. Missing values are empty cells, infinite ones texts."""
    columns = [column.combine_chunks() for column in table.columns]
    writers = [_cell_writer(sheet, column.type) for column in columns]
    for row, values in enumerate(zip(*map(_column_values, columns), strict=True), first):
        for column, value in enumerate(values):
            if value is None:
                continue
            if isinstance(value, float) and value in (float("inf"), float("-inf")):
                sheet.write_string(row, column, str(value))
            else:
                writers[column](row, column, value)


def _cell_writer(sheet: Worksheet, kind: pa.DataType) -> Any:
    if pa.types.is_string(kind) or pa.types.is_null(kind):
        return sheet.write_string
    return sheet.write_boolean if pa.types.is_boolean(kind) else sheet.write_number


def _column_values(column: pa.Array) -> list[Any]:
    """Return the values of a column; None where a number is NaN."""
    if pa.types.is_floating(column.type):
        return list(pc.if_else(pc.is_nan(column), None, column).to_pylist())
    if pa.types.is_string(column.type):
        return [text and _printable_text(text) for text in column.to_pylist()]
    return list(column.to_pylist())


def _printable_text(text: str) -> str:
    """Return a text without control characters, which XML has no place for."""
    return text if text.isprintable() else "".join(each for each in text if each >= " ")


def _account_lines(account: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the account as lines of key and text; a text too long for a cell continues in the next line.

    Sentences are one line each; other values are JSON.
    """
    for key, value in account.items():
        if key == "columns":
            for column in value:
                yield f"column {column['name']}", f"[{column['unit']}] {column['label']}. {column['description']}"
            continue
        sentences = isinstance(value, list) and all(isinstance(each, str) for each in value)
        for each in value if sentences else [value]:
            text = each if isinstance(each, str) else json.dumps(each)
            for start in range(0, max(len(text), 1), _LONGEST):
                yield key, text[start : start + _LONGEST]
