"""Profiles as CSV and JSON of our own, with a unit in every column's name.

A table has the columns `layer`, `forward_s`, `backward_s`, `activation_bytes`, `parameter_bytes`, and may have
`kept_bytes`, `name` and `after`, which lists the layers that feed this one, separated by blanks; without `after` each
layer feeds the next.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pydantic

from engine.planners.layerwise.profiles.profile import LayerProfile, ProfileError, ProfileLayer, profile_of

__all__ = ["COLUMNS", "csv_profile", "csv_text", "json_profile", "json_text"]

COLUMNS: Final = ("layer", "forward_s", "backward_s", "activation_bytes", "parameter_bytes")
FURTHER: Final = ("kept_bytes", "name", "after")


class _Row(pydantic.BaseModel):
    """A layer in a table or document."""

    model_config = pydantic.ConfigDict(extra="forbid", coerce_numbers_to_str=True)
    layer: str = pydantic.Field(min_length=1, max_length=200)
    name: str = pydantic.Field(default="", max_length=1_000)
    forward_s: float
    backward_s: float
    activation_bytes: float
    parameter_bytes: float
    kept_bytes: float | None = None
    after: list[str] | None = None


class _ProfileDocument(pydantic.BaseModel):
    """A profile as a document."""

    model_config = pydantic.ConfigDict(extra="forbid")
    name: str = pydantic.Field(default="", max_length=200)
    batch: float | None = None
    source: str = pydantic.Field(default="", max_length=2_000)
    layers: list[_Row]


def csv_profile(text: str, *, name: str = "profile", batch: float | None = None) -> LayerProfile:
    """Returns the profile in a CSV text.

    Args:
        text: content of a file.
        name: what to call the profile; in messages too.
        batch: samples at which it was taken; what the text says where None.

    Raises `ProfileError` naming the row at fault.
    """
    try:
        lines = list(csv.DictReader(io.StringIO(text.lstrip("\ufeff"))))
    except csv.Error as error:
        raise ProfileError(f"The table cannot be read: {error}.") from None
    if not lines:
        raise ProfileError("The table has no rows below its header.")
    header = [str(column).strip() for column in lines[0] if column is not None]
    if missing := [column for column in COLUMNS if column not in header]:
        raise ProfileError(f"The table has no column {', '.join(missing)}; it needs {', '.join(COLUMNS)}.")
    rows = []
    for number, line in enumerate(lines, start=2):
        if None in line:
            raise ProfileError(f"Line {number} has more values than the header has columns.")
        values: dict[str, Any] = {str(key).strip(): (value or "").strip() for key, value in line.items()}
        values["after"] = values["after"].split() if "after" in values else None
        values["kept_bytes"] = values.get("kept_bytes") or None
        rows.append(_check_row(values, f"Line {number}"))
    return _profile_of_rows(rows, name, batch, "")


def json_profile(text: str, *, name: str = "profile", batch: float | None = None) -> LayerProfile:
    """Returns the profile in a JSON text.

    Args:
        text: content of a file.
        name: what to call the profile; in messages too.
        batch: samples at which it was taken; what the text says where None.

    Raises `ProfileError` naming the field at fault.
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        raise ProfileError("The text begins like JSON but is none.") from None
    if not isinstance(data, dict) or not isinstance(data.get("layers"), list):
        raise ProfileError("The document has no list `layers`.")
    try:
        found = _ProfileDocument.model_validate({**data, "layers": []})
    except pydantic.ValidationError as error:
        raise ProfileError(f"The document: {_first_fault(error)}.") from None
    rows = [_check_row(row, f"Layer {number}") for number, row in enumerate(data["layers"], start=1)]
    return _profile_of_rows(rows, found.name or name, found.batch if batch is None else batch, found.source)


def csv_text(profile: LayerProfile) -> str:
    """Returns a profile as a table.

    Args:
        profile: times and sizes of layers, in order.
    """
    out = io.StringIO()
    writer = csv.DictWriter(out, [*COLUMNS, *FURTHER], lineterminator="\n")
    writer.writeheader()
    for row in _rows_of_profile(profile):
        writer.writerow({**row, "after": " ".join(row["after"])})
    return out.getvalue()


def json_text(profile: LayerProfile) -> str:
    """Returns a profile as a document.

    Args:
        profile: times and sizes of layers, in order.
    """
    head = {"name": profile.name, "batch": profile.batch, "source": profile.source}
    return json.dumps({**head, "layers": _rows_of_profile(profile)}, indent=1)


def _rows_of_profile(profile: LayerProfile) -> list[dict[str, Any]]:
    after: list[list[str]] = [[] for _ in profile.layers]
    for a, b in profile.edges:
        after[b].append(profile.layers[a].id)
    return [
        {
            "layer": layer.id,
            "forward_s": layer.forward,
            "backward_s": layer.backward,
            "activation_bytes": layer.activation,
            "parameter_bytes": layer.parameters,
            "kept_bytes": layer.kept,
            "name": layer.name,
            "after": fed,
        }
        for layer, fed in zip(profile.layers, after, strict=True)
    ]


def _check_row(values: Mapping[str, Any], where: str) -> _Row:
    try:
        return _Row.model_validate(values)
    except pydantic.ValidationError as error:
        raise ProfileError(f"{where}: {_first_fault(error)}.") from None


def _first_fault(error: pydantic.ValidationError) -> str:
    """Returns the first fault as a clause."""
    fault = error.errors(include_url=False)[0]
    field = ".".join(str(part) for part in fault["loc"]) or "the row"
    given = fault.get("input")
    shown = f", not {str(given)[:60]!r}" if isinstance(given, str | int | float) else ""
    told = "it is missing" if fault["type"] == "missing" else fault["msg"].lower() + shown
    return f"{field}: {told}"


def _profile_of_rows(rows: Sequence[_Row], name: str, batch: float | None, source: str) -> LayerProfile:
    layers = [
        ProfileLayer(
            row.layer,
            row.name or row.layer,
            row.forward_s,
            row.backward_s,
            row.activation_bytes,
            row.parameter_bytes,
            row.kept_bytes,
        )
        for row in rows
    ]
    if any(row.after is not None for row in rows):
        edges = [(before, row.layer) for row in rows for before in row.after or ()]
    else:
        edges = [(a.layer, b.layer) for a, b in itertools.pairwise(rows)]
    return profile_of(name, layers, edges, batch=batch, source=source)
