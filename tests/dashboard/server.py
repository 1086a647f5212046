"""A server of one's own for tests of pages that look at the store and at kept files."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType
from unittest.mock import patch

import dashboard
from dashboard.jobs import server
from dashboard.link.user_files import UserFiles, user_files
from dashboard.settings import Settings

__all__ = ["Place", "own_server"]


class Place:
    """What the pages see: what a server's sessions share, in this process and with a store, and kept files."""

    def __init__(self, folder: Path | None) -> None:
        self.server = server.Server(Settings(store=None if folder is None else folder / "results.duckdb"))
        self.explorations = self.server.explorations
        self.files = UserFiles(None if folder is None else folder / "results.user")


@cache
def _modules() -> list[ModuleType]:
    """Every module of the dashboard but the one that runs when it is imported."""
    return [
        importlib.import_module(each.name)
        for each in pkgutil.walk_packages(dashboard.__path__, "dashboard.")
        if each.name.rpartition(".")[2] != "__main__"
    ]


@contextmanager
def own_server(folder: Path | None) -> Iterator[Place]:
    """Results and kept files in a folder, in place of the server's; None for a server that keeps nothing."""
    place = Place(folder)
    patches = [
        patch.object(module, "user_files", lambda: place.files)
        for module in _modules()
        if getattr(module, "user_files", None) is user_files
    ]
    patches.append(patch.object(server, "server", lambda: place.server))
    for each in patches:
        each.start()
    try:
        yield place
    finally:
        for each in patches:
            each.stop()
        place.server.close()
