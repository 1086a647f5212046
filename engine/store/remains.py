"""Remains of a store: a list of contents or rows whose database is missing, or has given way to that of another store.

Nothing is written next to such remains, because a new list would be written over the old one. Rows alone are no
exploration: their counts and reductions were in the database, so what the list names has to be explored again.
"""

from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from engine import columns
from engine.store.contents import Contents
from engine.store.errors import StoreCorruptError
from engine.store.names import exploration_title

__all__ = ["check_nothing_remains", "foreign_database"]

_NAMED: Final = 3
"""Most explorations named in a sentence; above it the sentence has their number."""


def check_nothing_remains(path: Path, contents: Path, rows: Path) -> None:
    """Make sure that a missing database belongs to no store of which something is left.

    Args:
        path: where a database is missing.
        contents: where its list of contents would be.
        rows: folder where its rows would be.

    Raises:
        StoreCorruptError: the list names explorations, or the folder holds rows; the sentence says which.
    """
    listed = Contents(contents)
    folders = _folders_of_rows(rows)
    if not (listed.names_anything or folders) or path.exists():  # another process may have made both meanwhile
        return
    said = []
    if listed.names_anything:
        said.append(f"{contents.name} lists {_describe_contents(listed)}")
    if folders:
        said.append(f"{rows.name} holds the rows of {_count_nouns(len(folders), 'exploration')}")
    again = "explores them again" if listed.names_anything else "makes a new one and leaves the rows"
    raise StoreCorruptError(
        f"The database {path} is missing, but {' and '.join(said)}: restore it from a copy, or name another file; "
        f"`shardscape store check` with --repair {again}, with --drop starts over without them."
    )


def foreign_database(path: Path, listed: Contents) -> StoreCorruptError:
    """Return the error of a database that does not belong to the list of contents.

    Args:
        path: of the database.
        listed: the list of contents next to it.
    """
    return StoreCorruptError(
        f"The database {path} is of another store than {listed.path.name}, which lists "
        f"{_describe_contents(listed)}: restore "
        "the database of that list, or move the other one to a name of its own; `shardscape store check` with --repair "
        "keeps this database and explores those again, with --drop forgets them."
    )


def _describe_contents(listed: Contents) -> str:
    titles = [exploration_title(key, entry["scenario"]) for key, entry in listed.entries.items()]
    said = []
    if titles:
        more = [f"{len(titles) - _NAMED:,} more"] if len(titles) > _NAMED else []
        said.append(f"{_count_nouns(len(titles), 'exploration')} ({'; '.join([*titles[:_NAMED], *more])})")
    if listed.damaged:
        said.append(f"{_count_nouns(listed.damaged, 'line')} that cannot be read")
    return " and ".join(said)


def _count_nouns(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' if number != 1 else ''}"


def _folders_of_rows(rows: Path) -> list[Path]:
    """Return the folders in which a store has written rows, without folders of foreign files."""
    try:
        if rows.is_symlink():
            return []
        return [folder for folder in sorted(rows.iterdir()) if _has_rows(folder / "00000.parquet")]
    except OSError:  # there is no such folder
        return []


def _has_rows(shard: Path) -> bool:
    try:
        if shard.is_symlink() or not shard.is_file():
            return False
        return {column.name for column in columns.ALL_FIELDS} & set(pq.read_schema(shard).names) != set()
    except (OSError, pa.ArrowException):
        return False
