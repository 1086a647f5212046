"""What becomes of a fitted calibration: a file, a calibration kept on the server, the one that a session works with."""

from __future__ import annotations

import json
import re
from typing import Final

import streamlit as st

import hardware
from dashboard import frame
from dashboard.server import user_files
from dashboard.text import literal
from dashboard.untrusted import Refused
from dashboard.user_files import LONGEST_TITLE
from engine import calibrate
from engine.calibrate import CalibrateError, Outcome
from hardware import Calibration

__all__ = ["in_use", "offer", "use"]

_IN_USE: Final = "_calibration_in_use"


def in_use() -> Calibration | None:
    """The calibration that this session's scenarios are to be evaluated with; None for the library's."""
    found = st.session_state.get(_IN_USE)
    return found if isinstance(found, Calibration) else None


def use(calibration: Calibration | None) -> None:
    """Sets the calibration that this session works with."""
    if calibration is None:
        st.session_state.pop(_IN_USE, None)
    else:
        st.session_state[_IN_USE] = calibration


def offer(outcome: Outcome, key: str) -> None:
    """Draw what can be done with a fit. key: tells fits apart, so that the name starts anew with each."""
    suggested = calibrate.document(outcome).name
    name = st.text_input("Name of the calibration", suggested, key=f"calibrate_name_{key}", max_chars=LONGEST_TITLE)
    try:
        found = calibrate.document(outcome, name)
    except CalibrateError as problem:
        st.error(literal(str(problem)), icon=":material/error:")
        return
    helps = outcome.helps is not False
    with st.container(horizontal=True, gap="small"):
        st.download_button(
            "Download", json.dumps(hardware.calibration_document(found), indent=1, ensure_ascii=False) + "\n",
            file_name=f"{re.sub(r'[^A-Za-z0-9_.-]+', '-', found.name)}.json", mime="application/json",
            icon=":material/download:", key="calibrate_download", help="The calibration as a document (JSON).",
        )  # fmt: skip
        st.button(
            "Keep", on_click=_keep, args=(found,), icon=":material/save:", key="calibrate_keep",
            disabled=user_files().folder is None, help="Keep it on this server; everybody who uses it sees it.",
        )  # fmt: skip
        st.button(
            "Use for the scenario", on_click=_use, args=(found,), icon=":material/play_arrow:", key="calibrate_use",
            type="primary" if helps else "secondary",
            help="Evaluate with it until the session ends, or until it is given up below.",
        )  # fmt: skip
    now = in_use()
    if now is not None:
        with st.container(horizontal=True, gap="small", vertical_alignment="center"):
            st.caption(f"In use: **{literal(now.name)}**, of {literal(now.system)}.")
            st.button("Give it up", on_click=use, args=(None,), key="calibrate_drop", type="tertiary")
            if frame.exists("explore"):
                st.page_link(frame.path("explore"), label="Explore", icon=":material/arrow_forward:")


def _keep(found: Calibration) -> None:
    try:
        user_files().keep_calibration(found)
    except Refused as problem:
        st.toast(literal(str(problem)), icon=":material/error:")
        return
    st.toast(f"Kept as **{literal(found.name)}**.", icon=":material/check:")


def _use(found: Calibration) -> None:
    use(found)
    st.toast(f"**{literal(found.name)}** is in use.", icon=":material/check:")
