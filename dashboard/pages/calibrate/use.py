"""Uses of a fitted calibration: a file, a calibration kept on the server, or the calibration of the scenario."""

from __future__ import annotations

import json
import re

import streamlit as st

import hardware
from dashboard.link import page_links, state
from dashboard.link.document_validation import PROBLEMS, Refused, checked, sentence
from dashboard.link.user_files import LONGEST_TITLE, user_files
from dashboard.pages.calibrate.ranking import same_accelerator
from dashboard.words.markdown import literal
from engine import CostModelError, Scenario, calibrate
from engine.calibrate import CalibrateError, CalibrationOutcome
from hardware import Calibration

__all__ = ["draw_uses"]


def draw_uses(scenario: Scenario, outcome: CalibrationOutcome, key: str) -> None:
    """Draw the uses of a fit.

    Args:
        scenario: scenario of the link.
        outcome: the fit.
        key: identifies the fit; each fit begins with its own suggested name.
    """
    suggested = calibrate.document(outcome).name
    name = st.text_input("Name of the calibration", suggested, key=f"calibrate_name_{key}", max_chars=LONGEST_TITLE)
    try:
        found = calibrate.document(outcome, name)
    except CalibrateError as problem:
        st.error(literal(str(problem)), icon=":material/error:")
        return
    fitting = same_accelerator(scenario.system, outcome.checked.system)
    with st.container(horizontal=True, gap="small"):
        st.download_button(
            "Download",
            json.dumps(hardware.calibration_document(found), indent=1, ensure_ascii=False) + "\n",
            file_name=f"{re.sub(r'[^A-Za-z0-9_.-]+', '-', found.name)}.json",
            mime="application/json",
            icon=":material/download:",
            key="calibrate_download",
            help="The calibration as a document (JSON).",
        )
        st.button(
            "Keep",
            on_click=_keep_calibration,
            args=(found,),
            icon=":material/save:",
            key="calibrate_keep",
            disabled=user_files().folder is None,
            help="Keep it on this server, visible to all its users.",
        )
        st.button(
            "Use for the scenario",
            on_click=_use_calibration,
            args=(scenario, found),
            icon=":material/play_arrow:",
            key="calibrate_use",
            type="primary" if outcome.helps is not False and fitting else "secondary",
            disabled=not fitting,
            help="Use it on all pages and in links."
            if fitting
            else "The scenario and the runs have different accelerators.",
        )
    now = scenario.calibration
    if now is not None:
        with st.container(horizontal=True, gap="small", vertical_alignment="center"):
            st.caption(f"The scenario uses **{literal(now.name)}**, of {literal(now.system or 'all systems')}.")
            st.button("Remove", on_click=_use_calibration, args=(scenario, None), key="calibrate_drop", type="tertiary")
            if page_links.exists("explore"):
                st.page_link(page_links.target("explore"), label="Map", icon=":material/arrow_forward:")


def _keep_calibration(found: Calibration) -> None:
    try:
        user_files().keep_calibration(found)
    except Refused as problem:
        st.toast(literal(str(problem)), icon=":material/error:")
        return
    st.toast(f"Kept as **{literal(found.name)}**.", icon=":material/check:")


def _use_calibration(scenario: Scenario, found: Calibration | None) -> None:
    """Give the scenario a calibration; None: the library's."""
    try:
        state.set_scenario(checked(calibrate.recalibrated(scenario, found)))
    except (Refused, CostModelError, *PROBLEMS) as problem:
        st.toast(literal(sentence(problem)), icon=":material/error:")
        return
    st.toast(
        f"The scenario uses {'the library' if found is None else f'**{literal(found.name)}**'}.",
        icon=":material/check:",
    )
