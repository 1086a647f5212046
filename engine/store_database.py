"""The DuckDB file of a result store: created whole or not at all, opened once per process, locked down, swept.

DuckDB lets one process write a file, and within that process every connection must agree on its settings. So a process
holds one `Database` per file, shared by all stores opened on it; each query gets a cursor of its own.
"""

import contextlib
import errno
import os
import re
import shutil
import threading
import uuid
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import duckdb

from engine import columns
from engine.store_added import AddedFiles
from engine.store_errors import (
    StoreAccessError,
    StoreCorruptError,
    StoreError,
    StoreLockedError,
    StoreMemoryError,
    StoreVersionError,
    explain,
)

SUFFIX: Final = ".duckdb"
LAYOUT: Final = "1"
"""Version of the tables below; raised whenever they change."""

KEY_PATTERN: Final = re.compile(r"[0-9a-z][0-9a-z_-]{0,127}")
"""What may name an exploration: it becomes the name of a folder and of a table. Lower case only, because some file
systems do not tell case apart."""

TABLES: Final = """
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
"""The catalogue. `scenario`, `infeasible_by_reason`, `timings` and `shards` are JSON; `shards` is NULL when the rows
are in the table `rows_<key>` of this file. `created_at` is UTC. `content` is an Arrow stream."""

MEMORY: Final = 128
"""What DuckDB may keep in memory [MiB]: left alone it takes most of the machine over time, for tables that it could
read again at hardly any cost."""
SORTING: Final = 384
"""How much more it may take while it sorts many rows [MiB]. What is larger spills to disk beside the file, but a sort
of 3.7 M rows fails with 128 MiB."""

_DUCKDB_MAGIC: Final = b"DUCK"
_MAGIC_OFFSET: Final = 8  # behind the checksum of the first header
_open_databases: dict[Path, "Database"] = {}
_registry_lock = threading.Lock()


def columns_digest() -> str:
    """Return a short digest of the stored columns, which tells stores written with another register apart."""
    return f"{zlib.crc32(columns.ddl('rows').encode()):08x}"


def rows_table(key: str) -> str:
    """Return the quoted name of the table that holds an exploration's rows in the database file."""
    return f'"rows_{key}"'


def checked_key(key: str) -> str:
    """Return `key` if it may name an exploration; raise StoreError otherwise."""
    if not isinstance(key, str) or not KEY_PATTERN.fullmatch(key):
        raise StoreError(
            f"The exploration key {str(key)[:80]!r} is not usable: 1 to 128 of a-z, 0-9, - and _ are accepted."
        )
    return key


