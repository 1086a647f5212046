"""What surrounds every page: the list of pages, logo, style, the scenario in one sentence, warnings."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from dashboard import sentence, state, window
from dashboard.addresses import START
from dashboard.charts.markup import page_head, stylesheet
from dashboard.server import runner
from dashboard.text import literal

__all__ = ["PAGES", "Entry", "close_page", "exists", "open_page", "pages", "path"]


class Entry(NamedTuple):
    """A page of the navigation; its script is `dashboard/pages/<name>.py`, its address `/<name>`."""

    name: str
    title: str
    help: str
    about_scenario: bool = True
    """Whether the scenario sentence stands above it."""


PAGES: Final = (
    Entry(START, "Explore", "Every execution of one model on one system, as a map of tensor by pipeline parallel."),
    Entry("execution", "Execution", "Everything about one execution: time, memory, schedule, layers, networks."),
    Entry("whatif", "What-if", "Change the hardware or the model and see which execution is best then."),
    Entry("memory", "Memory", "Where the memory goes, tier by tier, and what would fit if."),
    Entry("pareto", "Pareto", "The executions that no other beats in two or three figures at once."),
    Entry("serving", "Serving", "The best way to serve a model: latency, throughput, memory and cost.", False),
    Entry("compare", "Compare", "Scenarios side by side: what differs and what it changes."),
    Entry("results", "Results", "All executions as a table: filter, sort, export."),
    Entry("validation", "Validation", "Predicted against measured training runs: how accurate, and where not.", False),
    Entry("calibrate", "Calibrate", "Fit the calibrated model to measured runs of your own cluster.", False),
    Entry("library", "Library", "Models and systems with the source of every number; edit copies.", False),
    Entry("scenarios", "Scenarios", "What was explored before: reopen, share, delete.", False),
)
"""The pages there may be, in order; one appears in the navigation once its script exists. The first is the default."""

_FOLDER: Final = Path(__file__).parent / "pages"
_BY_PATH: Final[dict[str, Entry]] = {"" if entry is PAGES[0] else entry.name: entry for entry in PAGES}


def pages() -> Sequence[Any]:
    """The navigation's pages: those of `PAGES` whose script exists."""
    return [
        st.Page(
            _FOLDER / f"{entry.name}.py", title=entry.title, help=entry.help, url_path=entry.name,
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


@cache
def exists(name: str) -> bool:
    """Whether a page of `PAGES` is there, so that others may link to it."""
    return (_FOLDER / f"{name}.py").is_file()


def path(name: str) -> str:
    """The script of a page, as `st.page_link` and `st.switch_page` want it."""
    return str(_FOLDER / f"{name}.py")
