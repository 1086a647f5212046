"""The Library page: models and systems with the source of every value; edit copies, upload, use."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

import streamlit as st

import hardware
import models
from dashboard.charts.elements.markup import facts, head
from dashboard.link import page_links, state
from dashboard.link.document_validation import Refused
from dashboard.link.fields import LinkField, LinkReader
from dashboard.link.shared import parse_shared
from dashboard.link.user_files import user_files
from dashboard.pages.library import listing as library_list
from dashboard.pages.library.curves import curves
from dashboard.pages.library.editor import editor
from dashboard.pages.library.link import LibraryLink
from dashboard.pages.library.listing import Item
from dashboard.pages.library.upload import uploader
from dashboard.queries.document_sheets import (
    MORE_THAN_CALCULON,
    changes_in_words,
    key_facts,
    lineage,
    representation,
    sheet,
)
from dashboard.queries.scenario_edits import scenario_with
from dashboard.widgets.link_fields import draw_segments
from dashboard.words.markdown import literal
from engine import Scenario
from hardware import System
from models import Model
from models.documents import DocumentError, did_you_mean

__all__ = ["LibraryView", "parse", "render"]

_KINDS: Final = ("models", "systems")
_ANY: Final = re.compile(r".{0,255}", re.DOTALL)
EDITING: Final = "library_edit"


@dataclass(frozen=True, slots=True)
class LibraryView:
    """The page's part of the link."""

    item: str
    """Name of the open entry; empty for the one in use."""
    edited: str
    """Name of the entry that is being edited; empty for none."""
    kind: LinkField
    scenario: Scenario
    """The scenario that other pages are about."""


def parse() -> LibraryView:
    """Parse the page's part of the link."""
    reader = LinkReader(LibraryLink, "library")
    item, edited = (reader.read(name, pattern=_ANY) for name in ("item", "edit"))
    reader.read("kind")
    return LibraryView(item, edited, reader.fields["kind"], parse_shared().scenario)


def render(view: LibraryView) -> None:
    """Draws the page."""
    kind = view.kind.value
    for problem in user_files().problems:
        st.warning(literal(problem), icon=":material/draft:")
    with st.container(horizontal=True, vertical_alignment="center", key="library_bar"):
        draw_segments(view.kind, label="What")
        wanted = st.text_input(
            "Search",
            key="library_search",
            placeholder=f"Search {kind}",
            width=300,
            max_chars=200,
            label_visibility="collapsed",
            icon=":material/search:",
        )
        st.space("stretch")
        uploader()
    now = view.scenario
    used = now.model if kind == "models" else now.system
    in_use = used.name
    found = library_list.items(kind, in_use)
    shown = library_list.searched(found, wanted or "")
    chosen = _chosen_item(found, view.item, in_use)
    left, right = st.columns([1, 2.3] if kind == "models" else [1, 1.5], gap="medium")
    with left:
        if shown:
            library_list.table(shown, chosen.name, kind)
            first = ", listed first" if shown[0].name == in_use else ""
            now_used = literal(used.title or in_use)
            st.caption(f"{len(shown):,} of {len(found):,} {kind}. In the scenario now{first}: {now_used}.")
        else:
            st.info(f"None of the {len(found):,} {kind} contains these words.", icon=":material/search_off:")
    with right.container(border=True, gap="small", key="library_sheet"):
        if view.edited == chosen.name:
            editor(chosen.thing, done=_stop_editing)
        else:
            _draw_sheet(chosen, kind)


def _chosen_item(found: Sequence[Item], name: str, in_use: str) -> Item:
    """Return the item in the link, otherwise the one in use, otherwise the first."""
    by_name = {item.name: item for item in found}
    every = {item.name for kind in _KINDS for item in library_list.items(kind)}
    if name and name not in every:
        near = did_you_mean(name, sorted(every))
        shown = by_name.get(in_use) or found[0]
        instead = shown.thing.title or shown.name
        sentence = f"The link's entry {name[:60]!r} is not in the library{near}. Showing {instead} instead."
        state.complain("library_item", sentence)
    return by_name.get(name) or by_name.get(in_use) or found[0]


