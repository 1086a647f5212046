"""Choice of the study: a ready one, one kept on the server, or the user's own, which the link holds."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Final

import streamlit as st

from dashboard.link import state
from dashboard.link.document_validation import MOST_MEGABYTES, Refused, checked_study
from dashboard.link.fields import LinkField, LinkReader
from dashboard.link.own_studies import KEPT, OWN, OWN_TEXT, document_of, packed_study, unpacked_study
from dashboard.link.text_encoding import LONGEST
from dashboard.link.user_files import LONGEST_TITLE, user_files
from dashboard.pages.codesign.link import CodesignLink
from dashboard.queries.design_phrases import changed, phrases
from dashboard.widgets.clicks import was_clicked
from dashboard.widgets.controls import key_for, menu_key, shut
from dashboard.widgets.link_fields import draw_choice
from dashboard.widgets.share import link_of, offer_link
from dashboard.widgets.upload import file_field, read_file
from dashboard.words.markdown import literal
from engine.codesign import Study, ready_names, ready_study

__all__ = ["document_of", "draw_study", "editor", "keeper", "link", "parse_study", "sentence", "share"]

_PACKED: Final = re.compile(rf"[A-Za-z0-9_-]{{1,{LONGEST}}}")
_DRAFT: Final = "codesign_draft"
_DRAFT_OF: Final = "_codesign_draft_of"
"""Session key of the text with which the draft began."""
LARGEST: Final = 200_000
"""Largest study [characters]."""


def parse_study(reader: LinkReader[CodesignLink]) -> Study:
    """Parse the choice of a study, and return the study.

    Args:
        reader: of the page's parameters.

    Raises ValueError with one sentence if the user's own study is invalid.
    """
    ready = study_titles()
    kept = {f"{KEPT}{each.ident}": each for each in user_files().studies()}
    words = {**ready, **{name: each.title for name, each in kept.items()}, OWN: "My own study"}
    name = str(reader.read("study", default=next(iter(ready)), options=words))
    if name in kept:
        return kept[name].study
    if name != OWN:
        return ready_study(name)
    return _parse_linked_study() or _of_session() or ready_study(next(iter(ready)))


def draw_study(field: LinkField) -> None:
    """Draw the choice of a study.

    Args:
        field: of the link.
    """
    draw_choice(field, width=420, resets=("codesign_own", "codesign_design", "codesign_kept"))


def _parse_linked_study() -> Study | None:
    """Return the study in the link; None without one, or if it cannot be read, with a complaint above the page."""
    text = state.url_value("codesign_own", "", _PACKED)
    if not text:
        return None
    try:
        return unpacked_study(text)
    except Refused as problem:
        state.complain("codesign_own", str(problem))
        return None


def _of_session() -> Study | None:
    own = st.session_state.get(OWN_TEXT)
    return None if own is None else Study.from_json(own.encode(), "the study")


def link(study: Study, parameters: Mapping[str, str]) -> str | None:
    """Returns the address of the page with the whole study; None if the study is too long for a link.

    Args:
        study: the study.
        parameters: of the page in the link.
    """
    shown = dict(parameters)
    if shown.get("codesign_study", "").startswith((OWN, KEPT)):  # whole, so that any server opens it
        text = packed_study(study)
        if text is None:
            return None
        shown |= {"codesign_study": OWN, "codesign_own": text}
    return link_of(shown)


def share(study: Study, parameters: Mapping[str, str]) -> None:
    """Draws the menu with a link to the current page. See `link`."""
    file = "the file of the study instead: Edit study opens it on any Shardscape server."
    with st.popover("Share", icon=":material/link:", help="A link to this page as it is.", key="codesign_share"):
        address = link(study, parameters)
        if address is not None:
            offer_link(address, holds="study", instead=file)
        else:
            st.caption(f"This study is too long for a link. Send {file}")
        st.download_button(
            "Study file",
            document_of(study),
            "study.json",
            "application/json",
            key="codesign_share_file",
            on_click="ignore",
            icon=":material/data_object:",
        )


def keeper(study: Study) -> None:
    """Draws the menu that saves the study on the server under a title."""
    with st.popover(
        "Save", icon=":material/bookmark:", help="Keep this study on the server.", key=menu_key("codesign_keep")
    ):
        if user_files().folder is None:
            st.caption("This server does not keep files. Share offers the study as a file.")
            return
        key = f"codesign_title_{study.key[:12]}"
        with st.form("codesign_keep_form", border=False):  # so that Enter saves
            title = (study.document.name or "Study")[:LONGEST_TITLE]
            st.text_input("Title", title, key=key, max_chars=LONGEST_TITLE)
            st.caption("Listed here and on the Scenarios page for all users of this server.")
            st.form_submit_button(
                "Save",
                key="codesign_keep_now",
                type="primary",
                on_click=_save_study,
                args=(study, key),
                icon=":material/bookmark_add:",
            )


def _save_study(study: Study, key: str) -> None:
    title = str(st.session_state[key])
    try:
        ident = user_files().keep_study(title, study)
    except Refused as problem:
        st.toast(literal(str(problem)), icon=":material/error:")
        return
    state.set_url_values({"codesign_study": f"{KEPT}{ident}", "codesign_own": None})
    st.toast(f"Saved as **{literal(' '.join(title.split()))}**.", icon=":material/bookmark_added:")
    shut("codesign_keep")


def editor(study: Study) -> None:
    """Draws the menu in which a study is read, changed, saved and opened."""
    with st.popover("Edit study", icon=":material/edit:", help="The study as JSON: change it, save it, open another."):
        st.markdown(
            "Models with weights, systems, edits, sizes, batches, prices, objectives and constraints, in the "
            "form that the guide explains. Changes make it your own."
        )
        written = document_of(study)
        if st.session_state.get(_DRAFT_OF) != written or _DRAFT not in st.session_state:
            st.session_state[_DRAFT_OF] = st.session_state[_DRAFT] = written
        text = st.text_area("Study (JSON)", key=_DRAFT, height=320, max_chars=LARGEST)
        with st.container(horizontal=True, gap="small"):
            if was_clicked("Use it", type="primary", key="codesign_use"):
                try:
                    made = Study.from_json(text.encode(), "the study")
                except ValueError as problem:
                    st.error(literal(str(problem)), icon=":material/error:")
                else:
                    _use_study(made, text)
                    st.rerun()
            st.download_button(
                "Save as a file",
                text,
                "study.json",
                "application/json",
                key="codesign_save",
                on_click="ignore",
                icon=":material/download:",
            )
        file = file_field("Open a study", "json", "codesign_file", MOST_MEGABYTES)
        if file is not None and st.session_state.get("_codesign_read") != file.file_id:
            st.session_state["_codesign_read"] = file.file_id
            try:
                made = Study.from_document(read_file(checked_study, file.getvalue(), file.name), file.name)
            except ValueError as problem:
                st.error(literal(str(problem)), icon=":material/error:")
            else:
                _use_study(made, file.getvalue().decode())
                st.rerun()


def sentence(study: Study, words: Mapping[str, str]) -> None:
    """Draws the study as a sentence with editable parts.

    Args:
        study: the study.
        words: text of each part, by its name.
    """
    with st.container(horizontal=True, vertical_alignment="center", gap="xsmall", key="codesign_sentence"):
        for each in phrases(study):
            st.markdown(each.before, width="content")
            menu = f"codesign_part_{each.name}"
            with (
                st.popover(
                    literal(words[each.name]), help=f"Change: {each.label.lower()}", type="tertiary", key=menu_key(menu)
                ),
                st.form(f"{menu}_form", border=False),
            ):
                key = key_for(f"{menu}_text", each.text)
                if each.lines:
                    st.text_area(each.label, each.text, key=key, height=140, max_chars=LARGEST, width=460)
                else:
                    st.text_input(each.label, each.text, key=key, max_chars=LARGEST, width=460)
                st.caption(literal(each.help))
                st.form_submit_button(
                    "Use it", key=f"{menu}_use", type="primary", on_click=_change_study, args=(study, each.name, key)
                )


def _change_study(study: Study, name: str, key: str) -> None:
    try:
        made = changed(study, name, str(st.session_state[key]))  # an invalid text stays in the field
    except ValueError as problem:
        st.toast(literal(str(problem)), icon=":material/error:")
        return
    _use_study(made, document_of(made))
    shut(f"codesign_part_{name}")


def _use_study(study: Study, text: str) -> None:
    st.session_state[OWN_TEXT] = text
    st.session_state.pop(_DRAFT, None)
    state.set_url_values(
        {"codesign_study": OWN, "codesign_own": packed_study(study), "codesign_design": None, "codesign_kept": None}
    )


@cache
def study_titles() -> dict[str, str]:
    """Returns the titles of the ready studies, by name."""
    return {name: ready_study(name).document.name or name for name in ready_names()}
