"""The table of every vector, and the plan as files."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from typing import Any, Final

import numpy as np
import pandas as pd
import streamlit as st

from dashboard.charts.elements import markup
from dashboard.jobs.server import explorations
from dashboard.link import state
from dashboard.link.fields import LinkField
from dashboard.pages.intra_operator.link import LIKE
from dashboard.widgets.clicks import was_clicked
from dashboard.widgets.controls import given, key_for
from dashboard.widgets.file_download import draw_download
from dashboard.widgets.link_fields import draw_segments
from dashboard.widgets.tables import height_of
from dashboard.words.markdown import literal
from dashboard.words.strategies import matches, vector_text
from engine.planners.contract import PlanError
from engine.planners.intra_operator import IntraOperatorPlan
from engine.planners.intra_operator.names import MIXED
from engine.planners.intra_operator.records import VectorRecords
from engine.reproductions.cfp.text_forms import TEXT_FORMS, log_text
from engine.store import StoreError
from hardware import GIB

__all__ = ["json_text", "vectors_csv", "vectors_table"]

FORMS: Final = dict(
    zip(TEXT_FORMS, ("Blocks and segments", "Vectors of segments", "Chosen plan", "All vectors"), strict=True)
)
"""Text form of a log -> its label."""
MOST: Final = 1000
COLUMNS: Final = {
    "step": ("step, ms", "Time of a step.", 74),
    "collectives": ("comm., ms", "Of it collectives.", 84),
    "memory": ("GiB", "Memory of a device.", 60),
    "volume": ("GB", "Volume of all collectives.", 60),
    "reduce": ("AR, GB", "All-reduce.", 66),
    "gather": ("AG, GB", "All-gather.", 66),
    "exchange": ("A2A, GB", "All-to-all.", 72),
    "scatter": ("RS, GB", "Reduce-scatter.", 66),
}
"""Column -> header, help, width [px]."""


def vectors_csv(plan: IntraOperatorPlan) -> str:
    """Returns every vector as CSV, with units in the names; a vector is its strategies with commas."""
    table = plan.vectors.assign(vector=[vector_text(each) for each in plan.vectors["vector"]])
    return table.rename(columns={"volume": "volume_bytes", "memory": "memory_bytes"}).to_csv(index=False)


def json_text(plan: IntraOperatorPlan) -> str:
    """Returns the plan as JSON: choice, counted sizes, every vector, and at most a thousand points of the frontier."""
    return json.dumps(
        {
            "model": plan.model,
            "mesh": plan.mesh.document(),
            "memory_limit": plan.memory_limit,
            "tflop": plan.tflop,
            "chosen": None if plan.chosen is None else plan.chosen.document(),
            "infeasible": plan.infeasible,
            "batch": plan.batch,
            "counted": asdict(plan.widths),
            "vectors": plan.vectors.to_dict("records"),
            "frontier": plan.some_of_frontier().to_dict("records"),
            "exactness": plan.exactness,
            "notes": list(plan.notes),
        },
        indent=1,
    )


def _plan_log(plan: IntraOperatorPlan, form: str) -> str:
    """Return a plan in a text form, or the reason why it has none."""
    try:
        return log_text(plan, form)
    except PlanError as problem:
        return f"{problem}\n"


def _draw_keep_button(plan: IntraOperatorPlan) -> None:
    """Draw a button that keeps every vector in the store, if there is a store."""
    store = explorations().store
    if store is None:
        return
    if was_clicked(
        "Keep in the store",
        icon=":material/database:",
        type="tertiary",
        key="intra_operator_keep",
        help="As rows of the table keyed_intra_operator of the server’s DuckDB file, for SQL.",
    ):
        try:
            new = VectorRecords(store).add(plan)
        except StoreError as problem:
            st.warning(literal(str(problem)), icon=":material/error:")
            return
        st.caption(f"{new:,} vectors kept." if new else "All of them are in the store already.")


def vectors_table(plan: IntraOperatorPlan, fields: Mapping[str, LinkField]) -> None:
    """Draws the chosen vectors, with downloads."""
    table, which, like = plan.vectors, fields["shown"].value, fields["like"].value
    possible = int((table["reason"] == "").sum())
    st.html(markup.head("Every vector", f"{possible:,} of {len(table):,} possible, {int(table['fits'].sum()):,} fit"))
    with st.container(horizontal=True, gap="small", vertical_alignment="bottom"):
        draw_segments(fields["shown"])
        _draw_pattern(fields["like"])
        with st.popover("Export", icon=":material/download:", help="Every vector and the chosen plan as files."):
            files: list[tuple[str, str, str, Callable[[], str]]] = [
                ("Vectors (CSV)", "vectors.csv", "text/csv", partial(vectors_csv, plan)),
                ("Plan (JSON)", "plan.json", "application/json", partial(json_text, plan)),
            ]
            if plan.mesh.outer is None and plan.chosen is not None:
                files += [
                    (f"{words} as CFP prints it (log)", f"{form}.log", "text/plain", partial(_plan_log, plan, form))
                    for form, words in FORMS.items()
                ]
            for label, name, mime, content in files:
                draw_download(
                    label,
                    content,
                    name,
                    mime,
                    key=f"intra_operator_{name}",
                )
            _draw_keep_button(plan)
    rows = table.sort_values(["fits", "seconds"], ascending=[False, True], kind="stable")
    rows = {"fits": rows[rows["fits"]], "all": rows, "named": rows[rows["solution"] != MIXED]}[which]
    rows = rows[np.array([matches(vector_text(each), like) for each in rows["vector"]], dtype=bool)]
    shown = pd.DataFrame(
        {
            "vector": [vector_text(each) for each in rows["vector"]],
            "solution": rows["solution"],
            "step": rows["seconds"] * 1e3,
            "collectives": rows["communication_seconds"] * 1e3,
            "memory": rows["memory"] / GIB,
            "volume": rows["volume"] / 1e9,
            "reduce": rows["all_reduce"] / 1e9,
            "gather": rows["all_gather"] / 1e9,
            "exchange": rows["all_to_all"] / 1e9,
            **({"scatter": rows["reduce_scatter"] / 1e9} if "reduce_scatter" in rows else {}),
            "reason": _why_not(rows, plan.memory_limit),
        }
    ).head(MOST)
    if which == "fits":
        shown = shown.drop(columns=["reason"])
    config: dict[str, Any] = {
        name: st.column_config.NumberColumn(label, help=help, format="%.4g", width=width)
        for name, (label, help, width) in COLUMNS.items()
    }
    longest = max(map(len, shown["vector"]), default=0)
    config["vector"] = st.column_config.TextColumn(width=30 + 6 * longest)
    config["solution"] = st.column_config.TextColumn(width=166)
    config["reason"] = st.column_config.TextColumn("why not", width=320)
    st.dataframe(
        shown,
        hide_index=True,
        height=height_of(len(shown), 430),
        column_config=config,
        key="intra_operator_vectors",
        alt="Every vector with its solution, times, volumes and memory.",
    )
    if len(rows) > MOST:
        st.caption(f"The first {MOST:,} of {len(rows):,}; the files have all.")


def _draw_pattern(field: LinkField) -> None:
    """Draw the field for a pattern of vectors."""
    key = key_for(f"_{field.parameter}", field.value)

    def changed() -> None:
        new = re.sub(r"[^\d*,]", "", str(given(key)))
        state.set_url_value(field.parameter, new if new and LIKE.fullmatch(new) else None)

    st.text_input(
        "Vectors like",
        field.value,
        key=key,
        on_change=changed,
        max_chars=40,
        width=130,
        placeholder="0,2,*,*",
        label_visibility="collapsed",
        help=field.declared.help,
    )


def _why_not(rows: pd.DataFrame, limit: float | None) -> list[str]:
    over = rows["memory"] - (float("inf") if limit is None else limit)
    return [
        str(reason) or (f"{much / GIB:.3g} GiB too much" if much > 0 else "")
        for reason, much in zip(rows["reason"], over, strict=True)
    ]
