"""Information from DuckDB and Arrow that is available only as words, file names and bytes.

Checked with DuckDB 2.0.0 and PyArrow 26.0.1. Both have few classes of errors, so that only the message gives the cause;
`tests/engine/test_compat.py` has each of them raised and fails where the words have changed.
"""

from __future__ import annotations

from typing import Final

__all__ = [
    "DAMAGED",
    "LOCKED",
    "LOG_BEGINS",
    "LOG_SUFFIX",
    "NOT_A_DATABASE",
    "NO_ROOM",
    "OPENED_OTHERWISE",
    "OTHER_VERSION",
    "SPILLED",
    "STOPPED",
]

# Words of messages, in lower case.
LOCKED: Final = "could not set lock"
"""Another process has the database open; the number of the process follows as "PID 12"."""
OPENED_OTHERWISE: Final = "different configuration"
"""This process has the database open with other options."""
NOT_A_DATABASE: Final = ("not a valid duckdb database", 'extension "')
"""The file is no database; for some kinds of files DuckDB names the extension that would read them instead."""
OTHER_VERSION: Final = ("version number", "read a database file")
"""Database of another layout; the message names both layouts."""
STOPPED: Final = "database has been invalidated"
"""Something failed before, and the database takes no more questions until it is opened again."""
NO_ROOM: Final = ("no space left", "quota exceeded", "file too large")
"""The file cannot grow; the system's own words, for ENOSPC, EDQUOT and EFBIG."""
DAMAGED: Final = (
    "corrupt",
    "could not read enough bytes",
    "no magic bytes",
    "too small to be a parquet",
    "parquet footer",
    "checksum",
    "failed to deserialize",
    "invalid parquet",
)
"""Messages for a database or a Parquet file with invalid content."""

LOG_SUFFIX: Final = ".wal"
"""Suffix of a database's log, after the name of the database."""
LOG_BEGINS: Final = b"d\0b"
"""Field of a log with the kind of an entry, and the kind of the entry with the log's version."""
SPILLED: Final = "duckdb_temp*"
"""Names of files that a query spills into the folder when memory is short."""
