"""Declarations that are tables: CSV files with a row per field, statistic or reason."""

from __future__ import annotations

import csv
from importlib.resources import files

__all__ = ["read_table"]


def read_table(package: str, file: str) -> list[dict[str, str]]:
    """Return the rows of a table by column name, in order.

    Args:
        package: package that the file is in.
        file: name of a CSV file with a heading.
    """
    return list(csv.DictReader((files(package) / file).read_text(encoding="utf-8").splitlines()))
