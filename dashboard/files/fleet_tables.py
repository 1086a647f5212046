"""A fleet's document as tables of pools, jobs, services and demand by hour, and the document of edited tables.

A row keeps all fields of its document that the table has no column for, such as limits, and loses them with the row.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pandas as pd

from engine.fleet.demand import DAY_HOURS, WEEK_HOURS, read_hours
from engine.planners.contract import PlanError
from engine.questions.documents.fleet import (
    OF_SHAPE,
    FleetJobDocument,
    FleetPoolDocument,
    FleetQuestion,
    FleetServiceDocument,
)
from engine.questions.errors import QuestionError
from engine.questions.fleets import demand_hours
from engine.questions.verb import Document
from engine.serving import WorkloadError

__all__ = [
    "COLUMNS",
    "demand_table",
    "document_of_tables",
    "list_titles",
    "read_demand_file",
    "table_of",
    "with_demand",
]

COLUMNS: Final[Mapping[str, Mapping[str, tuple[str, type]]]] = {
    "pools": {
        "system": ("System", str),
        "num_procs": ("GPUs", int),
        "usd_per_h": ("USD/GPU-h", float),
        "spare_nodes": ("Spare nodes", int),
    },
    "jobs": {
        "name": ("Name", str),
        "model": ("Model", str),
        "max_batch_size": ("Batch", int),
        "tokens": ("Tokens", float),
        "post_training.steps": ("RL steps", int),
        "deadline_days": ("Deadline, days", float),
        "after": ("After", str),
        "weight": ("Weight", float),
        "elastic": ("Elastic", bool),
    },
    "services": {
        "name": ("Name", str),
        "model": ("Model", str),
        "prompt": ("Prompt, tokens", int),
        "output": ("Output, tokens", int),
        "time_to_first_token_s": ("First token, s", float),
        "time_per_output_token_s": ("Per token, s", float),
        "startup_s": ("Start-up, s", float),
        "after": ("After", str),
    },
}
"""Label and kind of each column by part of the document and field."""
DOCUMENTS: Final[Mapping[str, type[Document]]] = {
    "pools": FleetPoolDocument,
    "jobs": FleetJobDocument,
    "services": FleetServiceDocument,
}


def table_of(part: str, rows: list[dict[str, Any]]) -> pd.DataFrame:
    """Return a part of the document as a table.

    Args:
        part: of `COLUMNS`.
        rows: of the part.
    """
    defaults = _defaults(part)
    columns: dict[str, pd.Series[Any]] = {}
    for field, (label, kind) in COLUMNS[part].items():
        values = [_read(row, field, defaults) for row in rows]
        if kind is str:
            columns[label] = pd.Series([_words(each) for each in values], dtype="object")
        elif kind is bool:
            columns[label] = pd.Series([bool(each) for each in values], dtype="bool")
        else:
            columns[label] = pd.Series([math.nan if each is None else each for each in values], dtype="float64")
    return pd.DataFrame(columns)


def _defaults(part: str) -> dict[str, Any]:
    return {name: None if info.is_required() else info.default for name, info in DOCUMENTS[part].model_fields.items()}


def _read(row: Mapping[str, Any], field: str, defaults: Mapping[str, Any]) -> Any:
    outer, _, inner = field.partition(".")
    if inner:
        return (row.get(outer) or {}).get(inner)
    return row.get(field, defaults[field])


def _words(value: Any) -> str:
    """Return a text; of a whole document of a model or system its name."""
    return str(value.get("name", "own")) if isinstance(value, Mapping) else "" if value is None else str(value)


def document_of_tables(base: Mapping[str, Any], tables: Mapping[str, pd.DataFrame]) -> dict[str, Any]:
    """Return the document with edited pools, jobs and services.

    Args:
        base: the document before.
        tables: by part; the index of a row is its place in the document before, and that of a new row none of these.
    """
    found = dict(base)
    for part, table in tables.items():
        before = list(base.get(part) or [])
        plain = table_of(part, before)
        defaults = _defaults(part)
        rows = []
        for at, cells in zip(table.index, table.to_dict("records"), strict=True):
            is_known = isinstance(at, int | np.integer) and 0 <= int(at) < len(before)
            row = dict(before[int(at)]) if is_known else {}
            for field, (label, kind) in COLUMNS[part].items():
                value = _cell(cells[label], kind)
                old = _cell(plain[label].iloc[int(at)] if is_known else _read({}, field, defaults), kind)
                if value != old:
                    _write(row, field, value)
            if row:
                rows.append(row)
        found[part] = rows
    return found


def _cell(value: Any, kind: type) -> Any:
    """Return a cell as the document has it; None for an empty one."""
    if value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value)):
        return None
    if kind is str:
        return str(value).strip() or None
    if kind is bool:
        return bool(value)
    return int(value) if kind is int and float(value).is_integer() else float(value)


def _write(row: dict[str, Any], field: str, value: Any) -> None:
    outer, _, inner = field.partition(".")
    if inner:
        row[outer] = {**(row.get(outer) or {}), inner: value}
        if value is None:
            del row[outer][inner]
    elif value is None and field not in ("time_to_first_token_s", "time_per_output_token_s"):
        row.pop(field, None)
    else:
        row[field] = value


def list_titles(rows: list[dict[str, Any]]) -> list[str]:
    """Return a title of each service, once each.

    Args:
        rows: of the document's services.
    """
    found: list[str] = []
    for row in rows:
        name = _words(row.get("name")) or _words(row.get("model"))
        same = sum(each == name or each.startswith(f"{name} (") for each in found)
        found.append(f"{name} ({same + 1})" if same else name)
    return found


def demand_table(question: FleetQuestion, titles: list[str], hours: int) -> pd.DataFrame:
    """Return the demand of each service by hour, without headroom [1/s].

    Args:
        question: of the document.
        titles: of its services.
        hours: of the table, 24 or 168.
    """
    columns = {}
    for title, service in zip(titles, question.services, strict=True):
        try:
            columns[title] = demand_hours(service, hours)
        except QuestionError:
            columns[title] = np.zeros(hours)
    table = pd.DataFrame(columns)
    days = [f"day {at // DAY_HOURS}, " if hours > DAY_HOURS else "" for at in range(hours)]
    table.insert(0, "Hour", [f"{day}{at % DAY_HOURS}:00" for at, day in enumerate(days)])
    return table


def with_demand(base: Mapping[str, Any], place: int, demand: list[float]) -> dict[str, Any]:
    """Return the document with another demand of a service.

    Args:
        base: the document before.
        place: of the service.
        demand: of each hour [1/s].

    Raises `PlanError` for a number of hours that is neither a day nor a week.
    """
    if len(demand) not in (DAY_HOURS, WEEK_HOURS):
        raise PlanError(f"The demand has {len(demand):,} hours; give {DAY_HOURS} or {WEEK_HOURS}.")
    services = [dict(row) for row in base.get("services") or []]
    kept = {name: value for name, value in services[place].items() if name not in OF_SHAPE}
    services[place] = {**kept, "demand": demand}
    return {**base, "services": services}


def read_demand_file(content: bytes) -> list[float]:
    """Return the demand of a file.

    Args:
        content: of the file.

    Raises `PlanError` with one sentence for another file.
    """
    try:
        return read_hours(content.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise PlanError("The demand is no text in UTF-8.") from None
    except WorkloadError as problem:
        raise PlanError(str(problem)) from None
