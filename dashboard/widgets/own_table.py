"""Tables of one's own: uploaded, checked, and part of the link where they are short enough: a reload keeps them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

import streamlit as st

from dashboard.link import state
from dashboard.link.document_validation import Refused
from dashboard.link.own_cards import IN_LINKS
from dashboard.link.text_encoding import folded, unfolded
from dashboard.widgets.upload import file_field, read_file
from engine.planners.contract import PlanError

__all__ = ["KEPT", "PACKED", "own_table", "read_table"]

R = TypeVar("R")

PACKED: Final = re.compile(rf"[A-Za-z0-9_-]{{1,{IN_LINKS}}}")
KEPT: Final = "It travels in the link where it is short enough, and otherwise stays while this page is open."


def own_table(
    label: str,
    parameter: str,
    noun: str,
    megabytes: int,
    check: Callable[[str], object],
    types: Sequence[str] = ("csv",),
) -> str | None:
    """Draws the field of a file of text and returns the text that was uploaded last, here or by whoever made the link;
    None where there is none.

    Args:
        label: of the field.
        parameter: of the link.
        noun: what the table is, in sentences.
        megabytes: largest file.
        check: raises a PlanError for a text that is none.
        types: endings of the file's name.

    Raises `engine.planners.contract.PlanError`.
    """
    file = file_field(label, types, f"{parameter}_file", megabytes)
    seen, kept = f"_{parameter}_seen", f"_{parameter}_text"
    if file is not None and st.session_state.get(seen) != file.file_id:
        text = read_table(_checked, check, file.getvalue())
        st.session_state[seen], st.session_state[kept] = file.file_id, text
        short = folded(text)
        state.set_url_value(parameter, short if len(short) <= IN_LINKS else None)
        st.rerun()
    packed = state.url_value(parameter, "", PACKED)
    if not packed:
        found: str | None = st.session_state.get(kept)
        return found
    try:
        text = unfolded(packed, noun).decode("utf-8") + "\n"
    except Refused as problem:
        raise PlanError(str(problem)) from None
    except UnicodeDecodeError:
        raise PlanError(f"The link's {noun} is no text in UTF-8.") from None
    return read_table(_checked, check, text.encode())


def read_table(function: Callable[..., R], *arguments: object) -> R:
    """Returns what a function makes of a table of somebody's own; see `dashboard.widgets.upload.read_file`.

    Raises `engine.planners.contract.PlanError` with one sentence.
    """
    try:
        return read_file(function, *arguments)
    except Refused as problem:
        raise PlanError(str(problem)) from None


def _checked(check: Callable[[str], object], content: bytes) -> str:
    # A line end makes it text: never the path of a file of the server.
    text = content.decode("utf-8-sig")
    text = text if text.endswith("\n") else text + "\n"
    check(text)
    return text
