"""The DuckDB file of a result store: created whole or not at all, opened once per process, locked down, swept.

DuckDB lets one process write a file, and within that process every connection must agree on its settings. So a process
holds one `Database` per file, shared by all stores opened on it; each query gets a cursor of its own. Nothing else
opens the file meanwhile: closing what was opened would give DuckDB's lock away (see `engine.store.lock`).
"""

import contextlib
import ctypes
import os
import tempfile
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import duckdb

from engine.executions.work_sizes import work_sizes
from engine.store.added_columns import AddedFiles
from engine.store.compat import SPILLED
from engine.store.contents import IDENTITY, Contents
from engine.store.creation import (
    COLUMNS_OF_TABLE,
    IS_TABLE,
    LAYOUT,
    WITHOUT_CHECKSUMS,
    check_log,
    checked_path,
    columns_digest,
    columns_of_tables,
    contents_of,
    create_store,
    remove_half_made,
    rows_of,
)
from engine.store.errors import (
    StoreCorruptError,
    StoreError,
    StoreLockedError,
    StoreMemoryError,
    StoreVersionError,
    explain,
)
from engine.store.files import ROOT, TABLE, StoreFiles
from engine.store.lock import StoreLock
from engine.store.names import KEY_PATTERN
from engine.store.open_stores import open_databases, return_later
from engine.store.remains import check_nothing_remains, foreign_database

_NO_EXTENSIONS: Final[dict[str, str | bool | int | float | list[str]]] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
}
"""Settings that prevent DuckDB from downloading an extension when asked to open a SQLite file. An open connection of
this process without these settings keeps ours from being made, too."""


def rows_table(key: str) -> str:
    """Returns the quoted name of the table in which earlier versions kept the rows of a small exploration.

    Args:
        key: of the exploration.
    """
    return f'"rows_{key}"'


def checked_key(key: str) -> str:
    """Returns a key that may name an exploration. Raises StoreError for anything else.

    Args:
        key: what was given.
    """
    if not isinstance(key, str) or not KEY_PATTERN.fullmatch(key):
        raise StoreError(
            f"The exploration key {str(key)[:80]!r} is not usable: 1 to 128 of a-z, 0-9, - and _ are accepted."
        )
    return key


