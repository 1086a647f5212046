"""Which study the Co-design page shows: a ready one by its name, or one's own as JSON, which travels in the link."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any, Final

import streamlit as st

from dashboard.link import state
from dashboard.link.document_validation import Refused, parse
from dashboard.link.folding import LONGEST, folded, unfolded
from dashboard.widgets.controls import choose
from dashboard.widgets.share import link_of, offer_link
from dashboard.words.markdown import literal
from engine.codesign import FORMAT, Study, ready_names, ready_study, said_of

__all__ = ["chosen_study", "document_of", "editor", "link", "share"]

OWN: Final = "own"
_OWN_TEXT: Final = "_codesign_own"
"""Key of the session's own study, as JSON text."""
_PACKED: Final = re.compile(rf"[A-Za-z0-9_-]{{1,{LONGEST}}}")
_DRAFT: Final = "codesign_draft"
_DRAFT_OF: Final = "_codesign_draft_of"
"""Key of the text that the draft was begun with."""
LARGEST: Final = 200_000
"""Characters of a study at most."""


def chosen_study() -> Study:
    """Draws the choice of a study and its editor; returns it.

    Raises ValueError with one sentence where a study of one's own cannot be.
    """
    ready = titles()
    gone = ("codesign_own", "codesign_design")
    name = choose("Study", {**ready, OWN: "My own study"}, "codesign_study", default=next(iter(ready)), width=420,
                  gone=gone)  # fmt: skip
    if name != OWN:
        return ready_study(name)
    return _linked() or _of_session() or ready_study(next(iter(ready)))


def _linked() -> Study | None:
    """The study that the link holds; None where it holds none, or one that cannot be read, which the page tells."""
    text = state.url_value("codesign_own", "", _PACKED)
    if not text:
        return None
    where = "The link's study"
    try:
        return Study.from_document(parse(unfolded(text, "study"), where, "study"), where)
    except Refused as problem:
        state.complain("codesign_own", str(problem))
        return None


def _of_session() -> Study | None:
    own = st.session_state.get(_OWN_TEXT)
    return None if own is None else Study.from_json(own.encode(), "the study")


def _folded(study: Study) -> str | None:
    """A study as a text of a link; None where it is too long for any."""
    text = folded(json.dumps(json.loads(document_of(study)), separators=(",", ":")))
    return text if len(text) <= LONGEST else None


def link(study: Study) -> str | None:
    """Returns the address of the page with a study whole; None for a study that is too long for a link."""
    shown = {name: value for name, value in state.link_parameters().items() if name.startswith("codesign_")}
    if shown.get("codesign_study") == OWN:
        text = _folded(study)
        if text is None:
            return None
        shown["codesign_own"] = text
    return link_of(shown)


def share(study: Study) -> None:
    """Draws the menu with the link to what is shown."""
    file = "the file of the study instead: Edit study opens it on any Shardscape server."
    with st.popover("Share", icon=":material/link:", help="A link to exactly what is shown.", key="codesign_share"):
        address = link(study)
        if address is not None:
            offer_link(address, holds="study", instead=file)
        else:
            st.caption(f"This study is too long for a link. Send {file}")
        st.download_button("Study file", document_of(study), "study.json", "application/json",
                           key="codesign_share_file", on_click="ignore", icon=":material/data_object:")  # fmt: skip


def editor(study: Study) -> None:
    """Draws the menu in which a study is read, changed, saved and opened."""
    with st.popover("Edit study", icon=":material/edit:", help="The study as JSON: change it, save it, open another."):
        st.markdown("Models with weights, systems, edits, sizes, batches, prices, objectives and constraints, in the "
                    "form that the guide explains. Changes make it your own.")  # fmt: skip
        written = document_of(study)
        if st.session_state.get(_DRAFT_OF) != written or _DRAFT not in st.session_state:
            st.session_state[_DRAFT_OF] = st.session_state[_DRAFT] = written
        text = st.text_area("Study (JSON)", key=_DRAFT, height=320, max_chars=LARGEST)
        with st.container(horizontal=True, gap="small"):
            if st.button("Use it", type="primary", key="codesign_use"):
                try:
                    made = Study.from_json(text.encode(), "the study")
                except ValueError as problem:
                    st.error(literal(str(problem)), icon=":material/error:")
                else:
                    _take(made, text)
                    st.rerun()
            st.download_button("Save as a file", text, "study.json", "application/json", key="codesign_save",
                               on_click="ignore", icon=":material/download:")  # fmt: skip
        given = st.file_uploader("Open a study", type="json", key="codesign_file")
        if given is not None and st.session_state.get("_codesign_read") != given.file_id:
            st.session_state["_codesign_read"] = given.file_id
            try:
                made = Study.from_json(given.getvalue(), given.name)
            except ValueError as problem:
                st.error(literal(str(problem)), icon=":material/error:")
            else:
                _take(made, given.getvalue().decode())
                st.rerun()


def document_of(study: Study) -> str:
    """Returns a study as JSON text, its models and systems by name where they are the library's."""
    how: dict[str, Any] = {"mode": "json", "by_alias": True, "exclude_none": True, "exclude_defaults": True}
    said = study.document.model_dump(**how, exclude={"costs"})
    costs = said_of(study.document.costs)
    return json.dumps({"format": FORMAT, **said, **({"costs": costs} if costs else {})}, indent=2)


def _take(study: Study, text: str) -> None:
    st.session_state[_OWN_TEXT] = text
    st.session_state.pop(_DRAFT, None)
    state.set_url_values({"codesign_study": OWN, "codesign_own": _folded(study), "codesign_design": None})


@cache
def titles() -> dict[str, str]:
    """Returns the ready studies by name, with what they are called."""
    return {name: ready_study(name).document.name or name for name in ready_names()}