def _stop_editing() -> None:
    state.set_url_value(EDITING, None)


def _draw_sheet(item: Item, kind: str) -> None:
    thing = item.thing
    st.html(head(thing.title or thing.name, "own" if item.own else ""))
    if thing.title and thing.title != thing.name:
        st.caption(f"In commands: {literal(thing.name)}")
    st.caption(f"Source: {literal(thing.source or 'not stated')}.")
    if thing.derived_from:
        st.caption(literal(f"{lineage(thing)} {'; '.join(changes_in_words(thing)[:6])}."))
    st.html(facts(key_facts(thing)))
    _draw_actions(item, kind)
    if isinstance(thing, System):
        curves(thing)
        values, rest = st.container(), st.container()
    else:
        rest, values = st.container(), st.container()
    with rest:
        for title, words, sentences in representation(thing):
            st.html(head(title, words))
            lines = "".join(f"<li>{escape(line)}</li>" for line in sentences)
            st.html(f'<ul class="ss-list">{lines}</ul>')
    with values:
        st.html(head("Every value", "assumed, recalled and edited ones are marked"))
        st.html(sheet(thing))


def _draw_actions(item: Item, kind: str) -> None:
    thing = item.thing
    untimed = isinstance(thing, Model) and not thing.is_timed
    with st.container(horizontal=True):
        if st.button(
            "Use in the scenario",
            type="primary",
            icon=":material/play_arrow:",
            key="library_use",
            disabled=untimed,
            help="No cost model times this model; its weights and caches are counted." if untimed else None,
        ):
            try:
                state.change_scenario(lambda now: scenario_with(now, thing))
            except Refused as problem:
                st.error(literal(str(problem)), icon=":material/error:")
            else:
                st.switch_page(page_links.target("explore"))
        st.button(
            "Edit a copy" if not item.own else "Edit",
            icon=":material/edit:",
            key="library_edit",
            on_click=_begin_editing,
            args=(item.name,),
        )
        with st.popover("File", icon=":material/download:"):
            _draw_downloads(thing)
        if item.own:
            with st.popover("Delete", icon=":material/delete:"):
                st.caption("Saved scenarios keep their own copy.")
                st.button(
                    "Delete it", key="library_delete", on_click=_toast_refusal, args=(lambda: _delete_item(thing),)
                )
    if isinstance(thing, Model) and thing.block is None and thing.is_timed:
        st.caption(MORE_THAN_CALCULON)


def _begin_editing(name: str) -> None:
    for key in [key for key in st.session_state if str(key).startswith("library_value_")]:
        del st.session_state[key]
    state.set_url_values({"library_item": name, EDITING: name})


def _delete_item(thing: Model | System) -> None:
    if isinstance(thing, Model):
        user_files().drop_model(thing.name)
    else:
        user_files().drop_system(thing.name)
    state.set_url_value("library_item", None)


def _toast_refusal(action: Callable[[], None]) -> None:
    try:
        action()
    except Refused as problem:
        st.toast(literal(str(problem)), icon=":material/error:")


def _draw_downloads(thing: Model | System) -> None:
    """Draw downloads in our own format, which keeps sources and marks, and in Calculon's."""
    stem = re.sub(r"[^\w.-]+", "-", thing.name)[:80]
    own = models.to_document(thing) if isinstance(thing, Model) else hardware.to_document(thing)
    st.download_button(
        "With sources and marks",
        _json_bytes(own),
        f"{stem}.json",
        "application/json",
        on_click="ignore",
        key="library_file",
        icon=":material/data_object:",
    )
    try:
        calculon = models.to_calculon(thing) if isinstance(thing, Model) else hardware.to_calculon(thing)
    except DocumentError as problem:
        st.caption(literal(str(problem)))
    else:
        st.download_button(
            "For Calculon",
            _json_bytes(calculon),
            f"{stem}.json",
            "application/json",
            on_click="ignore",
            key="library_calculon",
            icon=":material/data_object:",
        )


def _json_bytes(document: object) -> bytes:
    return (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode("utf-8", "replace")
