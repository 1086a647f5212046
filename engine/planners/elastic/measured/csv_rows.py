"""Rows of users' CSV files: checks of size, encoding, header and numbers, each fault reported with its row."""

from __future__ import annotations

import csv
import io
import math
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from engine.planners.contract import PlanError
from models.documents import did_you_mean, shown

__all__ = ["MeasurementError", "csv_rows", "csv_text", "number"]

MOST_BYTES: Final = 16 * 2**20
"""Largest file of measurements that is read [bytes]. Source: stated by us."""
MOST_ROWS: Final = 200_000
"""Most rows of it. Source: stated by us."""


class MeasurementError(PlanError):
    """A file of measurements that cannot be used; the message names its row and field."""


def csv_text(source: str | os.PathLike[str]) -> tuple[str, str]:
    """Returns (text, name for messages) of CSV, from a text of several lines or the path of a file.

    Args:
        source: text or path.

    Raises `MeasurementError` where there is no such file, or it is no text.
    """
    if isinstance(source, str) and "\n" in source:
        if len(source) > MOST_BYTES:
            raise MeasurementError(f"The text has {len(source):,} characters; at most {MOST_BYTES:,} are read.")
        return source.lstrip("\ufeff"), "the table"
    where = shown(os.fspath(source))[1:-1]
    try:
        path = Path(source)
        if not stat.S_ISREG(path.stat().st_mode):
            raise MeasurementError(f"{where} is not a file, so no measurements can be read from it.")
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        if isinstance(error, MeasurementError):
            raise
        reason = (getattr(error, "strerror", None) or "no such file").lower()
        raise MeasurementError(f"{where} cannot be read: {reason}.") from None
    if len(data) > MOST_BYTES:
        raise MeasurementError(f"{where} is larger than {MOST_BYTES:,} bytes, far beyond any file of measurements.")
    try:
        return data.decode("utf-8-sig"), where
    except UnicodeDecodeError as error:
        raise MeasurementError(f"{where} is not UTF-8 text (byte {error.start}).") from None


def csv_rows(text: str, where: str, needed: tuple[str, ...]) -> Iterator[tuple[int, dict[str, str]]]:
    """Yields (line, fields) of each row of CSV with a header; empty lines are passed over.

    Args:
        text: of the file.
        where: name of the file in messages.
        needed: columns that there must be.

    Raises `MeasurementError` for a column that is missing or there twice, and a row with too many or too few fields.
    """
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = [name.strip() for name in next(reader, [])]
        for name in needed:
            if name not in header:
                hint = did_you_mean(name, header) or f"; it has {', '.join(header[:12])[:200] or 'no header'}"
                raise MeasurementError(f"{where} has no column {name!r}{hint}.")
        if len(set(header)) < len(header):
            twice = next(name for name in header if header.count(name) > 1)
            raise MeasurementError(f"{where} has the column {shown(twice)} twice; keep one of them.")
        for count, row in enumerate(reader):
            if count >= MOST_ROWS:
                raise MeasurementError(f"{where} has more than {MOST_ROWS:,} rows.")
            if not any(field.strip() for field in row):
                continue
            if len(row) != len(header):
                raise MeasurementError(
                    f"{where}, line {reader.line_num}: {len(row)} fields, but the header has {len(header)}."
                )
            yield reader.line_num, {name: field.strip() for name, field in zip(header, row, strict=True)}
    except csv.Error as error:
        raise MeasurementError(f"{where}, line {reader.line_num}: {error}.") from None


def number(row: Mapping[str, str], name: str, where: str, *, low: float = 0.0, absent: float | None = None) -> float:
    """Returns the number in a field; `absent` where the field or its column is empty.

    Args:
        row: fields by column.
        name: of the column.
        where: file and line in messages.
        low: least number that is accepted.
        absent: value of an empty field; an error where None.

    Raises `MeasurementError` for a value that is not a finite number of at least `low`.
    """
    text = row.get(name, "")
    if not text and absent is not None:
        return absent
    try:
        value = float(text) if text.isascii() and "_" not in text else math.nan
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < low:
        raise MeasurementError(f"{where}: {name!r} is {shown(text)}; it must be a number from {low:g} on.")
    return value
