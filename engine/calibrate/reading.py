"""Measured runs from users: a table (CSV) or training logs, limited in size before they are read.

Every run keeps its origin ("row 3", or the name of its log), so that a message names exactly the faulty run.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pandas as pd

from engine.calibrate.choice import CalibrateError
from engine.calibrate.logs import looks_like_log, read_log
from engine.calibrate.natural_tables import CONVERTED, NaturalTable, field_of, read_natural
from engine.calibrate.template import FIELDS
from engine.executions.csv_tables import file_content, header_of, parsed, text_of
from engine.validation.reading import ONCE, Runs, RunsFileError, runs_of
from models.documents import shown

__all__ = [
    "MOST_BYTES",
    "MOST_FILES",
    "MOST_RUNS",
    "MeasuredRuns",
    "checked_fields",
    "parse_given",
    "read_contents",
    "read_paths",
]

MOST_RUNS: Final = 5_000
"""Runs that a fit takes; a cluster has tens."""
MOST_BYTES: Final = 20_000_000
"""Largest file that is read [bytes]."""
MOST_FILES: Final = 200
"""Most files of one fit. Source: stated by us."""


@dataclass(frozen=True, slots=True)
class MeasuredRuns:
    """Runs, each with its origin and remarks of the reader [rows]."""

    runs: Runs
    labels: tuple[str, ...]
    remarks: tuple[str, ...]


def parse_given(pairs: Sequence[str]) -> dict[str, str]:
    """Return the fields for all runs that do not have them, from texts such as "vocab=128256".

    Args:
        pairs: texts of field, equals sign and value.

    Raises `CalibrateError` for a text that gives no field of a run a value.
    """
    found: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise CalibrateError(_describe_fields(pair))
        found |= checked_fields({field_of(name): value.strip()}, pair)
    return found


def checked_fields(given: Mapping[str, str], said: str = "") -> dict[str, str]:
    """Return fields for all runs by name, if each is a field of runs and has a value.

    Args:
        given: values by field.
        said: the user's text, for messages; the field's name if empty.

    Raises `CalibrateError` for an unknown field or an empty value.
    """
    for name, value in given.items():
        if not value.strip() or name not in FIELDS:
            raise CalibrateError(_describe_fields(said or name))
    return dict(given)


def _describe_fields(said: str) -> str:
    return f"{shown(said)} gives no field of a run; write FIELD=VALUE with one of {', '.join(FIELDS)}."


def read_paths(paths: Sequence[str | os.PathLike[str]], given: Mapping[str, str] | None = None) -> MeasuredRuns:
    """Returns the runs of files: one table, or logs of one run each.

    Args:
        paths: of the files.
        given: fields for all runs that do not have them themselves.

    Raises `CalibrateError` for a file that cannot be read, and as `read_contents` does.
    """
    contents: dict[str, bytes] = {}
    for path in paths:
        name = os.fspath(path)
        contents[name] = file_content(path, MOST_BYTES, CalibrateError)
    return read_contents(contents, given)


def read_contents(contents: Mapping[str, bytes], given: Mapping[str, str] | None = None) -> MeasuredRuns:
    """Returns the runs of files by name: tables, or logs of one run each; rows keep their order.

    Args:
        contents: of each file.
        given: fields for all runs that do not have them themselves.

    Raises:
        CalibrateError: a file is neither, or too large, or no file is given. Bad rows never raise.
    """
    if not contents:
        raise CalibrateError("There is no file of measured runs; give a CSV table or logs.")
    if len(contents) > MOST_FILES:
        raise CalibrateError(f"There are {len(contents):,} files; up to {MOST_FILES} are read at once.")
    tables: list[pd.DataFrame] = []
    labels: list[str] = []
    remarks: list[str] = []
    faults: list[tuple[str, ...]] = []
    for path, content in contents.items():
        name = " ".join(shown(os.path.basename(path))[1:-1].split())
        text = text_of(content, name, MOST_BYTES, CalibrateError)
        if _is_table(text):
            natural = _read_table(text, name, given or {})
            table = natural.table
            tables.append(table)
            faults.append(natural.faults)
            before = f"{name}, row" if len(contents) > 1 else "row"
            labels += [f"{before} {row}" for row in range(1, len(table) + 1)]
            remarks += natural.remarks
        elif looks_like_log(text):
            log = read_log(text, name)
            tables.append(pd.DataFrame([log.fields]))
            labels.append(name)
            remarks.append("; ".join(log.remarks))
            faults.append(("",))
        else:
            raise CalibrateError(
                f"{name} is neither a table of runs (CSV with columns such as model, gpus, tp, pp, dp and tokens/s, or "
                "those of the template) nor a log with the time of steps, such as Megatron-LM's \"elapsed time per "
                'iteration (ms)".'
            )
        if len(labels) > MOST_RUNS:
            raise CalibrateError(f"There are more than {MOST_RUNS:,} runs; a fit takes up to {MOST_RUNS:,}.")
    return MeasuredRuns(_merge_runs(tables, faults, given or {}), tuple(labels), tuple(remarks))


def _is_table(text: str) -> bool:
    """Return True if the first non-empty line is a header of runs."""
    names, _ = header_of(text)
    return len({field_of(name) for name in names} & {*FIELDS, *CONVERTED, "iteration time (ms)", "hidden size"}) >= 3


def _read_table(text: str, name: str, given: Mapping[str, str]) -> NaturalTable:
    table = parsed(text, name, CalibrateError, most_rows=MOST_RUNS, once=ONCE)
    if not len(table):
        raise CalibrateError(f"{name} has no run; below the header there must be a row per run.")
    return read_natural(table, name, given)


def _merge_runs(tables: list[pd.DataFrame], added: list[tuple[str, ...]], given: Mapping[str, str]) -> Runs:
    """Return one typed table; the layout of each file is recognised separately. added: other faults of each row."""
    typed: list[Runs] = []
    for table in tables:
        table = table.rename(columns=lambda column: str(column).strip())
        for name in ("hardware", "hidden", "layers", *given):
            # Columns that a table must have may be missing here: then their fields are, row by row.
            if name not in table and "hidden size" not in table:
                table[name] = ""
        for name, value in given.items():
            if name in table:
                blank = table[name].astype(str).str.strip().isin(["", "nan"])
                table[name] = table[name].where(~blank, value)
        try:
            typed.append(runs_of(table))
        except RunsFileError as problem:
            raise CalibrateError(str(problem)) from None
    own = [fault for faults in added for fault in faults]
    read = [fault for runs in typed for fault in runs.faults]
    faults = ["; ".join(filter(None, pair)) for pair in zip(read, own, strict=True)]
    whole = pd.concat([runs.table for runs in typed], ignore_index=True)
    return Runs(whole, pd.Series(faults, dtype=object).to_numpy())
