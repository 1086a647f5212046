"""Opening a scenario file that somebody sent."""

from __future__ import annotations

import streamlit as st

from dashboard import frame, state
from dashboard.format import counted
from dashboard.scenarios_data import name_of, sentence_of
from dashboard.text import literal
from dashboard.untrusted import Refused, read
from engine import Scenario

__all__ = ["opener"]

MOST_MEGABYTES = 1


def opener() -> None:
    """Draws the button that opens a file."""
    with st.popover("Open a file", icon=":material/upload_file:", help="A scenario file, as Share and Save make them."):
        file = st.file_uploader(
            "Scenario file", type="json", key="scenarios_upload", max_upload_size=MOST_MEGABYTES,
            help="JSON with model, system and limits. It is checked before anything is done with it.",
        )  # fmt: skip
        if file is None:
            return
        try:
            found = read(file.getvalue(), file.name)
        except Refused as problem:
            st.error(literal(str(problem)), icon=":material/error:")
            return
        if not isinstance(found, Scenario):
            st.info("This file is a model or a system, not a scenario; the Library page opens it.")
            return
        st.markdown(f"**{literal(name_of(found))}**")
        st.caption(literal(f"{sentence_of(found)} · {counted(found.space.total, 'execution')}"))
        if st.button("Open it", type="primary", key="scenarios_open_file", icon=":material/open_in_full:"):
            state.open_scenario(found)
            st.switch_page(frame.path("explore"))
