"""Merging of a folder's small parts into large ones after a run: a task of a second writes a few hundred bytes.

An interruption loses no point: a large part is complete before its small ones are removed, and points in both count
once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from engine.codesign.errors import FolderError
from engine.codesign.folder import ResultFolder

__all__ = ["Merge", "find_merges", "merge_parts"]

MOST_POINTS: Final = 200_000
"""Points of a merged part at most: some MiB."""


@dataclass(frozen=True, slots=True)
class Merge:
    """Names of a folder's parts that hold a number of places from `first` on without a gap; parts in `covered` add
    nothing to them."""

    place: str
    first: int
    count: int
    names: tuple[str, ...]
    covered: tuple[str, ...]


def find_merges(folder: ResultFolder, models: int) -> Iterator[Merge]:
    """Yields what can be merged in a folder: parts that follow each other, none of them large already.

    Args:
        folder: where the parts are.
        models: points of a place [count].
    """
    most = max(1, MOST_POINTS // models)
    names: list[str] = []
    covered: list[str] = []
    first = reached = 0

    def found() -> Iterator[Merge]:
        if len(names) > 1 or covered:
            yield Merge(folder.shared, first, reached - first, tuple(names), tuple(covered))

    for start, count, name in sorted(folder.parts(), key=lambda part: (part[0], -part[1])):
        if names and start + count <= reached:
            covered.append(name)
            continue
        if not names or start != reached or start + count - first > most:
            yield from found()
            names, covered, first = [], [], start
        names.append(name)
        reached = start + count
    yield from found()


def merge_parts(task: Merge, key: str) -> int:
    """Write the rows of parts as one, remove the merged parts, and return its size [bytes]; 0 if nothing was written.

    Raises `FolderError`, also for parts of another study than the one with this key.

    Args:
        task: the parts to merge.
        key: of the study.
    """
    folder, size = ResultFolder(task.place), 0
    rows = _read_parts(folder, task.names, key)
    if len(task.names) > 1:
        whole = pa.concat_tables(rows, promote_options="default").unify_dictionaries()
        size = folder.keep(task.first, task.count, whole.replace_schema_metadata({"study": key}))
    for name in (*(task.names if len(task.names) > 1 else ()), *task.covered):
        folder.remove(name)
    return size


def _read_parts(folder: ResultFolder, names: Sequence[str], key: str) -> list[pa.Table]:
    found = []
    for name in names:
        rows, mine = folder.rows(name)
        if mine != key.encode():
            raise FolderError(f"{name} is of another study.")
        found.append(rows)
    return found
