"""The file of a result store: which paths can be one, and how it is made, whole or not at all."""

import contextlib
import errno
import os
import re
import stat
import uuid
import zlib
from pathlib import Path
from typing import Final

import duckdb

from engine import columns
from engine.store.compat import LOG_BEGINS, LOG_SUFFIX
from engine.store.contents import SUFFIX as CONTENTS
from engine.store.errors import StoreAccessError, StoreError, explain
from engine.store.files import TABLE
from engine.store.lock import StoreLock
from engine.store.remains import check_nothing_remains

SUFFIX: Final = ".duckdb"
LAYOUT: Final = "2"
"""Version of the tables below; raised whenever they change."""
WITHOUT_CHECKSUMS: Final = "1"
"""Layout before checksums of shards and records of files: readable, upgraded when written."""

TABLES: Final = (
    """
CREATE TABLE meta (name VARCHAR PRIMARY KEY, value VARCHAR NOT NULL);
CREATE TABLE exploration (
    key VARCHAR PRIMARY KEY,
    scenario VARCHAR NOT NULL,
    engine_version VARCHAR NOT NULL,
    total BIGINT NOT NULL,
    feasible BIGINT NOT NULL,
    infeasible_by_reason VARCHAR NOT NULL,
    timings VARCHAR NOT NULL,
    created_at TIMESTAMP NOT NULL,
    shards VARCHAR
);
CREATE TABLE reduction (
    key VARCHAR,
    name VARCHAR,
    rows BIGINT NOT NULL,
    content BLOB NOT NULL,
    PRIMARY KEY (key, name)
);
"""
    + TABLE
)
"""The catalogue. `scenario`, `infeasible_by_reason`, `timings` and `shards` are JSON; `shards` is NULL when the rows
are in the table `rows_<key>` of this file. `created_at` is UTC. `content` is an Arrow stream."""

IS_TABLE: Final = "SELECT 1 FROM pragma_storage_info($table) LIMIT 0"
"""Asks a database nothing, and fails where it has no such table; also for views, which have no storage. Unlike
`duckdb_tables()` it does not have the hundred views made that come with a database, when it was just opened."""
COLUMNS_OF_TABLE: Final = "SELECT name, type FROM pragma_table_info($table)"
"""Asks a database for name and type of each column of a table."""


def columns_digest() -> str:
    """Return a short digest of the stored columns, which distinguishes stores written with another register."""
    return f"{zlib.crc32(columns.ddl('rows', columns.cost_model_in({})).encode()):08x}"


def columns_of_tables() -> set[tuple[str, str, str]]:
    """Returns table, name and type of each column of the catalogue."""
    return {
        (table, *words[:2])
        for table, content in re.findall(r"CREATE TABLE (\w+) \((.*?)\);", TABLES, re.DOTALL)
        for words in map(str.split, re.split(r",(?![^(]*\))", content))
        if words[0] != "PRIMARY"
    }


