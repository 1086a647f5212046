"""The editor of a fleet: tables of pools, jobs and services, demand by hour as bars, and the whole document."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

import pandas as pd
import streamlit as st

from dashboard.charts.plans.fleet import demand_by_hour
from dashboard.files.fleet_tables import (
    COLUMNS,
    demand_table,
    document_of_tables,
    list_titles,
    read_demand_file,
    table_of,
    with_demand,
)
from dashboard.link import state
from dashboard.link.catalogue import list_model_titles, list_system_titles
from dashboard.pages.fleet.link import OWN, OWN_PARAMETER, PAGE_NAME
from dashboard.widgets.chart import show
from dashboard.widgets.clicks import was_clicked
from dashboard.widgets.own_table import KEPT, draw_own_table, read_table, use_own_text
from dashboard.widgets.upload import file_field
from dashboard.words.markdown import literal
from engine.fleet.demand import DAY_HOURS, WEEK_HOURS
from engine.planners.contract import PlanError
from engine.questions.documents.fleet import FleetQuestion

__all__ = ["draw_editor"]

MOST_MEGABYTES: Final = 1
LARGEST: Final = 200_000
"""Longest document [characters]."""
TABS: Final = {"pools": "Pools", "jobs": "Jobs", "services": "Services"}
HELP: Final = {
    "Tokens": "To train. Empty for a job that goes on; reinforcement learning has steps instead.",
    "RL steps": "Of reinforcement learning; its other terms are in the JSON.",
    "After": "Name of the job that must end first.",
    "Elastic": "May change its size, or pause, every hour.",
    "Weight": "Worth of its progress beside other jobs'.",
    "Spare nodes": "Empty: as many as cover failures in 99 % of the time.",
    "USD/GPU-h": "Empty: the middle of the recorded prices.",
    "Start-up, s": "Time until a new replica serves.",
}
OWN_CHOICE: Final = {f"{PAGE_NAME}_example": OWN}


def draw_editor(
    question: FleetQuestion | None, text: str, mode: str, read_fleet_text: Callable[[str], FleetQuestion]
) -> None:
    """Draw the editor of the fleet; a use of it writes the document into the link.

    Args:
        question: of the document; None if it has a problem, which the JSON shows.
        text: the document.
        mode: the theme.
        read_fleet_text: returns the question of a document, or raises `PlanError`.
    """
    editor = st.expander("Edit the fleet", icon=":material/edit:", key="fleet_editor", on_change="rerun")
    if not editor.open:
        return
    with editor:
        try:
            if question is None:
                _draw_document(text, read_fleet_text)
            else:
                *parts, demand, whole = st.tabs([*TABS.values(), "Demand", "JSON"])
                document = json.loads(text)
                tables = {}
                for place, part in zip(parts, TABS, strict=True):
                    with place:
                        tables[part] = _draw_table(part, document, text)
                changed = document_of_tables(document, tables)
                with demand:
                    changed = _draw_demand(question, document, changed, text, mode, read_fleet_text)
                with whole:
                    _draw_document(text, read_fleet_text)
                _draw_use(document, changed, read_fleet_text)
        except PlanError as problem:
            st.error(literal(str(problem)), icon=":material/error:")
        st.caption(KEPT)


def _draw_table(part: str, document: Mapping[str, Any], text: str) -> pd.DataFrame:
    rows = list(document.get(part) or [])
    table = table_of(part, rows)
    settings: dict[str, Any] = {}
    for field, (label, kind) in COLUMNS[part].items():
        if field in ("model", "system"):
            known = list_model_titles() if field == "model" else list_system_titles()
            options = list(dict.fromkeys([*table[label].tolist(), *known]))
            settings[label] = st.column_config.SelectboxColumn(label, options=options, required=True)
        elif kind is bool:
            settings[label] = st.column_config.CheckboxColumn(label, help=HELP.get(label), default=False)
        elif kind is str:
            settings[label] = st.column_config.TextColumn(label, help=HELP.get(label), max_chars=100)
        else:
            form = "%,d" if kind is int else "compact" if label == "Tokens" else "%g"
            settings[label] = st.column_config.NumberColumn(label, help=HELP.get(label), min_value=0, format=form)
    return st.data_editor(
        table,
        hide_index=True,
        num_rows="dynamic",
        placeholder="",
        column_config=settings,
        key=f"fleet_{part}_{hash(text)}",
    )


def _draw_demand(
    question: FleetQuestion,
    document: Mapping[str, Any],
    changed: dict[str, Any],
    text: str,
    mode: str,
    read_fleet_text: Callable[[str], FleetQuestion],
) -> dict[str, Any]:
    """Draw bars and numbers of the demand by hour; return the document with what was changed."""
    if not question.services:
        st.markdown("A service with a demand is added in the table *Services*, or in the JSON.")
        return changed
    titles = list_titles(list(document["services"]))
    is_long = any(len(service.demand or ()) == WEEK_HOURS for service in question.services)
    hours = st.segmented_control(
        "Hours",
        [DAY_HOURS, WEEK_HOURS],
        format_func=lambda each: "Day" if each == DAY_HOURS else "Week",
        default=WEEK_HOURS if is_long else DAY_HOURS,
        key=f"fleet_hours_{hash(text)}",
        required=True,
    )
    table = demand_table(question, titles, int(hours or DAY_HOURS))
    picture, numbers = st.columns([3, 2], gap="medium")
    with numbers:
        edited = st.data_editor(
            table,
            hide_index=True,
            disabled=["Hour"],
            height=300,
            key=f"fleet_demand_{hours}_{hash(text)}",
            column_config={
                title: st.column_config.NumberColumn(
                    title, help="Requests per second, without headroom.", min_value=0, format="%.4g", required=True
                )
                for title in titles
            },
        )
    with picture:
        show(demand_by_hour({title: edited[title].tolist() for title in titles}, mode), "fleet_demand_chart")
        _draw_demand_file(document, titles, read_fleet_text)
    services = list(changed.get("services") or [])
    for place, title in enumerate(titles):
        if place < len(services) and edited[title].tolist() != table[title].tolist():
            changed = with_demand(changed, place, [float(each) for each in edited[title]])
    return changed


def _draw_demand_file(
    document: Mapping[str, Any], titles: list[str], read_fleet_text: Callable[[str], FleetQuestion]
) -> None:
    """Draw the field of a file with the demand of one service."""
    with st.container(horizontal=True, gap="small", vertical_alignment="bottom"):
        title = st.selectbox("Service", titles, key="fleet_demand_of", width=220) if len(titles) > 1 else titles[0]
        file = file_field(
            "Demand as CSV",
            ("csv",),
            "fleet_demand_file",
            MOST_MEGABYTES,
            help="Columns hour and requests_per_second in 24 or 168 rows; or time and requests_per_second.",
        )
    if file is None or st.session_state.get("_fleet_demand_seen") == file.file_id:
        return
    st.session_state["_fleet_demand_seen"] = file.file_id
    demand = read_table(read_demand_file, file.getvalue())
    _use_document(with_demand(document, titles.index(str(title)), demand), read_fleet_text)


def _draw_document(text: str, read_fleet_text: Callable[[str], FleetQuestion]) -> None:
    st.markdown("Pools, jobs and services with all their fields, in the form that the guide explains.")
    written = st.text_area("Fleet (JSON)", text, key=f"fleet_draft_{hash(text)}", height=320, max_chars=LARGEST)
    if was_clicked("Use this JSON", key="fleet_use"):
        read_fleet_text(written)
        _use_text(written)
        st.rerun()
    draw_own_table("Open a fleet", OWN_PARAMETER, MOST_MEGABYTES, read_fleet_text, ("json",), OWN_CHOICE)


def _draw_use(
    document: Mapping[str, Any], changed: dict[str, Any], read_fleet_text: Callable[[str], FleetQuestion]
) -> None:
    is_changed = changed != document
    if was_clicked("Use the changed tables", type="primary", key="fleet_use_tables", disabled=not is_changed):
        _use_document(changed, read_fleet_text)


def _use_document(document: Mapping[str, Any], read_fleet_text: Callable[[str], FleetQuestion]) -> None:
    written = json.dumps(document, indent=2)
    read_fleet_text(written)
    _use_text(written)
    st.rerun()


def _use_text(text: str) -> None:
    use_own_text(OWN_PARAMETER, text)
    state.set_url_values(OWN_CHOICE)
