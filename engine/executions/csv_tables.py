"""Comma-separated tables that users bring, read as text within bounds of size and reading time.

A faulty cell is not an error here; a file that is not a table raises one sentence that names it.
"""

from __future__ import annotations

import csv
import os
import stat
from collections.abc import Collection, Sequence
from io import StringIO
from pathlib import Path
from typing import Final

import pandas as pd

from models.documents import shown

__all__ = ["MOST_COLUMNS", "file_content", "header_of", "parsed", "text_of", "too_large"]

MOST_COLUMNS: Final = 300
"""Columns of the widest table; about fifty have a meaning."""

LONGEST_HEADER: Final = 100_000
"""Characters in which the header is looked for."""


def file_content(path: str | os.PathLike[str], most_bytes: int, error: type[ValueError]) -> bytes:
    """Return the bytes of a file. Raises `error` for a path that is not a file, cannot be read or has more than
    `most_bytes`.

    Args:
        path: path of the file.
        most_bytes: largest size [bytes].
        error: class of the error to raise.
    """
    name = shown(os.fspath(path))[1:-1]
    try:
        found = os.stat(path)  # looked at before it is opened: opening a pipe would wait for ever
        if not stat.S_ISREG(found.st_mode):
            what = "a folder" if stat.S_ISDIR(found.st_mode) else "not a file"
            raise error(f"{name} is {what}; name a CSV file of measured runs.")
        if found.st_size > most_bytes:
            raise error(too_large(name, found.st_size, most_bytes))
        return Path(path).read_bytes()
    except FileNotFoundError:
        raise error(f"{name} does not exist; name a CSV file of measured runs.") from None
    except OSError as problem:
        told = (problem.strerror or type(problem).__name__).lower()
        raise error(f"{name} cannot be read ({told}); name a CSV file of measured runs.") from None


def too_large(name: str, size: int, most_bytes: int) -> str:
    """Return the message about a file that is too large.

    Args:
        name: name of the file.
        size: size of the file [bytes].
        most_bytes: largest size [bytes].
    """
    return f"{name} has {size / 1e6:,.1f} MB; runs are read from files of up to {most_bytes / 1e6:,.0f} MB."


def text_of(content: bytes, name: str, most_bytes: int, error: type[ValueError]) -> str:
    """Return the text of a file in UTF-8, or in UTF-16 as spreadsheets write it. Raises `error` for other content.

    Args:
        content: bytes of the file.
        name: name of the file, for messages.
        most_bytes: largest size [bytes].
        error: class of the error to raise.
    """
    if len(content) > most_bytes:
        raise error(too_large(name, len(content), most_bytes))
    encoding = "utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as problem:
        raise error(f"{name} is not text in UTF-8 (byte {problem.start:,}); save the table as CSV in UTF-8.") from None
    if "\0" in text:
        raise error(f"{name} is not text; give a CSV table.")
    if not text.strip():
        raise error(f"{name} is empty.")
    return text


def header_of(text: str) -> tuple[list[str], str]:
    """Return the names in the first line that is not empty, and their separator.

    Args:
        text: of a table.
    """
    first = next((line for line in text[:LONGEST_HEADER].splitlines() if line.strip()), "")
    separator = max(",;\t", key=first.count)
    try:
        names = next(csv.reader([first], delimiter=separator), [])
    except csv.Error:
        names = first.split(separator)
    return [name.strip() for name in names], separator


def parsed(
    text: str, name: str, error: type[ValueError], *, most_rows: int, once: Collection[str] = ()
) -> pd.DataFrame:
    """Return the table in a text, every cell as text [rows]; cells missing at the end of a row are empty.

    Raises `error` for text that is not a table, too many rows or columns, or a repeated column of `once`, in any letter
    case.

    Args:
        text: text of the table.
        name: name of the file, for messages.
        error: class of the error to raise.
        most_rows: largest number of rows [count].
        once: columns that may occur only once.
    """
    _, separator = header_of(text)
    reader = csv.reader(StringIO(text, newline=""), delimiter=separator, strict=True)
    rows: list[list[str]] = []
    names: list[str] = []
    try:
        for row in reader:
            if not names:
                names = [cell.strip() for cell in row] if any(map(str.strip, row)) else []
                _check_names(names, name, error, once)
            elif len(row) > len(names):
                raise error(
                    f"{name} cannot be read as CSV: line {reader.line_num:,} has {len(row):,} values, the header "
                    f"{len(names):,} names."
                )
            elif row:
                rows.append(row + [""] * (len(names) - len(row)))
                if len(rows) > most_rows:
                    raise error(f"{name} has more than {most_rows:,} runs; up to {most_rows:,} are read.")
    except csv.Error as problem:
        raise error(f"{name} cannot be read as CSV: {problem} in line {reader.line_num:,}.") from None
    return pd.DataFrame(rows, columns=names, dtype=object)


def _check_names(names: Sequence[str], name: str, error: type[ValueError], once: Collection[str]) -> None:
    if len(names) > MOST_COLUMNS:
        raise error(f"{name} has {len(names):,} columns; a table of runs has up to {MOST_COLUMNS}.")
    folded = [column.lower() for column in names]
    twice = [column for column in once if folded.count(column.lower()) > 1]
    if twice:
        raise error(f"{name} has more than one column {twice[0]}; each may appear once.")
