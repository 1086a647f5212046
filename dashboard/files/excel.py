"""Excel workbooks, written row by row with the standard library alone.

Source of the format: ECMA-376, Office Open XML, part 1, section 18 (SpreadsheetML). Texts are inline strings, which
a spreadsheet never takes for formulas.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterable, Sequence
from typing import IO, Any, Final
from xml.sax.saxutils import escape

import pyarrow as pa
import pyarrow.compute as pc

from dashboard.files.column_text import joined

__all__ = ["MOST_ROWS", "write_excel"]

MOST_ROWS: Final = 1_048_575
"""Rows under the header; a sheet ends at 2**20."""

_HEAD: Final = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'
_MAIN: Final = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_OFFICE: Final = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKAGE: Final = "http://schemas.openxmlformats.org/package/2006"
_SHEET: Final = "application/vnd.openxmlformats-officedocument.spreadsheetml"
_LONGEST: Final = 32_000
"""Characters that a cell can hold, nearly."""

_PARTS: Final = {
    "[Content_Types].xml": (
        f'<Types xmlns="{_PACKAGE}/content-types">'
        '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        '<Default Extension="xml" ContentType="application/xml"/>'
        f'<Override PartName="/xl/workbook.xml" ContentType="{_SHEET}.sheet.main+xml"/>'
        f'<Override PartName="/xl/worksheets/sheet1.xml" ContentType="{_SHEET}.worksheet+xml"/>'
        f'<Override PartName="/xl/worksheets/sheet2.xml" ContentType="{_SHEET}.worksheet+xml"/></Types>'
    ),
    "_rels/.rels": (
        f'<Relationships xmlns="{_PACKAGE}/relationships">'
        f'<Relationship Id="r1" Type="{_OFFICE}/officeDocument" Target="xl/workbook.xml"/></Relationships>'
    ),
    "xl/workbook.xml": (
        f'<workbook xmlns="{_MAIN}" xmlns:r="{_OFFICE}"><sheets><sheet name="ROWS" sheetId="1" r:id="r1"/>'
        '<sheet name="About" sheetId="2" r:id="r2"/></sheets></workbook>'
    ),
    "xl/_rels/workbook.xml.rels": (
        f'<Relationships xmlns="{_PACKAGE}/relationships">'
        f'<Relationship Id="r1" Type="{_OFFICE}/worksheet" Target="worksheets/sheet1.xml"/>'
        f'<Relationship Id="r2" Type="{_OFFICE}/worksheet" Target="worksheets/sheet2.xml"/></Relationships>'
    ),
}


def write_excel(
    target: IO[bytes], tables: Iterable[pa.Table], header: Sequence[str], account: dict[str, Any], *,
    large: bool = False, title: str = "Executions",
) -> None:  # fmt: skip
    """Writes a workbook: the rows of all tables under a header that stays in view, the account on a second sheet.

    target: need not be able to seek. large: whether the sheet may pass 2 GiB before it is packed; the target should
    then be able to. title: of the first sheet, of letters and spaces. Raises ValueError beyond `MOST_ROWS` rows.
    """
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, text in _PARTS.items():
            archive.writestr(name, _HEAD + text.replace('"ROWS"', f'"{title}"'))
        frozen = '<sheetViews><sheetView workbookViewId="0"><pane ySplit="1" topLeftCell="A2" state="frozen"/>' \
                 "</sheetView></sheetViews>"  # fmt: skip
        with archive.open("xl/worksheets/sheet1.xml", "w", force_zip64=large) as sheet:
            sheet.write(f'{_HEAD}<worksheet xmlns="{_MAIN}">{frozen}<sheetData>{_row(header)}'.encode())
            written = 0
            for table in tables:
                written += len(table)
                if written > MOST_ROWS:
                    raise ValueError(f"An Excel sheet holds {MOST_ROWS:,} rows; choose CSV or Parquet for more.")
                cells = [_cells(column.combine_chunks()) for column in table.columns]
                sheet.write(joined(cells, ["<row>", *[""] * (len(cells) - 1)], "</row>"))
            sheet.write(b"</sheetData></worksheet>")
        facts = "".join(_row((key, text)) for key, text in _facts(account))
        archive.writestr(
            "xl/worksheets/sheet2.xml", f'{_HEAD}<worksheet xmlns="{_MAIN}"><sheetData>{facts}</sheetData></worksheet>'
        )


def _row(values: Sequence[str]) -> str:
    return f"<row>{''.join(_cell(value) for value in values)}</row>"


def _cells(column: pa.Array) -> pa.Array:
    """A whole column as cells; infinite values are texts, because a number cannot be."""
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_null(kind):
        distinct = column.cast(pa.string()).dictionary_encode()
        cells = pa.array([_cell(word) for word in distinct.dictionary.to_pylist()], pa.string()).take(distinct.indices)
    elif pa.types.is_boolean(kind):
        cells = pc.if_else(column, '<c t="b"><v>1</v></c>', '<c t="b"><v>0</v></c>')
    else:
        cells = pc.binary_join_element_wise("<c><v>", column.cast(pa.string()), "</v></c>", "")
        if pa.types.is_floating(kind):
            infinite = pc.if_else(pc.less(column, 0.0), _cell("-inf"), _cell("inf"))
            cells = pc.if_else(pc.is_inf(column), infinite, cells)
            cells = pc.if_else(pc.is_nan(column), "<c/>", cells)
    return pc.fill_null(cells, "<c/>")


def _cell(value: str) -> str:
    text = "".join(character for character in str(value) if character >= " ")
    return f'<c t="inlineStr"><is><t xml:space="preserve">{escape(text)}</t></is></c>'


def _facts(account: dict[str, Any]) -> Iterable[tuple[str, str]]:
    """The account as lines of key and text; a text too long for a cell continues in the next line.

    Sentences stand as they are, one to a line; what is no text as JSON.
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
