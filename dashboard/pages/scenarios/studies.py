"""Kept co-design studies on the Scenarios page: their content and actions."""

from __future__ import annotations

import re

import streamlit as st

from dashboard.charts.elements.markup import chips, head
from dashboard.jobs.codesign_studies import folder_of, so_far
from dashboard.jobs.server import server
from dashboard.link import page_links, state
from dashboard.link.own_studies import OWN, OWN_TEXT, SavedStudy, document_of, kept_parameters, packed_study
from dashboard.widgets import share
from dashboard.widgets.clicks import was_clicked
from dashboard.words.markdown import literal
from dashboard.words.numbers import counted
from dashboard.words.scenarios import system_name
from dashboard.words.studies import told_of
from engine.codesign import Study

__all__ = ["open_kept", "open_study", "summary"]

PAGE = "codesign"


def summary(kept: SavedStudy) -> None:
    """Draws the content of a study and how much of it was searched, its link and its file.

    Args:
        kept: the study with its title.
    """
    study = kept.study
    st.html(head(kept.title, "co-design study"))
    if study.document.description:
        st.markdown(literal(study.document.description))
    there = so_far(study, folder_of(study, server().settings))
    searched = "none" if there is None else f"{len(there.rows):,}"
    st.html(
        chips(
            [
                ("models", ", ".join(model.title or model.name for model in study.models)),
                ("systems", ", ".join(system_name(system) for system in study.systems)),
                ("points", f"{study.points:,}"),
                ("searched", searched),
                ("designs", f"{study.designs:,}"),
                ("changed", counted(len(study.edited_names), "parameter")),
            ]
        )
    )


def open_kept(kept: SavedStudy) -> None:
    """Draws the buttons that open a kept study, share it and download its file.

    Args:
        kept: the study with its title.
    """
    if was_clicked("Open", type="primary", icon=":material/open_in_full:", key="scenarios_open"):
        _open_page(kept_parameters(kept.ident))
    with st.popover("Share", icon=":material/link:"):
        text = packed_study(kept.study)
        if text is None:
            st.caption("This study is too long for a link. Send its file: Open a file takes it on any server.")
        else:
            address = share.link_on(PAGE, {"codesign_study": OWN, "codesign_own": text})
            share.offer_link(address, holds="study", instead="the file of the study instead: Open a file takes it.")
    name = re.sub(r"[^\w.-]+", "-", kept.title)[:80] or "study"
    st.download_button(
        "File",
        document_of(kept.study),
        f"{name}.json",
        "application/json",
        key="scenarios_study_file",
        on_click="ignore",
        icon=":material/data_object:",
        help="The whole study as JSON.",
    )


def open_study(study: Study) -> None:
    """Draws a study of a file, and the button that opens it.

    Args:
        study: the study in the file.
    """
    st.markdown(f"**{literal(study.document.name or 'Study')}**")
    st.caption(literal(told_of(study)))
    if was_clicked("Open it", type="primary", key="scenarios_open_file", icon=":material/open_in_full:"):
        st.session_state[OWN_TEXT] = document_of(study)  # in case it is too long for a link
        _open_page({"codesign_study": OWN, "codesign_own": packed_study(study), "codesign_design": None})


def _open_page(parameters: dict[str, str | None]) -> None:
    there = state.before_switching(lambda: state.set_url_values(parameters), list(parameters))
    st.switch_page(page_links.target(PAGE), query_params=there)