class Database:
    """One open store file in this process, shared by every store on the same path."""

    def __init__(self, path: Path, databases: dict[Path, "Database"], *, read_only: bool, rebuild: bool) -> None:
        """Open the file for `acquire`, which keeps it among `databases`."""
        self.path = path
        self._databases = databases
        self.read_only = read_only
        self.folder = rows_of(path)
        self.files = StoreFiles(self.folder, self.transaction)
        """Files next to the database file."""
        self.added = AddedFiles(self.files, read_only=read_only)
        """Columns that are evaluated after an exploration."""
        self.verified: dict[Path, tuple[tuple[int, ...], str | None]] = {}
        """Shards that were read to the end, as they were then, and what was wrong with them."""
        self.write_lock = threading.Lock()
        self._process_id = os.getpid()
        self._users = 1
        self._cursors_lock = threading.Lock()
        self._writers_changed = threading.Condition()
        self._writers: dict[str, int] = {}
        self._memory_lock = threading.Lock()
        self._sorts, self._memory = 0, work_sizes().database_mib
        self._lock = StoreLock(path, read_only=read_only)
        try:
            if not read_only:
                remove_half_made(path, self._lock)
                if not path.exists():
                    if not rebuild:
                        check_nothing_remains(path, contents_of(path), self.folder)
                    create_store(path, self._lock, Contents(contents_of(path)).identity or uuid.uuid4().hex)
            check_log(path)
            self._connection = self._connect()
            try:
                self.contents = Contents(contents_of(path))
                """Second list of the stored explorations."""
                self.identity = self._checked_identity(rebuild)
                self._lock_down()
                if not read_only:
                    self.contents.agree_with(self.stored())
                    self.files.sweep()
                    self._sweep_spilled()
            except BaseException:
                self._connection.close()
                raise
        except BaseException:
            self._lock.release()
            raise

    @classmethod
    def acquire(cls, path: Path, *, read_only: bool, rebuild: bool = False) -> "Database":
        """Return the database at `path`, opening it or sharing it with the other stores of this process.

        A store that only reads may share a database opened for writing. Raises a StoreError that explains why the path
        is refused. rebuild: see `Store`.
        """
        path = checked_path(path, read_only=read_only, rebuild=rebuild)
        with open_databases() as databases:
            database = databases.get(path)
            if database is None:
                _check_other_names(path, databases)
                database = databases[path] = cls(path, databases, read_only=read_only, rebuild=rebuild)
            elif database.read_only and not read_only:
                raise StoreLockedError(f"The store {path} is open for reading in this process: close it there first.")
            else:
                database._users += 1
            return database

    def release(self) -> None:
        """Gives back one use; the last one closes the file. May be called from anywhere, also by the collector."""
        if self._process_id == os.getpid():  # what a forked process inherited is not its own
            return_later(self)

    def give_back(self) -> None:
        """Counts one user less; called by `engine.store.open_stores` only."""
        self._users -= 1
        if self._users == 0:
            self._databases.pop(self.path, None)
            self.added.close()
            with contextlib.suppress(duckdb.Error):  # a failing last checkpoint leaves a log that opening replays
                self._connection.close()
            self._lock.release()

    def never_close(self) -> None:
        """Keeps, in a forked process, the connection to the end, for closing it would write the log into the file,
        which is for the process that has the lock. Interpreters close all that nothing refers to when they end."""
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._connection))

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """Keep the file open even if the stores on it are closed."""
        with open_databases():
            self._users += 1
        try:
            yield
        finally:
            self.release()

    def columns_of(self, key: str) -> set[str]:
        """Returns the columns of the table that holds an exploration's rows, none where there is no such table."""
        with self.cursor() as cursor, contextlib.suppress(duckdb.CatalogException):
            return {name for name, _ in cursor.execute(COLUMNS_OF_TABLE, {"table": f"rows_{key}"}).fetchall()}
        return set()

    @contextlib.contextmanager
    def cursor(self, *active: set[duckdb.DuckDBPyConnection]) -> Iterator[duckdb.DuckDBPyConnection]:
        """Yield a cursor for one query and turn its errors into StoreErrors.

        While the query runs the cursor is a member of the sets `active`, so that others can interrupt it.
        """
        if self._process_id != os.getpid():
            raise StoreError(f"The store {self.path} was open when this process was forked: open it again here.")
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
        """Lets DuckDB take more memory for as long as a query sorts many rows."""
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
        """Set DuckDB's memory limit. A limit below the memory of other queries waits for the next time."""
        wanted = work_sizes().database_mib + work_sizes().sorting_mib * self._sorts
        if wanted == self._memory:
            return
        with contextlib.suppress(StoreMemoryError), self.cursor() as cursor:
            cursor.execute(f"SET memory_limit = '{wanted}MiB'")
            self._memory = wanted

    @contextlib.contextmanager
    def transaction(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """Gives a cursor inside a transaction: committed at the end, rolled back by any exception. One at a time."""
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
        """Holds the right to write one exploration; waits up to `timeout` [s] for another thread to finish with it."""
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
        try:
            return duckdb.connect(str(self.path), read_only=self.read_only, config=_NO_EXTENSIONS)
        except duckdb.Error as error:
            raise explain(error, self.path) from error

    def _checked_identity(self, rebuild: bool) -> str:
        """Check that the database is a store of this layout and these columns, with the explorations of its list of
        contents; return its identity."""
        expected = {"application": "shardscape", "layout": LAYOUT, "columns": columns_digest()}
        with self.cursor() as cursor:
            try:
                cursor.execute(IS_TABLE, {"table": "meta"})
                found = dict(cursor.execute("SELECT name, value FROM meta").fetchall())
            except (duckdb.BinderException, duckdb.CatalogException):
                found = {}
        if found.get("application") != expected["application"]:
            raise StoreVersionError(f"The file {self.path} is a DuckDB database but no result store: name another.")
        for name, meaning in (("layout", "layout"), ("columns", "set of columns")):
            old = name == "layout" and found.get(name) == WITHOUT_CHECKSUMS
            if found.get(name) != expected[name] and not old:
                raise StoreVersionError(
                    f"The store {self.path} has {meaning} {found.get(name)}, this version writes {expected[name]}: "
                    "name another file, or delete this one and explore again."
                )
        self._check_tables(without={"made"} if found["layout"] == WITHOUT_CHECKSUMS else set())
        old, known = found["layout"] == WITHOUT_CHECKSUMS, str(found.get("identity"))
        identity = known if IDENTITY.fullmatch(known) and not old else self._identity_of_list(rebuild)
        if self.contents.identity not in ("", identity) and not self._has_listed(rebuild):
            raise foreign_database(self.path, self.contents)
        if self.read_only:
            return "" if old else identity
        if old:
            self._bring_up_to_date(identity)
        elif identity != known:
            self._identify(identity)
        if self.contents.identity != identity:
            try:
                self.contents.take_over(identity)
            except OSError as error:
                raise explain(error, self.contents.path) from error
        return identity

    def _identity_of_list(self, rebuild: bool) -> str:
        """Return the identity by which its list of contents calls a database that has none, or a new one."""
        return self.contents.identity if self._has_listed(rebuild) and self.contents.identity else uuid.uuid4().hex

    def _has_listed(self, rebuild: bool) -> bool:
        """Return True if the list of contents may belong to this database, or is to be taken over."""
        return rebuild or not self.contents.names_anything or self.contents.shares(self.stored())

    def _check_tables(self, without: set[str]) -> None:
        """Check that the tables are as `create_store` makes them, so that queries can rely on them."""
        expected = {(table, *rest) for table, *rest in columns_of_tables() if table not in without}
        found: set[tuple[str, ...]] = set()
        with self.cursor() as cursor:
            for table in sorted({table for table, *_ in expected}):
                with contextlib.suppress(duckdb.CatalogException):
                    cursor.execute(IS_TABLE, {"table": table})
                    columns = cursor.execute(COLUMNS_OF_TABLE, {"table": table}).fetchall()
                    found |= {(table, name, kind) for name, kind in columns}
        for table, column, kind in sorted(expected - found):
            raise StoreCorruptError(
                f"The store {self.path} is damaged (its table {table} has no column {column} of type {kind}): "
                "restore it from a copy, or delete it and explore again."
            )

    def _identify(self, identity: str) -> None:
        """Give a store whose identity is damaged another one."""
        with self.transaction() as cursor:
            cursor.execute("DELETE FROM meta WHERE name = 'identity'")
            cursor.execute("INSERT INTO meta VALUES ('identity', $identity)", {"identity": identity})

    def stored(self) -> dict[str, tuple[int | None, str | None]]:
        """Return when each exploration was stored [microseconds since 1970], and its scenario as JSON, by key."""
        text = "SELECT key, epoch_us(created_at), scenario FROM exploration WHERE key IS NOT NULL"
        with self.cursor() as cursor:
            return {key: (created_at, scenario) for key, created_at, scenario in cursor.execute(text).fetchall()}

    def _bring_up_to_date(self, identity: str) -> None:
        """Give a store of the layout without checksums the tables of this one, with the folders that it made."""
        with self.transaction() as cursor:
            cursor.execute(TABLE)
            found = cursor.execute("SELECT key || '/' FROM exploration WHERE shards IS NOT NULL").fetchall()
            if found:
                self.files.put_down(cursor, [ROOT, *(name for (name,) in found)])
            cursor.execute("INSERT INTO meta VALUES ('identity', $identity)", {"identity": identity})
            cursor.execute("UPDATE meta SET value = $layout WHERE name = 'layout'", {"layout": LAYOUT})

    def _lock_down(self) -> None:
        """Restrict the connection to its database and shards, and limit its memory."""
        shards, spilled = (str(path).replace("'", "''") for path in (self.folder, self._spilled()))
        with self.cursor() as cursor:
            cursor.execute(f"SET memory_limit = '{work_sizes().database_mib}MiB'")
            cursor.execute(f"SET temp_directory = '{spilled}'")
            cursor.execute("SET allowed_configs = ['memory_limit']")
            cursor.execute(f"SET allowed_directories = ['{shards}/']")
            cursor.execute("SET enable_external_access = false")
            cursor.execute("SET lock_configuration = true")

    def _spilled(self) -> Path:
        """Return the folder into which sorts spill: next to the file under a name that no other program uses."""
        if self.read_only:
            return Path(tempfile.gettempdir()) / f"shardscape-{uuid.uuid4().hex}.tmp"
        return self.path.with_name(f"{self.path.name}.{self.identity}.tmp")

    def _sweep_spilled(self) -> None:
        """Remove what a process that died in a sort left behind."""
        folder = self._spilled()
        if folder.is_dir() and not folder.is_symlink():
            with contextlib.suppress(OSError):
                for file in folder.glob(SPILLED):
                    if file.is_file() and not file.is_symlink():
                        file.unlink()
                folder.rmdir()


def _check_other_names(path: Path, databases: dict[Path, Database]) -> None:
    """Make sure that no open database is this file under another name: it would have two logs."""
    for other in databases:
        same = False
        with contextlib.suppress(OSError):
            same = os.path.samefile(path, other)
        if same:
            raise StoreLockedError(f"The store {path} is open in this process as {other}: use that name.")
