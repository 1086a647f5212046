"""Tables of results as aligned text, CSV or JSON."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from engine.cli.output import as_json, text_table, write_line

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["TableStream", "write_table", "write_text_table"]


def write_table(table: pd.DataFrame, *, json: bool, csv: bool) -> None:
    """Prints a table as JSON, as CSV, or as aligned text."""
    if json:
        write_line(as_json(table.to_dict("records")))
    elif csv:
        write_line(table.to_csv(index=False).rstrip())
    else:
        write_text_table(table)


class TableStream:
    """A table whose rows are printed as they come: as CSV, or as text in columns of fixed widths.

    Args:
        widths: of the columns by name, in order; a longer value moves what follows in its row.
        csv: whether rows are CSV.
    """

    def __init__(self, widths: Mapping[str, int], *, csv: bool) -> None:
        self._widths, self._csv, self._begun = widths, csv, False

    def add(self, row: Mapping[str, Any]) -> None:
        """Prints a row, the head before the first; a column that it does not have stays empty."""
        if not self._begun:
            self._write(list(self._widths))
            self._begun = True
        values = [row.get(name) for name in self._widths]
        self._write(values if self._csv else [_format_value(value) for value in values])

    def _write(self, values: Sequence[Any]) -> None:
        if self._csv:
            line = io.StringIO()
            csv.writer(line, lineterminator="").writerow(["" if value is None else value for value in values])
            write_line(line.getvalue())
        else:
            cells = (str(value).ljust(wide) for value, wide in zip(values, self._widths.values(), strict=True))
            write_line("  ".join(cells).rstrip())
        sys.stdout.flush()


def _format_value(value: Any) -> str:
    if isinstance(value, float):
        return "-" if value != value else f"{value:,.4g}"
    return "-" if value is None else str(value)


def write_text_table(table: pd.DataFrame) -> None:
    """Prints a table as aligned text, numbers to four digits."""

    rows = [[_format_value(value) for value in row] for row in table.itertuples(index=False)]
    texts = [at for at, name in enumerate(table.columns) if table[name].dtype.kind not in "if"]
    write_line(text_table([str(name) for name in table.columns], rows, left=texts))
