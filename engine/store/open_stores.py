"""Stores that this process has open: each once for all users, closed when the last user returns it.

Kept in `sys.modules`, so that reloading our modules, as a server does after its files change, does not open a file
twice.
"""

import contextlib
import os
import sys
import threading
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

_NAME = "shardscape_open_stores"


class _Database(Protocol):
    def give_back(self) -> None:
        """One user less; the last closes it."""

    def never_close(self) -> None:
        """In a forked process: leave it to the process that opened it."""


class _OpenStores(ModuleType):
    def __init__(self) -> None:
        super().__init__(_NAME)
        self.databases: dict[Path, Any] = {}
        self.lock = threading.Lock()
        self.returned: deque[_Database] = deque()


_open: Any = sys.modules.setdefault(_NAME, _OpenStores())


@contextlib.contextmanager
def open_databases() -> Iterator[dict[Path, Any]]:
    """Gives the databases that are open, by their resolved path, for one thread to look at and to change."""
    try:
        with _open.lock:
            yield _open.databases
    finally:
        _take_back()


def return_later(database: _Database) -> None:
    """Return a database now, or as soon as no other thread works on the list of open ones.

    It may be called from anywhere, also by the collector in a thread that is about to open a store.

    Args:
        database: the one to give back.
    """
    _open.returned.append(database)
    _take_back()


def _take_back() -> None:
    while _open.returned and _open.lock.acquire(blocking=False):
        try:
            while _open.returned:
                _open.returned.popleft().give_back()
        finally:
            _open.lock.release()


def _after_fork() -> None:
    """In a forked process: nothing is open, and nothing is closed that belongs to the process before."""
    for database in _open.databases.values():
        database.never_close()
    _open.databases, _open.lock, _open.returned = {}, threading.Lock(), deque()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
