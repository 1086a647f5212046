"""Tables of the page: every vector with its files, and what is published beside what is computed."""

from __future__ import annotations

import json
import re
from typing import Any, Final

import numpy as np
import pandas as pd
import streamlit as st

from dashboard.charts.elements import markup
from dashboard.link import state
from dashboard.pages.intra_operator.inputs import Question
from dashboard.widgets.controls import given, key_for, segments
from dashboard.widgets.tables import height_of
from dashboard.words.numbers import counted
from dashboard.words.strategies import matches, vector_text
from engine.planners.intra_operator import IntraOperatorPlan, search, vector_volumes
from engine.planners.intra_operator.names import MIXED
from engine.planners.intra_operator.published import MEASURED_ON, MEASURED_VECTORS, RUNS, Run

__all__ = ["json_text", "published_table", "vectors_csv", "vectors_table"]

GIB: Final = 2.0**30
SHOWN: Final = {"fits": "That fit", "all": "All", "named": "With a name"}
MOST: Final = 1000
LIKE: Final = re.compile(r"(\d{1,2}|\*)(,(\d{1,2}|\*)){0,31}")
"""A pattern of vectors: strategies or stars."""
COLUMNS: Final = {
    "step": ("step, ms", "Time of a step.", 74), "collectives": ("comm., ms", "Of it collectives.", 84),
    "memory": ("GiB", "Memory of a device.", 60), "volume": ("GB", "Volume of all collectives.", 60),
    "reduce": ("AR, GB", "All-reduce.", 66), "gather": ("AG, GB", "All-gather.", 66),
    "exchange": ("A2A, GB", "All-to-all.", 72), "scatter": ("RS, GB", "Reduce-scatter.", 66),
}  # fmt: skip
"""Column -> header, help, width [px]."""
A100: Final = {"matrix_rate": 83.8e12, "bandwidth": 20.65e9}


def vectors_csv(plan: IntraOperatorPlan) -> str:
    """Returns every vector as CSV, with units in the names; a vector is its strategies with commas."""
    table = plan.vectors.assign(vector=[vector_text(each) for each in plan.vectors["vector"]])
    return table.rename(columns={"volume": "volume_bytes", "memory": "memory_bytes"}).to_csv(index=False)


def json_text(plan: IntraOperatorPlan) -> str:
    """Returns the plan as JSON: what is chosen, every vector, the frontier."""
    return json.dumps({
        "model": plan.model, "mesh": plan.mesh.document(), "memory_limit": plan.memory_limit, "tflop": plan.tflop,
        "chosen": None if plan.chosen is None else plan.chosen.document(), "infeasible": plan.infeasible,
        "vectors": plan.vectors.to_dict("records"), "frontier": plan.frontier.to_dict("records"),
        "notes": list(plan.notes),
    }, indent=1)  # fmt: skip


def vectors_table(plan: IntraOperatorPlan) -> None:
    """Draws the vectors, those that are asked for, with downloads."""
    table = plan.vectors
    possible = int((table["reason"] == "").sum())
    st.html(markup.head("Every vector", f"{possible:,} of {len(table):,} can be, {int(table['fits'].sum()):,} fit"))
    with st.container(horizontal=True, gap="small", vertical_alignment="bottom"):
        which = segments("Vectors", SHOWN, "intra_operator_shown")
        like = _pattern()
        with st.popover("Export", icon=":material/download:", help="Every vector and the chosen plan as files."):
            for label, name, mime, content in (
                ("Vectors (CSV)", "vectors.csv", "text/csv", lambda: vectors_csv(plan)),
                ("Plan (JSON)", "plan.json", "application/json", lambda: json_text(plan)),
            ):
                st.download_button(label, content, name, mime, key=f"intra_operator_{name}", on_click="ignore",
                                   icon=":material/download:", type="tertiary")  # fmt: skip
    rows = table.sort_values(["fits", "seconds"], ascending=[False, True], kind="stable")
    rows = {"fits": rows[rows["fits"]], "all": rows, "named": rows[rows["solution"] != MIXED]}[which]
    rows = rows[np.array([matches(vector_text(each), like) for each in rows["vector"]], dtype=bool)]
    shown = pd.DataFrame({
        "vector": [vector_text(each) for each in rows["vector"]], "solution": rows["solution"],
        "step": rows["seconds"] * 1e3, "collectives": rows["communication_seconds"] * 1e3,
        "memory": rows["memory"] / GIB, "volume": rows["volume"] / 1e9, "reduce": rows["all_reduce"] / 1e9,
        "gather": rows["all_gather"] / 1e9, "exchange": rows["all_to_all"] / 1e9,
        **({"scatter": rows["reduce_scatter"] / 1e9} if "reduce_scatter" in rows else {}),
        "reason": _why_not(rows, plan.memory_limit),
    }).head(MOST)  # fmt: skip
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
        shown, hide_index=True, height=height_of(len(shown), 430), column_config=config, key="intra_operator_vectors",
        alt="Every vector with its solution, times, volumes and memory.",
    )  # fmt: skip
    if len(rows) > MOST:
        st.caption(f"The first {MOST:,} of {len(rows):,}; the files have all.")


