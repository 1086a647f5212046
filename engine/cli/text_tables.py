"""Tables of results as aligned text, CSV or JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.cli.output import as_json, text_table, write

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["write_table", "write_text_table"]


def write_table(table: pd.DataFrame, *, json: bool, csv: bool) -> None:
    """Prints a table as JSON, as CSV, or as aligned text."""
    if json:
        write(as_json(table.to_dict("records")))
    elif csv:
        write(table.to_csv(index=False).rstrip())
    else:
        write_text_table(table)


def write_text_table(table: pd.DataFrame) -> None:
    """Prints a table as aligned text, numbers to four digits."""

    def shown(value: Any) -> str:
        if isinstance(value, float):
            return "-" if value != value else f"{value:,.4g}"
        return "-" if value is None else str(value)

    rows = [[shown(value) for value in row] for row in table.itertuples(index=False)]
    texts = [at for at, name in enumerate(table.columns) if table[name].dtype.kind not in "if"]
    write(text_table([str(name) for name in table.columns], rows, left=texts))
