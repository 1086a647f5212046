"""Files and folders of a store next to its database, in `<stem>.rows`: recorded before they are created.

Nothing else is ever removed: not what merely has a name that a store might give, and nothing through a symbolic link.
So every name that may have to be removed stands in the table `made` until it has been: files that belong to no complete
exploration, which are left over when a process dies, and folders, which go when they are empty.
"""

import contextlib
import os
import re
import stat
import threading
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

import duckdb

from engine.store.errors import StoreAccessError, explain

ROOT: Final = "./"
"""Name of the folder itself in the list of created folders; names of folders end so."""

TABLE: Final = "CREATE TABLE made (name VARCHAR NOT NULL);"

_FOLDER: Final = re.compile(r"[0-9a-z][0-9a-z_.-]*/")
_FILE: Final = re.compile(r"[0-9a-z][0-9a-z_.-]*/[0-9a-z][0-9a-z_.-]*")
"""Names that a store gives its files; any other name on a foreign file's list leads elsewhere."""

_Transaction = Callable[[], AbstractContextManager[duckdb.DuckDBPyConnection]]


class StoreFiles:
    """Files that one store made in its folder, by relative name. Safe to use from several threads."""

    def __init__(self, folder: Path, transaction: _Transaction) -> None:
        self.folder: Final = folder
        self._transaction = transaction
        self._lock = threading.RLock()

    def make_folder(self, wanted: str) -> str:
        """Makes a folder in which nothing is yet; returns its name: the one wanted, or with a number where it is taken.

        Raises a StoreError.
        """
        try:
            with self._lock:
                if self.folder.is_symlink():
                    raise StoreAccessError(
                        f"The folder {self.folder} is a symbolic link: a store writes its rows only into a folder of "
                        "its own, so put the store where that folder is."
                    )
                if not self.folder.exists():
                    self._make(ROOT)
                name, number = wanted, 1
                while os.path.lexists(self.folder / name):
                    number += 1
                    name = f"{wanted}.{number}"
                self._make(f"{name}/")
        except OSError as error:
            raise explain(error, self.folder / wanted) from error
        return name

    def claim(self, names: list[str]) -> None:
        """Records files that are about to be made in a folder that `make_folder` has made."""
        with self._transaction() as cursor:
            self.put_down(cursor, names)

    def disclaim(self, names: list[str]) -> None:
        """Forgets files that were not made after all."""
        with self._transaction() as cursor:
            self.strike(cursor, names)

    @staticmethod
    def put_down(cursor: duckdb.DuckDBPyConnection, names: list[str]) -> None:
        """Records files, as part of a transaction."""
        cursor.execute("INSERT INTO made SELECT unnest($names::VARCHAR[])", {"names": names})

    @staticmethod
    def strike(cursor: duckdb.DuckDBPyConnection, names: list[str]) -> None:
        """Forgets files that are gone, or that belong to an exploration from now on, as part of a transaction."""
        cursor.execute("DELETE FROM made WHERE name = ANY($names::VARCHAR[])", {"names": names})

    def remove(self, names: Iterable[str]) -> None:
        """Removes files and folders that are recorded, folders only when they are empty, also those around the files.

        What cannot be removed now is swept when the store is next opened for writing.
        """
        wanted = set(names)
        with self._lock:
            recorded = self._recorded()
            files = [name for name in recorded if name in wanted and not name.endswith("/")]
            folders = {f"{name.split('/')[0]}/" for name in wanted}
            self._remove(files, [name for name in recorded if name in folders or name == ROOT])

    def sweep(self) -> None:
        """Remove everything that is recorded and belongs to no exploration; only while no other process writes."""
        with self._lock:
            recorded = self._recorded()
            self._remove(
                [name for name in recorded if not name.endswith("/")], [name for name in recorded if name.endswith("/")]
            )

    def strangers(self, known: Iterable[str]) -> list[Path]:
        """Return entries of the folder that are neither recorded nor among the known files."""
        ours = {*self._recorded(), *known}
        folders = {f"{name.split('/')[0]}/" for name in ours}
        found = []
        for entry in sorted(self.folder.iterdir()) if _is_folder(self.folder) else ():
            if _is_folder(entry) and f"{entry.name}/" in folders:
                found += [inner for inner in sorted(entry.iterdir()) if f"{entry.name}/{inner.name}" not in ours]
            else:
                found.append(entry)
        return found

    def _recorded(self) -> list[str]:
        with self._transaction() as cursor:
            text = "SELECT DISTINCT name FROM made WHERE name IS NOT NULL ORDER BY name"
            return [name for (name,) in cursor.execute(text).fetchall()]

    def _make(self, name: str) -> None:
        """Make a folder; one that cannot be made, or that another process made meanwhile, is not recorded."""
        self.claim([name])
        try:
            (self.folder / name).mkdir()
        except OSError:
            self.disclaim([name])
            raise

    def _remove(self, files: list[str], folders: list[str]) -> None:
        gone = [name for name in files if self._unlink(name)]
        # Those inside come before the folder around them.
        gone += [name for name in sorted(folders, key=lambda name: name == ROOT) if self._remove_folder(name)]
        if gone:
            self.disclaim(gone)

    def _unlink(self, name: str) -> bool:
        """Remove a file; return False if it is still there. Links, and anything but a file, are not ours."""
        path = self.folder / name
        if not (is_name(name) and _is_folder(self.folder) and _is_folder(path.parent)):
            return True
        try:
            if stat.S_ISREG(path.lstat().st_mode):
                path.unlink()
        except FileNotFoundError:
            pass
        except OSError:
            return False
        return True

    def _remove_folder(self, name: str) -> bool:
        """Remove an empty folder; return False if it still exists."""
        path = self.folder / name
        if not ((name == ROOT or _FOLDER.fullmatch(name)) and _is_folder(self.folder) and _is_folder(path)):
            return True
        with contextlib.suppress(OSError):
            path.rmdir()
            return True
        return False


def is_name(name: object) -> bool:
    """Return True if a value can be the name of a file that a store has made.

    Args:
        name: value from a record.
    """
    return isinstance(name, str) and _FILE.fullmatch(name) is not None


def _is_folder(path: Path) -> bool:
    """Return True if a path is a folder itself, not a link to one."""
    try:
        return stat.S_ISDIR(path.lstat().st_mode)
    except OSError:
        return False
