"""Users' tables: uploaded, checked, and part of the link if short enough, so that a reload keeps them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import streamlit as st

from dashboard.files.own_cards import IN_LINKS
from dashboard.link import state
from dashboard.link.document_validation import Refused
from dashboard.link.text_encoding import folded, unfolded
from dashboard.widgets.upload import file_field, read_file
from engine.planners.contract import PlanError

__all__ = ["KEPT", "PACKED", "OwnTable", "draw_own_table", "own_table", "parse_own_table", "read_table"]

R = TypeVar("R")

PACKED: Final = re.compile(rf"[A-Za-z0-9_-]{{1,{IN_LINKS}}}")
KEPT: Final = "It travels in the link where it is short enough, and otherwise stays while this page is open."


@dataclass(frozen=True, slots=True)
class OwnTable:
    """A reader's own table in the link or, if it is too long for one, in the session."""

    parameter: str
    """Parameter of the link."""
    noun: str
    """Kind of table, in sentences."""
    packed: str
    """Text as the link has it; empty without one."""
    kept: str | None
    """Text that is too long for the link."""


def parse_own_table(parameter: str, noun: str) -> OwnTable:
    """Parse a reader's own table.

    Args:
        parameter: of the link.
        noun: the kind of table, in sentences.
    """
    return OwnTable(parameter, noun, state.url_value(parameter, "", PACKED), st.session_state.get(f"_{parameter}_text"))


def draw_own_table(
    own: OwnTable, label: str, megabytes: int, check: Callable[[str], object], types: Sequence[str] = ("csv",)
) -> str | None:
    """Draws the field of a file of text and returns the text that was uploaded last, here or by the author of the link;
    None without one.

    Args:
        own: the table.
        label: of the field.
        megabytes: largest file.
        check: raises a PlanError for an invalid text.
        types: endings of the file's name.

    Raises:
        engine.planners.contract.PlanError: the file cannot be read, or `check` refuses its text.
    """
    file = file_field(label, types, f"{own.parameter}_file", megabytes)
    seen, kept = f"_{own.parameter}_seen", f"_{own.parameter}_text"
    if file is not None and st.session_state.get(seen) != file.file_id:
        text = read_table(_checked_text, check, file.getvalue())
        st.session_state[seen], st.session_state[kept] = file.file_id, text
        short = folded(text)
        state.set_url_value(own.parameter, short if len(short) <= IN_LINKS else None)
        st.rerun()
    if not own.packed:
        return own.kept
    try:
        text = unfolded(own.packed, own.noun).decode("utf-8") + "\n"
    except Refused as problem:
        raise PlanError(str(problem)) from None
    except UnicodeDecodeError:
        raise PlanError(f"The link's {own.noun} is no text in UTF-8.") from None
    return read_table(_checked_text, check, text.encode())


def own_table(
    label: str,
    parameter: str,
    noun: str,
    megabytes: int,
    check: Callable[[str], object],
    types: Sequence[str] = ("csv",),
) -> str | None:
    """Parses a reader's own table and draws its field; for pages that are not yet drawn from a view alone.

    Args: see `parse_own_table` and `draw_own_table`.
    """
    return draw_own_table(parse_own_table(parameter, noun), label, megabytes, check, types)


def read_table(function: Callable[..., R], *arguments: object) -> R:
    """Returns the result of a function for a user's own table; see `dashboard.widgets.upload.read_file`.

    Raises:
        engine.planners.contract.PlanError: with one sentence.
    """
    try:
        return read_file(function, *arguments)
    except Refused as problem:
        raise PlanError(str(problem)) from None


def _checked_text(check: Callable[[str], object], content: bytes) -> str:
    # A line end makes it text: never the path of a file of the server.
    text = content.decode("utf-8-sig")
    text = text if text.endswith("\n") else text + "\n"
    check(text)
    return text
