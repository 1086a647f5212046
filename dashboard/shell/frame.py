"""What surrounds every page: the list of pages, logo, style, the scenario in one sentence, warnings."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from dashboard.charts.elements.markup import page_head, stylesheet
from dashboard.jobs.server import runner
from dashboard.link import state
from dashboard.link.page_paths import _FOLDER, exists
from dashboard.pages.registry import _BY_PATH, PAGES
from dashboard.shell.scenario import sentence
from dashboard.widgets import window
from dashboard.words.markdown import literal

__all__ = ["close_page", "open_page", "pages"]


def pages() -> Sequence[Any]:
    """The navigation's pages: those of `PAGES` whose script exists."""
    return [
        st.Page(
            _FOLDER / f"{entry.name}/script.py", title=entry.title, help=entry.help, url_path=entry.name,
            default=entry is PAGES[0],
        )
        for entry in PAGES
        if exists(entry.name)
    ]  # fmt: skip


class Above(NamedTuple):
    """What stands above a page and is completed when the page has run."""

    size: DeltaGenerator | None
    """Where the sentence ends."""
    remarks: DeltaGenerator
    """Where the page says what it could not take from the link."""
    told: tuple[str, ...]
    """What it has said so far."""
    warned: tuple[str, ...]
    """What it has said of the server."""


def open_page(static: Path, page: Any) -> Above:
    """Draws what stands above a page; returns what `close_page` needs."""
    st.logo(str(static / f"logo-{state.theme_mode()}.svg"), size="medium")
    st.html(stylesheet())
    entry = _BY_PATH.get(page.url_path)
    with st.container(key="unseen"):
        st.html(_behaviour(), unsafe_allow_javascript=True)
        st.html(page_head(entry.title if entry is not None else "Shardscape"))
        window.watch()
    place = sentence.show() if entry is None or entry.about_scenario else None
    state.selected_cell(), state.selected_id()  # so that what is wrong with them is known
    remarks = st.empty()
    told = _tell(remarks, ())
    warned = tuple(runner().warnings)
    for warning in warned:
        st.warning(literal(warning), icon=":material/cloud_off:")
    return Above(place, remarks, told, warned)


def close_page(above: Above) -> None:
    """Draws what is known only when a page has run."""
    if above.size is not None:
        sentence.tell_size(above.size)
    _tell(above.remarks, above.told)
    for warning in runner().warnings:
        if warning not in above.warned:  # it came with this run, such as of a result that could not be stored
            st.toast(literal(warning), icon=":material/cloud_off:")


def _tell(place: DeltaGenerator, told: tuple[str, ...]) -> tuple[str, ...]:
    """Says in one box what a link asked for and did not get; returns the sentences."""
    found = state.problems()
    if found and found != told:
        place.warning("\n\n".join(literal(problem) for problem in found), icon=":material/link_off:")
    return found


@cache
def _behaviour() -> str:
    """The script of the pages as an element."""
    return f"<script>{(Path(__file__).parent / 'behaviour.js').read_text(encoding='utf-8')}</script>"
