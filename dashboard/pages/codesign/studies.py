"""Which study the Co-design page shows: a ready one by its name, or one's own as JSON."""

from __future__ import annotations

import json
from functools import cache
from typing import Final

import streamlit as st

from dashboard.widgets.controls import choose
from dashboard.words.markdown import literal
from engine.codesign import Study, ready_names, ready_study

__all__ = ["chosen_study", "document_of"]

OWN: Final = "own"
_OWN_TEXT: Final = "_codesign_own"
"""Key of the session's own study, as JSON text."""
_DRAFT: Final = "codesign_draft"
LARGEST: Final = 200_000
"""Characters of a study at most."""


def chosen_study() -> Study:
    """Draws the choice of a study and its editor; returns it.

    Raises ValueError with one sentence where a study of one's own cannot be.
    """
    ready = titles()
    name = choose("Study", {**ready, OWN: "My own study"}, "codesign_study", default=next(iter(ready)), width=420)
    own = st.session_state.get(_OWN_TEXT)
    if name == OWN and own is not None:
        made = Study.from_json(own.encode(), "the study")
    elif name == OWN:
        made = ready_study(next(iter(ready)))
    else:
        made = ready_study(name)
    return made


def editor(study: Study) -> None:
    """Draws the menu in which a study is read, changed, saved and opened."""
    with st.popover("Edit study", icon=":material/edit:", help="The study as JSON: change it, save it, open another."):
        st.markdown("Models with weights, systems, edits, sizes, batches, prices, objectives and constraints, in the "
                    "form that the guide explains. Changes make it your own.")  # fmt: skip
        st.session_state.setdefault(_DRAFT, document_of(study))
        text = st.text_area("Study (JSON)", key=_DRAFT, height=320, max_chars=LARGEST)
        with st.container(horizontal=True, gap="small"):
            if st.button("Use it", type="primary", key="codesign_use"):
                try:
                    Study.from_json(text.encode(), "the study")
                except ValueError as problem:
                    st.error(literal(str(problem)), icon=":material/error:")
                else:
                    _take(text)
                    st.rerun()
            st.download_button("Save as a file", text, "study.json", "application/json", key="codesign_save",
                               on_click="ignore", icon=":material/download:")  # fmt: skip
        given = st.file_uploader("Open a study", type="json", key="codesign_file")
        if given is not None and st.session_state.get("_codesign_read") != given.file_id:
            st.session_state["_codesign_read"] = given.file_id
            try:
                Study.from_json(given.getvalue(), given.name)
            except ValueError as problem:
                st.error(literal(str(problem)), icon=":material/error:")
            else:
                _take(given.getvalue().decode())
                st.rerun()


def document_of(study: Study) -> str:
    """Returns a study as JSON text, its models and systems by name where they are the library's."""
    said = study.document.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_defaults=True)
    return json.dumps({"format": study.to_document()["format"], **said}, indent=2)


def _take(text: str) -> None:
    from dashboard.link import state

    st.session_state[_OWN_TEXT] = text
    st.session_state.pop(_DRAFT, None)
    state.set_url_values({"codesign_study": OWN, "codesign_design": None})


@cache
def titles() -> dict[str, str]:
    """Returns the ready studies by name, with what they are called."""
    return {name: ready_study(name).document.name or name for name in ready_names()}