def _pattern() -> str:
    """Draws the field for a pattern of vectors; returns it, empty for all."""
    value = state.url_value("intra_operator_like", "", LIKE)
    key = key_for("_intra_operator_like", value)

    def changed() -> None:
        new = re.sub(r"[^\d*,]", "", str(given(key)))
        state.set_url_value("intra_operator_like", new if LIKE.fullmatch(new) else None)

    st.text_input(
        "Vectors like", value, key=key, on_change=changed, max_chars=40, width=130, placeholder="0,2,*,*",
        label_visibility="collapsed", help="Strategies of the blocks in order; * stands for any.",
    )  # fmt: skip
    return value


def _why_not(rows: pd.DataFrame, limit: float | None) -> list[str]:
    over = rows["memory"] - (float("inf") if limit is None else limit)
    return [
        str(reason) or (f"{much / GIB:.3g} GiB too much" if much > 0 else "")
        for reason, much in zip(rows["reason"], over, strict=True)
    ]


def published_table(asked: Question) -> None:
    """Draws published volumes and runs beside what is computed of the same."""
    st.html(markup.head("Published beside computed", "CFP on four A100; rates fitted to its first and third row"))
    left, right = st.columns(2, gap="medium")
    model, batch, layers, devices = (MEASURED_ON[name] for name in ("model", "batch", "layers", "devices"))
    volumes = vector_volumes(str(model), batch=int(batch), layers=int(layers), devices=int(devices))
    ours = volumes.set_index("vector")["volume"]
    rows = [
        {"vector": ",".join(map(str, each.vector)), "published, GB": each.volume / 1e9,
         "computed, GB": float(ours.loc[[each.vector]].iloc[0]) / 1e9,
         "computed / published": float(ours.loc[[each.vector]].iloc[0]) / each.volume,
         "collectives, s": each.communication_seconds,
         "GB/s": None if each.communication_seconds is None else each.volume / each.communication_seconds / 1e9}
        for each in MEASURED_VECTORS
    ]  # fmt: skip
    with left:
        st.dataframe(pd.DataFrame(rows).round(4), hide_index=True, height=height_of(len(rows)), placeholder="–",
                     key="intra_operator_published", alt="Published and computed volumes of four vectors.")  # fmt: skip
        st.caption(
            "Volumes of GPT F, batch 16, two layers. They are **not reproduced** but for the third vector: the others "
            "published are about 1.57 times what the state machine of Alpa’s edges counts, probably by conversions "
            "inside GELU and norms. The order of the best two is the same."
        )
    with right:
        runs = pd.DataFrame([_run(each) for each in RUNS])
        st.dataframe(runs, hide_index=True, height=height_of(len(runs)), placeholder="–", key="intra_operator_runs",
                     alt="Published runs with their devices, and the step computed here.")  # fmt: skip
        st.caption(
            "Throughput is that of all devices together; on twice as many, Alpa’s 158 TFLOP/s are 19.7 of each device, "
            "CFP’s 203 are 50.8. One point predicted is no validation."
        )


def _run(run: Run) -> dict[str, object]:
    devices = run.devices
    found = search(run.model, {**A100, "devices": devices or 4}, batch=run.batch, layers=run.layers)
    chosen = found.chosen
    rate = found.tflop / run.seconds
    return {
        "planner": run.system, "model": f"{run.model}, batch {run.batch}, {counted(run.layers, 'layer')}",
        "devices": devices, "step, s": run.seconds, "TFLOP/s": round(rate, 2),
        "of each": None if devices is None else round(rate / devices, 2),
        "computed, s": None if chosen is None or devices is None else round(chosen.seconds, 4),
        "published vectors": " ".join(",".join(map(str, each)) for each in dict.fromkeys(run.vectors)),
        "computed": "" if chosen is None or devices is None else chosen.solution,
    }  # fmt: skip

