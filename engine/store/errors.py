"""Errors of a result store, and their translation from a database's words into one clear sentence."""

import errno
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import duckdb

from engine.store import compat

ADVICE: Final = "`shardscape store check` with --repair explores it again, with --drop removes the exploration."
"""Remedy for a damaged exploration."""


class StoreError(ValueError):
    """Failed operation of a result store; the message is one sentence with reason and remedy."""


class StoreAccessError(StoreError, OSError):
    """The path cannot be used: missing, a folder, not readable or not writable."""


class StoreLockedError(StoreError, OSError):
    """Another process, or another mode in this process, holds the store, or another writer holds the exploration."""


class StoreVersionError(StoreError):
    """The file is a store of another layout, or a DuckDB database that is no store at all."""


class StoreCorruptError(StoreError):
    """The file or one of its shards is damaged, truncated, missing or not a database."""


class StoreWriteError(StoreError, OSError):
    """Writing a file failed for want of disk space; nothing of the exploration was kept. `why` is the reason alone."""

    def __init__(self, file: str, why: str) -> None:
        super().__init__(f"Writing to {file} failed because {why}: make room and run it again.")
        self.file, self.why = file, why


class StoreMemoryError(StoreError):
    """A query needs more memory than the store may take."""


class StoreInterruptedError(StoreError):
    """The query was cancelled by `interrupt`."""


class StoreLossWarning(UserWarning):
    """Explorations lost from the store; the message names them."""


class NotEvaluatedError(StoreError):
    """Query of statistics that are neither stored nor added, or whose added columns were removed since."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(
            f"The {'columns' if len(names) > 1 else 'column'} {', '.join(names)} "
            f"{'are' if len(names) > 1 else 'is'} not stored for every execution: "
            "`engine.exploration.unstored_statistics.add_columns` evaluates statistics that are not."
        )
        self.names = tuple(names)


class TooManyValuesError(StoreError):
    """More statistics of more rows than may be there at once."""

    def __init__(self, rows: int, names: int, most: int) -> None:
        super().__init__(
            f"{rows:,} executions times {names} statistics are more than {most:,} values: "
            "ask for fewer statistics or limit the space."
        )
        self.rows, self.names, self.most = rows, names, most


_NO_ROOM = {
    errno.ENOSPC: "no space left on the device",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "the file would exceed the size limit",
}


def has_no_room(error: OSError) -> bool:
    """Return True if an error of the system means that a file cannot grow.

    Args:
        error: as it was raised.
    """
    return error.errno in _NO_ROOM


def explain(error: Exception, path: Path) -> StoreError:
    """Return the StoreError that explains an error of DuckDB, Arrow or the file system in one sentence.

    Args:
        error: as it was raised.
        path: the file that the operation was about; one that the error itself names takes precedence.
    """
    if isinstance(error, StoreError):
        return error
    text = str(error)
    words = text.lower()
    named = re.search(r'file "?([^"\n:]+\.(?:parquet|duckdb(?:\.wal)?))"?', text, re.IGNORECASE)
    file = named.group(1) if named else str(path)
    number = getattr(error, "errno", None) or 0
    for phrase, meaning in zip(compat.NO_ROOM, _NO_ROOM.values(), strict=True):
        if phrase in words or _NO_ROOM.get(number) == meaning:
            return StoreWriteError(file, meaning)
    if isinstance(error, duckdb.InterruptException) or "interrupted" in words:
        return StoreInterruptedError(f"The query on {path} was cancelled.")
    if isinstance(error, duckdb.OutOfMemoryException):
        return StoreMemoryError(
            f"The query on {path} needs more memory than the store may take: ask for fewer rows or no order."
        )
    if compat.LOCKED in words:
        holder = re.search(r"PID (\d+)", text)
        who = f"process {holder.group(1)}" if holder else "another process"
        return StoreLockedError(
            f"The store {path} is held by {who}: close it there, wait for it to end, or name another file."
        )
    if compat.OPENED_OTHERWISE in words:
        return StoreLockedError(f"The store {path} is open in this process by other means: close it there first.")
    if any(phrase in words for phrase in compat.NOT_A_DATABASE):
        return StoreCorruptError(f"The file {path} is not a DuckDB database: name another, or delete this one.")
    if all(phrase in words for phrase in compat.OTHER_VERSION):
        return StoreVersionError(
            f"The file {path} was written by another version of DuckDB ({_first_line(text)}): "
            "name another file or install that version."
        )
    if isinstance(error, duckdb.FatalException) or compat.STOPPED in words:
        return StoreError(f"The store {path} stopped after an earlier failure: close it and open it again.")
    if any(phrase in words for phrase in compat.DAMAGED) or isinstance(error, duckdb.SerializationException):
        return StoreCorruptError(
            f"The file {file} is damaged ({_first_line(text)}): restore it from a copy, or delete it and explore again."
        )
    if isinstance(error, duckdb.CatalogException | duckdb.BinderException):
        return StoreCorruptError(
            f"The store {path} does not have the tables of one ({_first_line(text)}): "
            "restore it from a copy, or delete it and explore again."
        )
    if isinstance(error, PermissionError) or "permission denied" in words or "read-only file system" in words:
        return StoreAccessError(f"The store {path} cannot be accessed: permission to read or write {file} is missing.")
    if isinstance(error, duckdb.IOException | OSError):
        return StoreAccessError(f"The store {path} cannot be accessed: {_first_line(text)}.")
    return StoreError(f"The store {path} refused the operation: {_first_line(text)}.")


def _first_line(text: str) -> str:
    """Return the first line of a library's message without its category prefix and final stop."""
    line = text.strip().split("\n", 1)[0]
    return re.sub(r"^(?:[A-Za-z]+ )*Error: ", "", line).rstrip(".! ")
