"""Temporary folders. A folder that a killed process left behind is removed when the next one is made."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

__all__ = ["PREFIX", "scratch_folder"]

PREFIX: Final = "shardscape-scratch-"
SETTLED: Final = 60.0
"""Age from which a folder without a lock is abandoned; a younger one may be about to be locked [s]."""


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """Gives a new folder, which is gone afterwards. It is locked meanwhile, and a lock ends with its process, however
    that ends.
    """
    _remove_abandoned(Path(tempfile.gettempdir()))
    with tempfile.TemporaryDirectory(prefix=PREFIX) as name:
        held = os.open(name, os.O_RDONLY)
        try:
            fcntl.flock(held, fcntl.LOCK_EX)
            yield Path(name)
        finally:
            os.close(held)


def _remove_abandoned(place: Path) -> None:
    """Removes folders of ours that no process holds."""
    with contextlib.suppress(OSError), os.scandir(place) as entries:
        for entry in entries:
            if entry.name.startswith(PREFIX):
                with contextlib.suppress(OSError):
                    _remove_if_left(entry)


def _remove_if_left(entry: os.DirEntry[str]) -> None:
    found = entry.stat(follow_symlinks=False)
    if found.st_uid != os.getuid() or time.time() - found.st_mtime < SETTLED:
        return
    handle = os.open(entry.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)  # BlockingIOError: somebody is at work in it
        shutil.rmtree(entry.path, ignore_errors=True)
    finally:
        os.close(handle)
