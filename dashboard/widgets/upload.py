"""Users' files: the one field for uploads, and the one way to read their content."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import streamlit as st

from dashboard.compat.types import UploadedFile
from dashboard.jobs.server import server
from dashboard.jobs.turns import turns

__all__ = ["file_field", "files_field", "read_file"]

R = TypeVar("R")


def file_field(
    label: str,
    types: str | Sequence[str],
    key: str,
    megabytes: int,
    *,
    help: str | None = None,
    on_change: Callable[[], None] | None = None,
) -> UploadedFile | None:
    """Draws the field for one file; returns it, or None without one. Only `read_file` reads its content.

    Args:
        label: of the field.
        types: endings of the file's name.
        key: of the widget.
        megabytes: largest file.
        help: explanation next to the field.
        on_change: called when the file changes.
    """
    return st.file_uploader(label, type=types, key=key, max_upload_size=megabytes, help=help, on_change=on_change)


def files_field(
    label: str, types: Sequence[str], key: str, megabytes: int, *, help: str | None = None
) -> list[UploadedFile]:
    """Draws the field for several files; returns them. Arguments as for `file_field`."""
    return st.file_uploader(
        label, type=types, key=key, max_upload_size=megabytes, help=help, accept_multiple_files=True
    )


def read_file(function: Callable[..., R], *arguments: object) -> R:
    """Returns the result of a function of files' contents, computed in a process whose time and memory are bounded.

    Args:
        function: of a module; its arguments and its result are pickled.
        arguments: of the function, among them contents of files.

    Raises:
        dashboard.link.document_validation.Refused: with one sentence.
    """
    reader = server().uploads
    with turns.aside():
        return reader.read(function, *arguments)
