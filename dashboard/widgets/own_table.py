"""Users' tables: uploaded, checked, and part of the link if short enough, so that a reload keeps them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, TypeVar

import streamlit as st

from dashboard.files.own_cards import IN_LINKS
from dashboard.link import state
from dashboard.link.document_validation import Refused
from dashboard.link.text_encoding import folded, unfolded
from dashboard.widgets.upload import file_field, read_file
from engine.planners.contract import PlanError

__all__ = ["KEPT", "NO_TABLE", "PACKED", "OwnTable", "draw_own_table", "parse_own_table", "read_table", "use_own_text"]

R = TypeVar("R")

PACKED: Final = re.compile(rf"[A-Za-z0-9_-]{{1,{IN_LINKS}}}")
KEPT: Final = "A short file is part of the link; a longer one stays while this page is open."


@dataclass(frozen=True, slots=True)
class OwnTable:
    """A user's own table as the link or the session has it."""

    text: str | None
    """Checked text; None without a table, or with a problem."""
    problem: str = ""
    """Sentence about a table that cannot be read."""

    def require(self) -> str | None:
        """Return the text. Raises `engine.planners.contract.PlanError` if the table cannot be read."""
        if self.problem:
            raise PlanError(self.problem)
        return self.text


NO_TABLE: Final = OwnTable(None)


def parse_own_table(parameter: str, noun: str, check: Callable[[str], object]) -> OwnTable:
    """Return the text that was uploaded last, here or by the author of the link.

    Args:
        parameter: of the link.
        noun: the kind of table, in sentences.
        check: raises a `PlanError` for an invalid text.
    """
    packed = state.url_value(parameter, "", PACKED)
    if not packed:
        return OwnTable(st.session_state.get(f"_{parameter}_text"))
    try:
        text = unfolded(packed, noun).decode("utf-8") + "\n"
        return OwnTable(read_table(_checked_text, check, text.encode()))
    except UnicodeDecodeError:
        return OwnTable(None, f"The link's {noun} is no text in UTF-8.")
    except (Refused, PlanError) as problem:
        return OwnTable(None, str(problem))


def draw_own_table(
    label: str,
    parameter: str,
    megabytes: int,
    check: Callable[[str], object],
    types: Sequence[str] = ("csv",),
    chosen: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Draw the field of a file of text; a new file runs the page again, whose door then finds its text.

    Args:
        label: of the field.
        parameter: of the link.
        megabytes: largest file.
        check: raises a `PlanError` for an invalid text.
        types: endings of the file's name.
        chosen: further parameters of the link that choose the file.

    Raises `engine.planners.contract.PlanError` if the file cannot be read, or `check` refuses its text.
    """
    file = file_field(label, types, f"{parameter}_file", megabytes)
    seen = f"_{parameter}_seen"
    if file is None or st.session_state.get(seen) == file.file_id:
        return
    text = read_table(_checked_text, check, file.getvalue())
    st.session_state[seen] = file.file_id
    use_own_text(parameter, text)
    state.set_url_values(dict(chosen))
    st.rerun()


def use_own_text(parameter: str, text: str) -> None:
    """Put a text into the session, and into the link if it is short.

    Args:
        parameter: of the link.
        text: checked.
    """
    st.session_state[f"_{parameter}_text"] = text
    short = folded(text)
    state.set_url_value(parameter, short if len(short) <= IN_LINKS else None)


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
