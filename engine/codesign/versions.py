"""Version of Shardscape in a process, so that results of different versions are never mixed."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Iterator
from functools import lru_cache
from importlib import metadata, resources
from importlib.resources.abc import Traversable
from typing import Final

import numpy as np

__all__ = ["version"]

PACKAGES: Final = ("engine", "hardware", "models")


@lru_cache(maxsize=1)
def version() -> str:
    """Returns the version of Shardscape, a hash of all that it computes with, and the versions of Python and NumPy.

    Figures are the same to the last bit where these are.
    """
    found = hashlib.sha256()
    for package in PACKAGES:
        for path, file in sorted(_list_files(resources.files(package), package)):
            found.update(f"{path}\n".encode())
            found.update(file.read_bytes())
    try:
        ours = metadata.version("shardscape")
    except metadata.PackageNotFoundError:
        ours = "unknown"
    python = ".".join(platform.python_version_tuple()[:2])
    return f"{ours} of sources {found.hexdigest()[:12]}, Python {python}, NumPy {np.__version__}"


def _list_files(folder: Traversable, path: str) -> Iterator[tuple[str, Traversable]]:
    for each in folder.iterdir():
        name = f"{path}/{each.name}"
        if each.is_dir():
            if each.name != "__pycache__":
                yield from _list_files(each, name)
        elif each.name.endswith((".py", ".json")):
            yield name, each
