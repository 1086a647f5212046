"""Edited copies of systems, which record their original and lose the marks of replaced values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from hardware.schema import Assumption, System
from models.documents import DocumentError, changed_document, changes_between, lineage, marked, sentence, shown, within


class SystemFileError(DocumentError):
    """A system that cannot be used: an unknown name, an unreadable file, or a document that is not a system."""


def edited(system: System, changes: Mapping[str, Any], *, name: str | None = None, title: str | None = None) -> System:
    """Returns a copy of a system with values at paths such as "mem1.capacity_gib" or "networks.0.size" replaced.

    The copy names its original in `derived_from` and all differences from it in `changes`, also after several edits. A
    replaced value is no longer marked as assumed or unverified. Without a `name` it gets the original's with "
    (edited)".

    Args:
        system: to copy; it does not change.
        changes: new values by path, such as "mem1.capacity_gib" or "networks.0.size".
        name: of the copy; the original's with " (edited)" where None.
        title: of the copy; the original's where None.

    Raises `SystemFileError` for a path that leads nowhere or a value that no system can have.
    """
    before = _full_document(system)
    for field in ("name", "derived_from", "changes"):
        del before[field]
    document = changed_document(before, changes, "system", SystemFileError)
    document["name"] = name or (system.name if system.derived_from else f"{system.name} (edited)")
    document["title"] = document["title"] if title is None else title
    document["derived_from"] = system.derived_from or system.name
    try:
        copied = System.model_validate(document, by_name=True, by_alias=False)
    except ValidationError as problem:
        raise SystemFileError(sentence(problem, System, shown(document["name"])[1:-1])) from None
    after = _full_document(copied)
    since = lineage(system.changes, changes_between(before, after, changes))
    paths = [change.field for change in since]
    assumptions = tuple(
        Assumption(field=path, basis=assumption.basis)
        for assumption in system.assumptions
        for path in _unreplaced_parts(system, assumption.field, paths)
    )
    unverified = tuple(
        path + field.removeprefix(marked(field))
        for field in system.unverified_fields
        for path in _unreplaced_parts(system, marked(field), paths)
    )
    return copied.model_copy(update={"changes": since, "assumptions": assumptions, "unverified_fields": unverified})


def _full_document(system: System) -> dict[str, Any]:
    """Returns the document including fields that files omit at their usual value."""
    document = system.model_dump(mode="json", by_alias=False)
    if system.accelerator is not None:
        document["accelerator"] |= {
            "exponentials_per_clock": system.accelerator.exponentials_per_clock,
            "fused_attention": system.accelerator.fused_attention,
        }
    for network, entry in zip(system.networks, document["networks"], strict=True):
        entry |= {"name": network.name, "within_node": network.within_node}
    return document


def _unreplaced_parts(system: System, mark: str, replaced: list[str]) -> Iterator[str]:
    """Yields the parts of a mark that none of the `replaced` paths touches; the mark itself if none touches it."""
    if not any(within(path, mark) or within(mark, path) for path in replaced):
        yield mark
        return
    for path, _ in system.values_at(mark):
        if any(within(path, each) for each in replaced):
            continue
        if any(within(each, path) for each in replaced):
            for child, _ in system.values_at(f"{path}.*"):
                yield from _unreplaced_parts(system, child, replaced)
        else:
            yield path
