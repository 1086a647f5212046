"""One search for everything that has a name: pages, chapters, terms, models, systems, papers, saved scenarios."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import streamlit as st

from dashboard.guide import CHAPTERS, chapter
from dashboard.link import page_links, state
from dashboard.link.catalogue import known_models, model_of, system_of, systems
from dashboard.link.own_studies import kept_parameters
from dashboard.link.user_files import user_files
from dashboard.pages.registry import PAGES
from dashboard.widgets.clicks import was_clicked
from dashboard.widgets.window import is_narrow
from dashboard.words import glossary
from dashboard.words.scenarios import system_name
from engine import Scenario
from engine.reproductions import PAPERS

__all__ = ["SearchTarget", "everything", "everything_about_papers", "opener"]

SHORTCUT: Final = "Ctrl+K"


@dataclass(frozen=True)
class SearchTarget:
    """Target of the search: kind, name, meaning, and the page with its parameters."""

    kind: str
    name: str
    page: str
    parameters: Mapping[str, str | None] = field(default_factory=dict)
    change: Callable[[], None] | None = None
    """Called before the page is shown."""

    @property
    def words(self) -> str:
        """Return the words of the entry in a list."""
        return f"{self.name} · {self.kind}"


def everything(scenario: Scenario) -> list[SearchTarget]:
    """Return all targets: pages first, then scenarios, chapters, terms, models, systems, papers.

    scenario: of the page, whose cost model has terms of its own.
    """
    found = [SearchTarget("page", page.title, page.name) for page in PAGES]
    found += [
        SearchTarget(
            "saved scenario", saved.title, page_links.START, change=partial(state.open_scenario, saved.scenario, {})
        )
        for saved in user_files().saved()
    ]
    found += [
        SearchTarget("co-design study", study.title, "codesign", kept_parameters(study.ident))
        for study in user_files().studies()
    ]
    found += [
        SearchTarget("chapter of the guide", chapter(name).title, "guide", {"chapter": name}) for name in CHAPTERS
    ]
    for word, short, _ in glossary.words(scenario):
        found.append(SearchTarget("term", f"{word} ({short})" if short else word, "guide", {"chapter": "glossary"}))
    for name in known_models():
        model = model_of(name)
        family = "" if model.title.startswith(model.family) else f", {model.family}"
        found.append(
            SearchTarget(
                f"model{family}", model.title or name, "library", {"library_kind": "models", "library_item": name}
            )
        )
    for name in systems():
        found.append(
            SearchTarget(
                "system", system_name(system_of(name)), "library", {"library_kind": "systems", "library_item": name}
            )
        )
    return [*found, *everything_about_papers()]


def everything_about_papers() -> list[SearchTarget]:
    """Return papers by title with their authors, and figures by the paper's own names."""
    found = []
    for paper in PAPERS.values():
        opened = {"papers_figure": f"{paper.name}.{paper.figures[0].name}"}
        found.append(SearchTarget(f"paper by {paper.short_citation}", paper.title, "papers", opened))
        for figure in paper.figures:
            opened = {"papers_figure": f"{paper.name}.{figure.name}"}
            found.append(SearchTarget(f"{paper.short_citation}, paper", figure.title, "papers", opened))
    return found


def opener(scenario: Scenario) -> None:
    """Draw the button that opens the search, as Ctrl-K does. scenario: of the page."""
    with st.container(key="search_link"):
        narrow = is_narrow()
        if was_clicked(
            ":material/search:" if narrow else "Search",
            icon=None if narrow else ":material/search:",
            type="tertiary",
            key="search_open",
            shortcut=None if narrow else SHORTCUT,
            help="Search pages, models, systems, terms, papers, saved scenarios",
        ):
            _show_search_dialog(scenario)


@st.dialog("Search")
def _show_search_dialog(scenario: Scenario) -> None:
    found = everything(scenario)
    chosen = st.selectbox(
        "Pages, chapters, terms, models, systems, papers, saved scenarios and studies",
        range(len(found)),
        None,
        key="search_field",
        format_func=lambda place: found[place].words,
        placeholder="Type a few letters",
    )
    if chosen is None:
        return
    target = found[chosen]
    parameters = state.before_switching(
        target.change or (lambda: state.set_url_values(target.parameters)), list(target.parameters)
    )
    st.switch_page(page_links.target(target.page), query_params=parameters or None)