class Database:
    """One open store file in this process, shared by every store on the same path."""

    def __init__(self, path: Path, *, read_only: bool) -> None:
        self.path = path
        self.read_only = read_only
        self.folder = path.with_name(path.name.removesuffix(SUFFIX) + ".rows")
        self.added = AddedFiles(self.folder, read_only=read_only)
        """Columns that are evaluated after an exploration."""
        self.write_lock = threading.Lock()
        self._users = 1
        self._cursors_lock = threading.Lock()
        self._writers_changed = threading.Condition()
        self._writers: dict[str, int] = {}
        self._memory_lock = threading.Lock()
        self._sorts, self._memory = 0, MEMORY
        self._connection = self._connect()
        try:
            self._check_identity()
            if not read_only:
                self._sweep()
        except BaseException:
            self._connection.close()
            raise

    @classmethod
    def acquire(cls, path: Path, *, read_only: bool) -> "Database":
        """Return the database at `path`, opening it or sharing it with the other stores of this process.

        A store that only reads may share a database opened for writing. Raises a StoreError that says what is wrong
        with the path.
        """
        path = _checked_path(path, read_only=read_only)
        with _registry_lock:
            database = _open_databases.get(path)
            if database is None:
                if not path.exists():
                    _create(path)
                database = _open_databases[path] = cls(path, read_only=read_only)
            elif database.read_only and not read_only:
                raise StoreLockedError(f"The store {path} is open for reading in this process: close it there first.")
            else:
                database._users += 1
            return database

    def release(self) -> None:
        """Give back one use; the last one closes the file."""
        with _registry_lock:
            self._users -= 1
            if self._users == 0:
                _open_databases.pop(self.path, None)
                self.added.close()
                with contextlib.suppress(duckdb.Error):  # a failing last checkpoint leaves a log that opening replays
                    self._connection.close()

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """Keep the file open, whatever the stores on it do."""
        with _registry_lock:
            self._users += 1
        try:
            yield
        finally:
            self.release()

    @contextlib.contextmanager
    def cursor(self, *active: set[duckdb.DuckDBPyConnection]) -> Iterator[duckdb.DuckDBPyConnection]:
        """Give a cursor for one query and turn its errors into StoreErrors.

        While the query runs the cursor is a member of the sets `active`, for whoever may want to interrupt it.
        """
        try:
            with self._cursors_lock:
                cursor = self._connection.cursor()
        except duckdb.Error as error:
            raise explain(error, self.path) from error
        for cursors in active:
            cursors.add(cursor)
        try:
            yield cursor
        except StoreError:
            raise
        except (duckdb.Error, OSError) as error:
            raise explain(error, self.path) from error
        finally:
            for cursors in active:
                cursors.discard(cursor)
            cursor.close()

    @contextlib.contextmanager
    def room_to_sort(self) -> Iterator[None]:
        """Let DuckDB take more memory for as long as a query sorts many rows."""
        with self._memory_lock:
            self._sorts += 1
            self._set_memory()
        try:
            yield
        finally:
            with self._memory_lock:
                self._sorts -= 1
                self._set_memory()

    def _set_memory(self) -> None:
        """Tell DuckDB what it may take now. Less than other queries hold has to wait for the next time."""
        wanted = MEMORY + SORTING * self._sorts
        if wanted == self._memory:
            return
        with contextlib.suppress(StoreMemoryError), self.cursor() as cursor:
            cursor.execute(f"SET memory_limit = '{wanted}MiB'")
            self._memory = wanted

    @contextlib.contextmanager
    def transaction(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """Give a cursor inside a transaction: committed at the end, rolled back by any exception. One at a time."""
        with self.write_lock, self.cursor() as cursor:
            cursor.execute("BEGIN")
            try:
                yield cursor
                cursor.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(duckdb.Error):  # a failed COMMIT has already rolled back
                    cursor.execute("ROLLBACK")
                raise

    @contextlib.contextmanager
    def sole_writer(self, key: str, timeout: float | None) -> Iterator[None]:
        """Hold the right to write one exploration; wait up to `timeout` [s] for another thread to finish with it."""
        me = threading.get_ident()
        with self._writers_changed:
            if self._writers.get(key) == me:
                raise StoreLockedError(f"This thread is already writing exploration {key}: finish that writer first.")
            if not self._writers_changed.wait_for(lambda: key not in self._writers, timeout):
                raise StoreLockedError(f"Exploration {key} is still being written by another thread: try again later.")
            self._writers[key] = me
        try:
            yield
        finally:
            with self._writers_changed:
                del self._writers[key]
                self._writers_changed.notify_all()

    def _connect(self) -> duckdb.DuckDBPyConnection:
        """Open the file with no way to reach any other file than the shards beside it."""
        try:
            connection = duckdb.connect(str(self.path), read_only=self.read_only)
            shards = str(self.folder).replace("'", "''")
            locked = connection.execute("SELECT current_setting('lock_configuration')").fetchall()[0][0]
            if not locked:  # else this process has the file open already, through modules loaded before
                connection.execute(f"SET memory_limit = '{MEMORY}MiB'")
                connection.execute("SET allowed_configs = ['memory_limit']")
                connection.execute(f"SET allowed_directories = ['{shards}/']")
                connection.execute("SET enable_external_access = false")
                connection.execute("SET lock_configuration = true")
        except duckdb.Error as error:
            raise explain(error, self.path) from error
        return connection

    def _check_identity(self) -> None:
        """Make sure that the database is a store of this layout and these columns."""
        expected = {"application": "shardscape", "layout": LAYOUT, "columns": columns_digest()}
        with self.cursor() as cursor:
            known = cursor.execute("SELECT count(*) FROM duckdb_tables() WHERE table_name = 'meta'").fetchall()[0][0]
            try:
                found = dict(cursor.execute("SELECT name, value FROM meta").fetchall()) if known else {}
            except (duckdb.BinderException, duckdb.CatalogException):
                found = {}
        if found.get("application") != expected["application"]:
            raise StoreVersionError(f"The file {self.path} is a DuckDB database but no result store: name another.")
        for name, meaning in (("layout", "layout"), ("columns", "set of columns")):
            if found.get(name) != expected[name]:
                raise StoreVersionError(
                    f"The store {self.path} has {meaning} {found.get(name)}, this version writes {expected[name]}: "
                    "name another file, or delete this one and explore again."
                )

    def _sweep(self) -> None:
        """Remove what a process that died left behind: shards without a record, added columns, spilled sorts, half-made
        files.

        Called only while this process holds the write lock. Touches nothing but names that stores give.
        """
        with self.cursor() as cursor:
            kept = {key for (key,) in cursor.execute("SELECT key FROM exploration WHERE shards IS NOT NULL").fetchall()}
        if self.folder.is_dir():
            for entry in self.folder.iterdir():
                if entry.is_dir() and entry.name not in kept and KEY_PATTERN.fullmatch(entry.name.split(".")[0]):
                    shutil.rmtree(entry, ignore_errors=True)
            with contextlib.suppress(OSError):  # stays while it holds anything
                self.folder.rmdir()
        for spill in Path(f"{self.path}.tmp").glob("duckdb_temp*"):
            spill.unlink(missing_ok=True)
        for half_made in self.path.parent.glob(f".{self.path.name}.*.new*"):
            half_made.unlink(missing_ok=True)


def _checked_path(path: Path, *, read_only: bool) -> Path:
    """Return the real path, after the checks whose outcome DuckDB would word less clearly or act on unasked."""
    try:
        path = path.resolve()
        if path.is_dir():
            raise StoreAccessError(f"The store {path} is a folder: name a file in it, such as results{SUFFIX}.")
        if not path.name.endswith(SUFFIX) or path.name == SUFFIX:
            raise StoreAccessError(f"The store {path} needs a file name ending in {SUFFIX}, such as results{SUFFIX}.")
        if not path.parent.is_dir():
            raise StoreAccessError(f"The folder {path.parent} for the store {path.name} is missing: create it first.")
        if path.exists():
            with path.open("rb") as file:
                magic = file.read(_MAGIC_OFFSET + len(_DUCKDB_MAGIC))[_MAGIC_OFFSET:]
            # Asked to open a SQLite file, DuckDB would try to fetch an extension from the network.
            if magic != _DUCKDB_MAGIC:
                raise StoreCorruptError(f"The file {path} is not a DuckDB database: name another, or delete this one.")
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


def _create(path: Path) -> None:
    """Make an empty store under a temporary name and give it its own name only when it is whole and on disk."""
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.new")
    try:
        with contextlib.closing(duckdb.connect(str(temporary))) as connection:
            connection.execute(TABLES)
            connection.execute(
                "INSERT INTO meta VALUES ('application', 'shardscape'), ('layout', $layout), ('columns', $columns)",
                {"layout": LAYOUT, "columns": columns_digest()},
            )
            connection.execute("CHECKPOINT")
        flush_to_disk(temporary)
        with contextlib.suppress(FileExistsError):  # another process was faster: its file is as good
            try:
                os.link(temporary, path)
            except OSError as error:
                if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK):
                    raise
                os.rename(temporary, path)  # file systems without hard links
        flush_to_disk(path.parent)
    except (duckdb.Error, OSError) as error:
        if not path.exists():  # otherwise another process was faster, and has swept what was half made here
            raise explain(error, path) from error
    finally:
        for leftover in (temporary, Path(f"{temporary}.wal")):
            leftover.unlink(missing_ok=True)


def flush_to_disk(path: Path) -> None:
    """Force a file, or the entries of a folder, out of the operating system's cache."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
