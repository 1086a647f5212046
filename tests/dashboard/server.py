"""A server of one's own for tests of pages that look at the store and at kept files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dashboard.jobs import server
from dashboard.link.user_files import user_files

__all__ = ["Place", "own_server"]


class Place:
    """Objects that the pages share: the server with its store, and the kept files."""

    def __init__(self) -> None:
        self.server = server.server()
        self.explorations = self.server.explorations
        self.files = user_files()


@contextmanager
def own_server(folder: Path | None, **settings: object) -> Iterator[Place]:
    """Serve pages with a store and kept files in a folder, as after a start with these settings.

    folder: None for a server that keeps nothing. settings: by the names of environment variables after SHARDSCAPE_.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHARDSCAPE_STORE", "off" if folder is None else str(folder / "results.duckdb"))
        for name, value in settings.items():
            patch.setenv(f"SHARDSCAPE_{name}", str(value))
        server.server.clear()
        user_files.clear()
        try:
            yield Place()
        finally:
            server.server.clear()
            user_files.clear()
