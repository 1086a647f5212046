"""A server of one's own for tests of pages that look at the store and at kept files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from dashboard.jobs import server
from dashboard.jobs.explorations import Runner
from dashboard.link.user_files import UserFiles
from dashboard.settings import Settings

__all__ = ["Place", "own_server"]


class Place:
    """What the pages see: a runner with a store, and kept files."""

    def __init__(self, folder: Path | None) -> None:
        self.runner = Runner(Settings(store=None if folder is None else folder / "results.duckdb"))
        self.files = UserFiles(None if folder is None else folder / "results.user")


@contextmanager
def own_server(folder: Path | None) -> Iterator[Place]:
    """A runner and kept files in a folder, in place of the server's; None for a server that keeps nothing."""
    place = Place(folder)
    names = ("frame", "library", "library_edit", "library_list", "library_upload", "library_view", "scenarios_view",
             "sentence", "share", "state", "waiting")  # fmt: skip
    import importlib

    patches = []
    for name in names:
        module = importlib.import_module(f"dashboard.{name}")
        for what, value in (("runner", place.runner), ("user_files", place.files)):
            if getattr(module, what, None) is getattr(server, what):
                patches.append(patch.object(module, what, lambda value=value: value))
    for each in patches:
        each.start()
    try:
        yield place
    finally:
        for each in patches:
            each.stop()
        place.runner.close()
