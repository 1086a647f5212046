"""Uploading a model or system: Calculon's JSON, our own, or a Hugging Face config.json."""

from __future__ import annotations

from html import escape

import streamlit as st

from dashboard.charts.elements.markup import facts, head
from dashboard.link import page_links, state
from dashboard.link.comparison import Comparison
from dashboard.link.document_validation import MOST_MEGABYTES, Refused, read
from dashboard.link.user_files import LONGEST_TITLE, user_files
from dashboard.queries.document_sheets import MORE_THAN_CALCULON, key_facts, representation
from dashboard.queries.scenario_edits import scenario_with
from dashboard.widgets.clicks import was_clicked
from dashboard.widgets.model_file import ask_sequence
from dashboard.widgets.upload import file_field, read_file
from dashboard.words.markdown import literal
from engine import Scenario
from engine.codesign import Study
from hardware import System
from models import Model

__all__ = ["uploader"]


def uploader() -> None:
    """Draws the button that takes a file."""
    with st.popover("Upload", icon=":material/upload_file:", help="A model or system of your own, as JSON."):
        st.caption("Calculon's model and system files, this dashboard's own, and config.json of Hugging Face are read.")
        file = file_field(
            f"Model or system, up to {MOST_MEGABYTES} MB",
            "json",
            "library_upload",
            MOST_MEGABYTES,
            help="It is checked before anything is done with it.",
        )
        if file is None:
            return
        try:
            found = read_file(read, file.getvalue(), file.name)
        except Refused as problem:
            st.error(literal(str(problem)), icon=":material/error:")
            return
        if isinstance(found, Scenario | Comparison | Study):
            nouns = {Scenario: "scenario", Comparison: "comparison of scenarios", Study: "co-design study"}
            noun = next(word for kind, word in nouns.items() if isinstance(found, kind))
            st.info(f"This file is a {noun}; the Scenarios page opens it.")
            return
        _draw_uses(found, file.file_id)


def _draw_uses(found: Model | System, ident: str) -> None:
    """Draw the content of the file, the parts that are left out, and its uses."""
    noun = "model" if isinstance(found, Model) else "system"
    key = f"library_upload_name_{ident}"
    st.text_input(f"Name of the {noun}", found.name[:LONGEST_TITLE], key=key, max_chars=LONGEST_TITLE)
    if isinstance(found, Model):
        found = ask_sequence(found, f"library_upload_sequence_{ident}")
    st.html(facts(key_facts(found)))
    for title, words, sentences in representation(found):
        lines = "".join(f"<li>{escape(line)}</li>" for line in sentences)
        st.html(f'{head(title, words)}<ul class="ss-list">{lines}</ul>')
    if isinstance(found, Model) and found.block is None:
        st.caption(MORE_THAN_CALCULON)

    def called() -> Model | System:
        name = " ".join(str(st.session_state[key]).split()) or found.name
        return found.model_copy(update={"name": name, "title": found.title if found.title != found.name else name})

    def keep() -> None:
        thing = called()
        name = thing.name
        try:
            if isinstance(thing, Model):
                user_files().keep_model(thing)
            else:
                user_files().keep_system(thing)
        except Refused as problem:
            st.toast(literal(str(problem)), icon=":material/error:")
            return
        state.set_url_values({"library_kind": None if noun == "model" else "systems", "library_item": name})
        st.toast(f"Kept as **{literal(name)}**.", icon=":material/check:")

    with st.container(horizontal=True):
        st.button(
            "Keep in the library",
            type="primary",
            key="library_keep_upload",
            on_click=keep,
            disabled=user_files().folder is None,
            icon=":material/save:",
        )
        if was_clicked("Use in the scenario", key="library_use_upload", icon=":material/play_arrow:"):
            try:
                state.change_scenario(lambda now: scenario_with(now, called()))
            except Refused as problem:
                st.error(literal(str(problem)), icon=":material/error:")
            else:
                st.switch_page(page_links.target("explore"))
    if user_files().folder is None:
        st.caption("This server keeps no files; the scenario carries the whole document in its link.")
