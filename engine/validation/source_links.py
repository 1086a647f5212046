"""Addresses of the public sources of measured runs, from the place that a row names."""

from __future__ import annotations

import re

__all__ = ["find_link"]

_ADDRESS = re.compile(r"https://[^\s()]+")
_ARXIV = re.compile(r"arXiv:(\d{4}\.\d{4,5})")
_FILE = re.compile(r"(?P<repository>[\w.-]+/[\w.-]+)@(?P<revision>v\d[\w.]*|[0-9a-f]{7,40}):(?P<path>[\w./-]*)")
"""A file of a repository on GitHub at a tag or a commit; not at a branch, whose files change."""
_LINE = re.compile(r"\blines? (\d+)\b")


def find_link(place: str) -> str | None:
    """Return the address of the source that a place names: a file at a commit, a paper, or an address; None for others.

    Args:
        place: `source_loc` of a run, such as "NVIDIA/NeMo@f78d98691f:docs/README.md" or "arXiv:2104.04473 Table 1".
    """
    if (address := _ADDRESS.match(place)) is not None:
        return address[0]
    if (paper := _ARXIV.match(place)) is not None:
        return f"https://arxiv.org/abs/{paper[1]}"
    if (file := _FILE.match(place)) is None:
        return None
    is_folder = not file["path"] or file["path"].endswith("/")
    kind = "tree" if is_folder else "blob"
    line = _LINE.search(place, file.end())
    # GitHub shows lines of Markdown in its plain form only.
    where = "" if line is None or is_folder else f"?plain=1#L{line[1]}"
    return f"https://github.com/{file['repository']}/{kind}/{file['revision']}/{file['path'].rstrip('/')}{where}"
