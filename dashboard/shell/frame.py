"""Frame of every page: navigation, logo, style, scenario sentence, warnings."""

from __future__ import annotations

import json
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import streamlit as st

from dashboard.charts.elements.markup import page_head, stylesheet
from dashboard.compat import front_end, plotly_figures
from dashboard.compat.front_end import marked_in_navigation, styles
from dashboard.compat.types import Place
from dashboard.guide import chapter
from dashboard.jobs.server import explorations
from dashboard.link import page_links, state
from dashboard.link.figures import parse_figures
from dashboard.link.own_run import parse_own_run
from dashboard.link.shared import parse_shared
from dashboard.pages import registry
from dashboard.pages.contract import Needs, Page
from dashboard.pages.registry import PAGES, sections
from dashboard.shell import search
from dashboard.shell.scenario import sentence
from dashboard.widgets import needed_exploration, window
from dashboard.widgets.clicks import forget_unanswered
from dashboard.widgets.own_run import draw_own_run
from dashboard.words.markdown import literal
from dashboard.words.scenarios import name_of
from engine import Exploration, Scenario

__all__ = ["close_page", "draw", "navigation", "open_page", "tab_title"]


def navigation() -> Any:
    """Show the navigation, with a section per group of pages; return the requested page."""
    offered = {
        page.name: st.Page(
            partial(draw, page), title=page.title, help=page.help, url_path=page.name, default=page is PAGES[0]
        )
        for page in PAGES
    }
    page_links.offer(offered)
    return st.navigation(
        {group.value: [offered[page.name] for page in pages] for group, pages in sections().items()}, position="top"
    )


def draw(page: Page) -> None:
    """Parse the link and draw a page."""
    view = page.view()
    needed: list[Any] = []
    if page.needs is Needs.EXPLORATION:
        found = needed_exploration.require_exploration()
        if isinstance(found, needed_exploration.PendingExploration) and not page.answers_first:
            found = needed_exploration.wait_above_page(found)
        needed = [found]
    asked = view.parse(*needed)
    if page.about_scenario:
        explored = next((each for each in needed if isinstance(each, Exploration)), None)
        draw_own_run(parse_own_run(), parse_shared().scenario, explored)
    view.render(asked)


class Above(NamedTuple):
    """Elements above a page that are completed after it has run."""

    scenario: Scenario
    size: Place | None
    """Slot at the end of the scenario sentence."""
    remarks: Place
    """Slot for problems of the link."""
    told: tuple[str, ...]
    """Problems shown so far."""
    warned: tuple[str, ...]
    """Problems of the server shown so far."""


def open_page(static: Path, page: Any) -> Above:
    """Draw the elements above a page; return them for `close_page`."""
    st.logo(str(static / f"logo-{state.theme_mode()}.svg"), size="medium")
    st.html(stylesheet() + styles())
    entry = registry.page(page.url_path)
    scenario = parse_shared().scenario
    st.set_page_config(page_title=tab_title(entry, scenario))
    if entry.needs is Needs.EXPLORATION:
        needed_exploration.begin_ahead(scenario, parse_figures(), state.watcher())
    with st.container(key="unseen"):
        st.html(_behaviour_script(), unsafe_allow_javascript=True)
        st.html(page_head(entry.title) + marked_in_navigation(entry.title, list(sections()).index(entry.group)))
        window.watch()
    if page_links.exists("guide") and entry.name != "guide":
        with st.container(key="guide_link"):
            st.page_link(
                page_links.target("guide"),
                label="Guide",
                icon=":material/menu_book:",
                help=f"In the guide: {chapter(entry.guide).title}",
                query_params={"chapter": entry.guide},
            )
    if page_links.exists("guide"):
        search.opener()
    place = None
    if entry.about_scenario:
        place = sentence.show(scenario, parse_figures(), has_choice=entry.has_figures_choice)
    remarks = st.empty()
    told = _show_problems(remarks, ())
    warned = tuple(explorations().warnings)
    for warning in warned:
        st.warning(literal(warning), icon=":material/cloud_off:")
    return Above(scenario, place, remarks, told, warned)


def tab_title(page: Page, scenario: Scenario) -> str:
    """Return the title of a page in tabs, bookmarks and the browser's history.

    scenario: of the link, named on pages about it.
    """
    about = [name_of(scenario)] if page.about_scenario else []
    return " · ".join([page.title, *about, "Shardscape"])


def close_page(above: Above) -> None:
    """Draw the elements that depend on a finished page."""
    forget_unanswered()
    if above.size is not None:
        sentence.tell_size(above.size, above.scenario)
    _show_problems(above.remarks, above.told)
    for warning in explorations().warnings:
        if warning not in above.warned:  # it came with this run, such as of a result that could not be stored
            st.toast(literal(warning), icon=":material/cloud_off:")


def _show_problems(place: Place, told: tuple[str, ...]) -> tuple[str, ...]:
    """Show the unmet requests of a link in one box; return the sentences."""
    found = state.problems()
    if found and found != told:
        place.warning("\n\n".join(literal(problem) for problem in found), icon=":material/link_off:")
    return found


@cache
def _behaviour_script() -> str:
    """Return the script of the pages as an element."""
    told = json.dumps({"script": front_end.SCRIPT, "library": plotly_figures.address()})
    return f"<script>{(Path(__file__).parent / 'behaviour.js').read_text(encoding='utf-8').rstrip()}({told});</script>"
