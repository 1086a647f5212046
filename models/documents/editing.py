"""Edited copies of documents: one value at a path changed, and a list of every change since the original."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from models.documents.reading import Change, DocumentError, Scalar, did_you_mean, shown


def changed_document(
    document: Mapping[str, Any], changes: Mapping[str, Any], noun: str, error: type[DocumentError]
) -> dict[str, Any]:
    """Returns a copy of a JSON document with the values at dotted paths replaced.

    The document must hold every field, also those at their default, so that each path can be checked. Paths into lists
    have the position as a part: "networks.0.size".

    Args:
        document: with every field, also those at their default; it stays as it is.
        changes: new values by dotted path; positions in lists are parts too, as in "networks.0.size".
        noun: what the document is called in messages, such as "model".
        error: class of the error to raise.

    Raises `error` for a path that leads nowhere.
    """
    edited = copy.deepcopy(dict(document))
    for path, value in changes.items():
        parts = path.split(".") if isinstance(path, str) else [""]
        place: Any = edited
        for depth, part in enumerate(parts):
            known = (
                list(place) if isinstance(place, dict) else [str(index) for index in range(len(_as_sequence(place)))]
            )
            if part not in known:
                inside = f" in '{'.'.join(parts[:depth])}'" if depth else ""
                hint = did_you_mean(part, known) or (f"; there are {', '.join(known[:12])}" if known else "")
                raise error(f"The {noun} has no field {shown(part)}{inside}, so it cannot be changed{hint}.")
            key: Any = part if isinstance(place, dict) else int(part)
            if depth == len(parts) - 1:
                place[key] = copy.deepcopy(value)
            else:
                place = place[key]
    return edited


def changes_between(before: Any, after: Any, paths: Iterable[str]) -> tuple[Change, ...]:
    """Returns the differences between two documents at the given paths, as plain values or JSON text.

    Args:
        before: the document as it was.
        after: the document as it is.
        paths: dotted ones, at which the documents are compared.
    """
    found = ((path, _as_scalar(_value_at(before, path)), _as_scalar(_value_at(after, path))) for path in paths)
    return tuple(Change(field=path, old=old, new=new) for path, old, new in found if old != new)


def _value_at(document: Any, path: str) -> Any:
    for part in path.split("."):
        if not isinstance(document, dict | list):
            return None
        document = document[part] if isinstance(document, dict) else document[int(part)]
    return document


def _as_sequence(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def _as_scalar(value: Any) -> Scalar:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return json.dumps(value)


def lineage(earlier: Iterable[Change], later: Iterable[Change]) -> tuple[Change, ...]:
    """Returns the changes since the original: a field changed again keeps its first value, one changed back is left
    out.

    Args:
        earlier: changes from the original to some copy.
        later: changes from that copy to the newest.
    """
    merged: dict[str, Change] = {change.field: change for change in earlier}
    for change in later:
        first = merged.get(change.field, change)
        merged[change.field] = Change(field=change.field, old=first.old, new=change.new)
    return tuple(change for change in merged.values() if change.old != change.new)


def within(path: str, other: str) -> bool:
    """Returns whether a path is `other` or leads further into it; * in either matches any part.

    Args:
        path, other: parts with dots between them; * stands for any part.
    """
    parts, prefix = path.split("."), other.split(".")
    return len(parts) >= len(prefix) and all(
        "*" in (part, wanted) or part == wanted for part, wanted in zip(parts, prefix, strict=False)
    )


def marked(mark: str) -> str:
    """Return the path of a mark, without a remark after ": ".

    Args:
        mark: a path, which ": " and a remark may follow.
    """
    return mark.partition(":")[0]
