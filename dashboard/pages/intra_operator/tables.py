"""Tables of the page: every vector with its files, and what is published beside what is computed."""

from __future__ import annotations

import json
from typing import Final

import pandas as pd
import streamlit as st

from dashboard.charts.elements import markup
from dashboard.pages.intra_operator.inputs import Question
from dashboard.widgets.controls import segments
from dashboard.widgets.tables import height_of
from dashboard.words.numbers import counted
from engine.planners.intra_operator import IntraOperatorPlan, search, vector_volumes
from engine.planners.intra_operator.names import MIXED
from engine.planners.intra_operator.published import MEASURED_ON, MEASURED_VECTORS, RUNS, Run

__all__ = ["json_text", "published_table", "vectors_csv", "vectors_table"]

GIB: Final = 2.0**30
SHOWN: Final = {"fits": "That fit", "all": "All", "named": "With a name"}
MOST: Final = 1000
A100: Final = {"matrix_rate": 83.8e12, "bandwidth": 20.65e9}


def vectors_csv(plan: IntraOperatorPlan) -> str:
    """Returns every vector as CSV, with units in the names; a vector is its strategies with commas."""
    table = plan.vectors.assign(vector=[",".join(map(str, each)) for each in plan.vectors["vector"]])
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
        with st.popover("Export", icon=":material/download:", help="Every vector and the chosen plan as files."):
            for label, name, mime, content in (
                ("Vectors (CSV)", "vectors.csv", "text/csv", lambda: vectors_csv(plan)),
                ("Plan (JSON)", "plan.json", "application/json", lambda: json_text(plan)),
            ):
                st.download_button(label, content, name, mime, key=f"intra_operator_{name}", on_click="ignore",
                                   icon=":material/download:", type="tertiary")  # fmt: skip
    rows = table.sort_values(["fits", "seconds"], ascending=[False, True], kind="stable")
    rows = {"fits": rows[rows["fits"]], "all": rows, "named": rows[rows["solution"] != MIXED]}[which]
    shown = pd.DataFrame({
        "vector": [",".join(map(str, each)) for each in rows["vector"]], "solution": rows["solution"],
        "step, ms": rows["seconds"] * 1e3, "collectives, ms": rows["communication_seconds"] * 1e3,
        "volume, GB": rows["volume"] / 1e9, "all-reduce, GB": rows["all_reduce"] / 1e9,
        "all-gather, GB": rows["all_gather"] / 1e9, "all-to-all, GB": rows["all_to_all"] / 1e9,
        "memory, GiB": rows["memory"] / GIB, "why not": _why_not(rows, plan.memory_limit),
    }).head(MOST)  # fmt: skip
    if which == "fits":
        shown = shown.drop(columns=["why not"])
    config = {name: st.column_config.NumberColumn(name, format="%.4g") for name in map(str, shown) if ", " in name}
    st.dataframe(
        shown, hide_index=True, height=height_of(len(shown), 430), column_config=config, key="intra_operator_vectors",
        alt="Every vector with its solution, times, volumes and memory.",
    )  # fmt: skip
    if len(rows) > MOST:
        st.markdown(f"The first {MOST:,} of {len(rows):,}; the files have all.")


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
        st.markdown(
            "Volumes of GPT F, batch 16, two layers. They are **not reproduced** but for the third vector: the others "
            "published are about 1.57 times what the state machine of Alpa’s edges counts, probably by conversions "
            "inside GELU and norms. The order of the best two is the same."
        )
    with right:
        runs = pd.DataFrame([_run(each) for each in RUNS])
        st.dataframe(runs, hide_index=True, height=height_of(len(runs)), placeholder="–", key="intra_operator_runs",
                     alt="Published runs with their devices, and the step computed here.")  # fmt: skip
        st.markdown(
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
        "solution": "" if chosen is None or devices is None else chosen.solution,
    }  # fmt: skip