def checked_path(path: Path, *, read_only: bool, rebuild: bool = False) -> Path:
    """Return the real path, after checks for cases that DuckDB reports less clearly or acts on unasked.

    Nothing is opened: reading an endless file, such as a pipe, would never finish.

    Args:
        path: as it was given.
        read_only: whether the store is only to be read.
        rebuild: whether a missing database is made next to the remains of its store.
    """
    try:
        path = path.resolve()
        log = os.path.lexists(log_of(path))  # asked first: who makes a store makes its log later
        kind = path.stat().st_mode if path.exists() else None
        if kind is None and not rebuild:
            check_nothing_remains(path, contents_of(path), rows_of(path))
        # DuckDB takes any file of this name for its log: waits for a pipe, writes through a link, and removes it.
        if log and (kind is None or not log_of(path).is_file() or log_of(path).is_symlink()):
            raise _in_the_way(path)
        if kind is not None and stat.S_ISDIR(kind):
            raise StoreAccessError(f"The store {path} is a folder: name a file in it, such as results{SUFFIX}.")
        if kind is not None and not stat.S_ISREG(kind):
            words = {stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket"}.get(stat.S_IFMT(kind), "a device")
            raise StoreAccessError(f"The store {path} is {words}: name a file, such as results{SUFFIX}.")
        if not path.name.endswith(SUFFIX) or path.name == SUFFIX:
            raise StoreAccessError(f"The store {path} needs a file name ending in {SUFFIX}, such as results{SUFFIX}.")
        if not path.parent.is_dir():
            raise StoreAccessError(f"The folder {path.parent} for the store {path.name} is missing: create it first.")
        if kind is not None:
            if not os.access(path, os.R_OK):
                raise StoreAccessError(f"The store {path} is not readable: change permissions, or name another file.")
            if not read_only and not os.access(path, os.W_OK):
                raise StoreAccessError(f"The store {path} is not writable: open it read-only or change permissions.")
        elif read_only:
            raise StoreAccessError(f"There is no store at {path}: run an exploration with this file first.")
        if not read_only and not os.access(path.parent, os.W_OK | os.X_OK):
            raise StoreAccessError(f"The folder {path.parent} is not writable: put the store elsewhere.")
    except StoreError:
        raise
    except (OSError, ValueError, RuntimeError) as error:
        raise explain(error, path) from error
    return path


def log_of(path: Path) -> Path:
    """Return the path at which DuckDB keeps the latest changes of a store.

    Args:
        path: of the store.
    """
    return path.with_name(f"{path.name}{LOG_SUFFIX}")


def contents_of(path: Path) -> Path:
    """Returns the file that lists, a second time, what a store holds.

    Args:
        path: of the store.
    """
    return path.with_name(path.name.removesuffix(SUFFIX) + CONTENTS)


def rows_of(path: Path) -> Path:
    """Returns the folder of the rows of a store.

    Args:
        path: of the store.
    """
    return path.with_name(path.name.removesuffix(SUFFIX) + ".rows")


def check_log(path: Path) -> None:
    """Check that the log of a store is a DuckDB log, before DuckDB opens it.

    DuckDB takes an end that makes no sense for a log that was cut short. The store must be closed: closing a file that
    is open releases its lock.

    Args:
        path: of the store.

    Raises:
        StoreError: the log is another kind of file, or cannot be read.
    """
    try:
        begin = b""
        with contextlib.suppress(FileNotFoundError), log_of(path).open("rb") as log:
            begin = log.read(len(LOG_BEGINS))
    except OSError as error:
        raise explain(error, log_of(path)) from error
    if not LOG_BEGINS.startswith(begin):
        raise _in_the_way(path)


def _in_the_way(path: Path) -> StoreAccessError:
    return StoreAccessError(
        f"The file {log_of(path)} is where the log of the store {path.name} goes, but is not its log: move it away."
    )


def create_store(path: Path, lock: StoreLock, identity: str) -> None:
    """Makes an empty store under a temporary name and gives it its own name only when it is whole and on disk.

    Args:
        path: of the store.
        lock: which says, while the file is being made, under which name.
        identity: of the store, 32 hexadecimal digits.
    """
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.new")
    lock.making(temporary.name)
    try:
        with contextlib.closing(duckdb.connect(str(temporary))) as connection:
            connection.execute(TABLES)
            connection.execute(
                "INSERT INTO meta VALUES ('application', 'shardscape'), ('layout', $layout), ('columns', $columns), "
                "('identity', $identity)",
                {"layout": LAYOUT, "columns": columns_digest(), "identity": identity},
            )
            connection.execute("CHECKPOINT")
        flush_to_disk(temporary)
        with contextlib.suppress(FileExistsError):  # another process was faster, where locks are not to be had
            try:
                os.link(temporary, path)
            except OSError as error:
                if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK):
                    raise
                os.rename(temporary, path)  # file systems without hard links
        flush_to_disk(path.parent)
    except (duckdb.Error, OSError) as error:
        if not path.exists():
            raise explain(error, path) from error
    finally:
        for leftover in (temporary, Path(f"{temporary}{LOG_SUFFIX}")):
            leftover.unlink(missing_ok=True)
        lock.making("")


def remove_half_made(path: Path, lock: StoreLock) -> None:
    """Removes the file that a process was making at `path` when it died, as it said in the lock.

    Args:
        path: of the store.
        lock: which says what a process was making.
    """
    if re.fullmatch(rf"\.{re.escape(path.name)}\.[0-9a-f]{{32}}\.new", lock.left_half_made):
        for name in (lock.left_half_made, f"{lock.left_half_made}.wal"):
            file = path.with_name(name)
            with contextlib.suppress(OSError):
                if file.is_file() and not file.is_symlink():
                    file.unlink()
    lock.making("")


def flush_to_disk(path: Path) -> None:
    """Forces a file, or the entries of a folder, out of the operating system's cache. Raises OSError.

    Args:
        path: of the file or folder.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
