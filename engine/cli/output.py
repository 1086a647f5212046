"""Printing of all commands: exit codes, tables with units, JSON, a line of progress."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final, TextIO

if TYPE_CHECKING:
    import pandas as pd

    from engine.columns import Column
    from hardware import System
    from models.token_flops import Convention

__all__ = [
    "ExitCode",
    "as_json",
    "evaluated_by",
    "executions_table",
    "format_quantity",
    "format_rate",
    "statistics_list",
    "text_table",
    "unit_of",
    "write_line",
]


class ExitCode(IntEnum):
    """Exit code of the command; the help text gives the meaning of each."""

    NOTHING = 1
    INPUT = 2
    STORE = 3
    FAULT = 4
    INTERRUPTED = 130


SCALES: Final[Mapping[str, tuple[str, float]]] = {
    "bytes": ("GiB", 2.0**30),
    "bytes/s": ("GB/s", 1e9),
    "FLOP": ("TFLOP", 1e12),
    "FLOP/s": ("TFLOP/s", 1e12),
    "kWh": ("MWh", 1e3),
    "fraction": ("%", 0.01),
}
"""Unit of the register -> unit printed, and its size in the former; other units are printed as they are."""

SUMMARY: Final = (
    "sample_rate",
    "total_time",
    "total_efficiency",
    "bubble_time",
    "tp_comm_exposed_time",
    "dp_comm_exposed_time",
    "proc_mem_tier1_cap_req",
    "proc_mem_tier2_cap_req",
)
"""Statistics that a table of executions shows."""

WHERE_PRESENT: Final = ("cp_comm_exposed_time", "ep_comm_exposed_time")
"""Further ones that it shows where any of its executions has them, before memory."""

ALWAYS: Final = ("tensor_par", "pipeline_par", "data_par", "microbatch_size", "pipeline_interleaving")
"""Fields that a table of executions shows even where all rows agree."""


def write_line(text: str = "", *, stream: TextIO | None = None) -> None:
    """Prints a line; characters that a terminal would act on are shown as escapes."""
    print(_escape_controls(text), file=stream or sys.stdout)


def _escape_controls(text: str) -> str:
    if text.replace("\n", "").isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


def evaluated_by(cost_model: str, calibration: str | None) -> str:
    """The cost model and the name of its calibration in words, for people who read the figures."""
    return f"cost model {cost_model}" + ("" if calibration is None else f", calibration {calibration}")


def unit_of(column: Column) -> str:
    """The unit in which a column is printed."""
    return SCALES.get(column.unit, (column.unit, 1.0))[0]


def format_quantity(column: Column, value: Any) -> str:
    """A value of a column in its printed unit, to four significant digits, without the unit; "-" where absent."""
    if column.dtype == "float64":
        return _format_number(float(value) / SCALES.get(column.unit, ("", 1.0))[1])
    if column.dtype == "bool":
        from engine.columns import choice_label

        return choice_label(column, value)
    return str(value)


def _format_number(value: float) -> str:
    if math.isnan(value):
        return "-"
    if math.isinf(value) or value == 0:
        return f"{value:g}"
    if not 1e-4 <= abs(value) < 1e7:
        return f"{value:.3e}"
    return f"{value:,.{max(0, 3 - math.floor(math.log10(abs(value))))}f}"


def format_rate(per_second: float) -> str:
    """A rate of executions, such as "21.3 M executions/s"."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if per_second >= size:
            return f"{per_second / size:.3g} {letter} executions/s"
    return f"{per_second:.3g} executions/s"


def text_table(headers: Sequence[str], rows: Iterable[Sequence[str]], *, left: Iterable[int] = (0,)) -> str:
    """Aligned columns under their headers; those at positions `left` align left, the others right."""
    cells = [list(headers), *([_escape_controls(cell) for cell in row] for row in rows)]
    widths = [max(len(row[position]) for row in cells) for position in range(len(headers))]
    lefts = set(left)
    lines = [
        "  ".join(
            cell.ljust(width) if position in lefts else cell.rjust(width)
            for position, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]
    return "\n".join(lines)


def executions_table(table: pd.DataFrame, figures: pd.DataFrame, system: System, convention: Convention) -> str:
    """Return a table of executions with their distinguishing fields and figures; common fields are printed once below.

    figures: figures derived from throughputs, in rows of the same index (`engine.economics.derived_columns`).
    system: to name networks by.
    convention: of attention in figures of utilisation.
    """
    from engine.columns import ALL_FIELDS, by_name, choice_label, rates_beside
    from hardware import network_names

    networks = network_names(system)
    beside = [name for name in rates_beside(convention) if name in figures]
    table = table.join(figures[beside])
    several = len(table) > 1
    fields = [column for column in ALL_FIELDS if column.name in table]
    varying = {column.name for column in fields if several and table[column.name].astype(str).nunique() > 1}
    shown = [column for column in fields if column.name in ALWAYS or column.name in varying]
    present = [name for name in WHERE_PRESENT if name in table and (table[name] > 0).any()]
    fit = ["fit"] if "fit" in table and (table["fit"] != "fits").any() else []
    summary = [SUMMARY[0], *beside, *SUMMARY[1:-2], *present, *SUMMARY[-2:], *fit]
    columns = [*([by_name("id")] if "id" in table else []), *shown, *(by_name(name) for name in summary)]
    headers = [
        f"{column.short} [{unit}]" if (unit := unit_of(column)) not in ("", column.short) else column.short
        for column in columns
    ]
    rows = [
        [
            choice_label(column, row[column.name], networks)
            if column.dtype == "str" or column.of_network
            else format_quantity(column, row[column.name])
            for column in columns
        ]
        for row in table.to_dict("records")
    ]
    text = text_table(headers, rows, left=())
    if len(table):
        same = [
            f"{column.short} {choice_label(column, table[column.name].iloc[0], networks)}"
            for column in fields
            if column not in shown
        ]
        text += f"\n{'all' if several else 'with'}: {', '.join(same)}"
    return text


def statistics_list(row: Mapping[str, Any]) -> str:
    """All statistics that one execution has, by group, with units and names; those not a number are left out."""
    from engine.columns import EXTENSION_STATISTICS, STATISTICS

    lines: list[str] = []
    every = (*STATISTICS, *EXTENSION_STATISTICS)
    there = [column for column in every if column.name in row and not math.isnan(row[column.name])]
    wide = max(len(column.label) for column in there)
    for group in dict.fromkeys(column.group for column in there):
        lines += ["", group]
        for column in there:
            if column.group == group:
                value = f"{format_quantity(column, row[column.name]):>12} {unit_of(column)}".rstrip()
                lines.append(f"  {column.label:<{wide}}  {value}")
    return "\n".join(lines[1:])


def as_json(value: Any) -> str:
    """JSON of results; what JSON cannot write, infinite and absent numbers, becomes null."""
    from models.documents import plain

    return json.dumps(plain(value), indent=2, allow_nan=False, ensure_ascii=False)
