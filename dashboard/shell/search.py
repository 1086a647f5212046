"""One search for tasks and everything that has a name: pages, guide, terms, models, systems, papers, saved work."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import streamlit as st

from dashboard.guide import CHAPTERS, chapter
from dashboard.guide.chapters import anchor
from dashboard.guide.glossary import terms
from dashboard.link import page_links, state
from dashboard.link.catalogue import known_models, model_of, system_of, systems
from dashboard.link.own_studies import kept_parameters
from dashboard.link.user_files import user_files
from dashboard.pages.registry import PAGES
from dashboard.pages.registry import page as registry_page
from dashboard.shell.scenario import sentence
from dashboard.widgets.clicks import was_clicked
from dashboard.widgets.window import is_narrow
from dashboard.words.glossary import WORDS
from dashboard.words.scenarios import system_name
from engine.reproductions import PAPERS

__all__ = ["SearchTarget", "everything", "everything_about_papers", "opener"]

SHORTCUT: Final = "Ctrl+K"
_OPEN: Final = "_search_open"
"""Session key: whether the search is open."""
_USED: Final = ""
"""Page of a target that changes the scenario: the shown one, or the map."""


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


def everything() -> list[SearchTarget]:
    """Return all targets: pages and tasks first, then what this visitor saved, then the library, guide and papers."""
    found = [SearchTarget("page", page.title, page.name) for page in PAGES]
    found += [SearchTarget(page.title, task, page.name) for page in PAGES for task in page.tasks]
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
    return [*found, *_everything_in_library(), *_everything_in_guide(), *everything_about_papers()]


def _everything_in_library() -> list[SearchTarget]:
    """Return models and systems, each to be used in the scenario and to be read about."""
    titles = {("models", "model", name): model_of(name).title or name for name in known_models()} | {
        ("systems", "system", name): system_name(system_of(name)) for name in systems()
    }
    used = [
        SearchTarget(f"use this {kind}", title, _USED, change=partial(sentence.choose, kind, name))
        for (_, kind, name), title in titles.items()
    ]
    read = []
    for (folder, kind, name), title in titles.items():
        family = model_of(name).family if kind == "model" else ""
        more = "" if title.startswith(family) else f", {family}"
        opened = {"library_kind": folder, "library_item": name}
        read.append(SearchTarget(f"{kind} in the library{more}", title, "library", opened))
    return [*used, *read]


def _everything_in_guide() -> list[SearchTarget]:
    """Return the chapters of the guide, their sections, and the terms of the glossary."""
    found = [
        SearchTarget("chapter of the guide", chapter(name).title, "guide", {"chapter": name, "section": None})
        for name in CHAPTERS
    ]
    for name in CHAPTERS:
        found += [
            SearchTarget(
                f"guide, {chapter(name).title}", section, "guide", {"chapter": name, "section": anchor(section)}
            )
            for section in chapter(name).sections
        ]
    for term, section in terms():
        opened = {"chapter": "glossary", "section": anchor(section)}
        found.append(SearchTarget(f"term, {section.lower()}", term, "guide", opened))
    found += [SearchTarget("word, under Terms of the map", word, page_links.START) for word, _ in WORDS]
    return found


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


def opener() -> None:
    """Draw the button that opens the search, as Ctrl-K does."""
    with st.container(key="search_link"):
        _draw_opener()


@st.fragment
def _draw_opener() -> None:
    """Draw the button. It runs alone: the page behind the search is not drawn again."""
    narrow = is_narrow()
    if was_clicked(
        ":material/search:" if narrow else "Search",
        icon=None if narrow else ":material/search:",
        type="tertiary",
        key="search_open",
        shortcut=None if narrow else SHORTCUT,
        help="Search tasks, pages, models, systems, terms, papers, the guide and what you saved",
    ):
        st.session_state[_OPEN] = True
    if st.session_state.get(_OPEN):  # a page that is drawn again, as when a result has come, must not shut it
        _show_search_dialog()


def _note_closing() -> None:
    st.session_state[_OPEN] = False


@st.dialog("Search", on_dismiss=_note_closing)
def _show_search_dialog() -> None:
    found = everything()
    chosen = st.selectbox(
        "Tasks, pages, models, systems, terms, papers, the guide, and what you saved",
        range(len(found)),
        None,
        key="search_field",
        format_func=lambda place: found[place].words,
        placeholder="Type a few letters, such as lower memory",
    )
    if chosen is not None:
        _open(found[chosen])


def _open(target: SearchTarget) -> None:
    """Go to the page of a target; parameters that it does not name stay, above all the scenario."""

    def change() -> None:
        if target.change is not None:
            target.change()
        state.set_url_values(target.parameters)

    page = target.page
    if page == _USED:  # the page that is shown, if it is about the scenario
        shown = registry_page(state.page())
        page = shown.name if shown.about_scenario else page_links.START
    _note_closing()
    parameters = state.before_switching(change, list(target.parameters))
    st.switch_page(page_links.target(page), query_params=parameters or None)
