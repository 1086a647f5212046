"""Measured points: a log or table of the user next to predictions, rates fitted to it, and published figures."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pandas as pd
import streamlit as st

from dashboard.charts.elements import markup
from dashboard.charts.plans.intra_operator import Measured
from dashboard.compat.caches import remembered
from dashboard.compat.types import Place
from dashboard.link import state
from dashboard.pages.intra_operator.inputs import OWN, IntraOperatorInputs
from dashboard.widgets.own_table import KEPT, OwnTable, draw_own_table, parse_own_table, read_table
from dashboard.widgets.tables import height_of
from dashboard.words.markdown import literal
from dashboard.words.numbers import counted, plain, signed_percent
from dashboard.words.strategies import vector_text
from engine.planners.contract import PlanError
from engine.planners.intra_operator import (
    FittedRates,
    IntraOperatorPlan,
    evaluate_vectors,
    fit_rates,
    measured_points_of,
    mesh_of,
    overlay,
    search,
)
from engine.questions.plans import planned_sizes
from engine.reproductions.alpa.suite_models import is_suite
from engine.reproductions.cfp.comparison import published_runs, published_volumes
from engine.reproductions.cfp.published import MEASURED_ON, MEASURED_VECTORS
from hardware import GIB
from models import names as model_names

__all__ = ["draw_measured", "draw_published", "measured_marks", "parse_log", "upload"]

MOST_MEGABYTES: Final = 4
A100: Final = {"matrix_rate": 83.8e12, "bandwidth": 20.65e9}


def parse_log() -> OwnTable:
    """Parse the log of measured points in the link."""
    return parse_own_table("intra_operator_log", "log", measured_points_of)


def upload(place: Place, asked: IntraOperatorInputs, log: OwnTable) -> pd.DataFrame | None:
    """Draw the field for a log; return the measured points of the log, or None.

    Raises `engine.planners.contract.PlanError` for an invalid file, or an unknown model in it.
    """
    with place.popover("Measured", icon=":material/upload_file:", help="Measured points of your own."):
        st.caption(
            "A log as CFP and Alpa print it, or CSV or JSON with vector and seconds, and where wanted volume, memory, "
            f"communication_seconds and compute_seconds; up to {MOST_MEGABYTES} MB. {KEPT}"
        )
        draw_own_table(
            "Log or table", "intra_operator_log", MOST_MEGABYTES, measured_points_of, ("log", "txt", "csv", "json")
        )
    text = log.require()
    return None if text is None else complete_points(read_table(measured_points_of, text), asked)


def complete_points(points: pd.DataFrame, asked: IntraOperatorInputs) -> pd.DataFrame:
    """Returns points with model, batch, layers and devices filled in from the page if missing.

    Raises `engine.planners.contract.PlanError` for an unknown model.
    """
    name = asked.model if isinstance(asked.model, str) else asked.model.name
    known = {*model_names(), name}
    for model in points["model"].dropna().unique():
        if not (is_suite(model) or model in known):
            raise PlanError(f"There is no model {str(model)[:40]!r}: published ones are gpt A to I, moe A to I, llama.")
    fallback = {"model": name, "batch": asked.batch, "layers": asked.layers, "devices": asked.mesh.devices}
    filled = {each: points[each].where(points[each].notna(), value) for each, value in fallback.items()}
    return points.assign(**filled)


def measured_marks(asked: IntraOperatorInputs, found: IntraOperatorPlan, points: pd.DataFrame | None) -> list[Measured]:
    """Returns the measured points of the current question that have a volume and seconds of collectives.

    points: the user's own; None: those published by CFP.
    """
    here = {"model": asked.model, "batch": asked.batch, "layers": asked.layers, "devices": asked.mesh.devices}
    if points is None:
        counted_otherwise = (
            asked.mesh.outer is not None or asked.question.recompute != "none" or asked.question.accumulation > 1
        )
        if here != dict(MEASURED_ON) or counted_otherwise:
            return []
        rows: list[tuple[Any, float, float]] = [
            (each.vector, each.volume, math.nan if each.communication_seconds is None else each.communication_seconds)
            for each in MEASURED_VECTORS
        ]
    else:
        own = points[np.logical_and.reduce([points[name] == value for name, value in here.items() if name != "model"])]
        rows = list(zip(own["vector"], own["volume"], own["communication_seconds"], strict=True))
    length = len(found.vectors["vector"].iloc[0])
    return [
        Measured(vector_text(vector[:length]), float(volume), float(seconds))
        for vector, volume, seconds in rows
        if vector is not None and math.isfinite(volume) and math.isfinite(seconds)
    ]


def draw_measured(asked: IntraOperatorInputs, points: pd.DataFrame) -> None:
    """Draws measured points with their predictions, and the rates that fit them best."""
    with st.container(border=True, gap="xsmall"):
        st.html(markup.head("Measured and predicted", f"{counted(len(points), 'point')} of your file"))
        try:
            mesh = replace(asked.mesh, outer=None)
            table = overlay(points, mesh, **planned_sizes(asked.question))
        except PlanError as problem:
            st.warning(literal(str(problem)), icon=":material/error:")
            return
        errors = table["error"].dropna().to_numpy()
        vectors = ["" if each is None else vector_text(each) for each in table["vector"]]
        shown = pd.DataFrame(
            {
                "line": table["line"],
                "kind": table["kind"],
                "vector": vectors,
                "measured, s": table["seconds"],
                "predicted, s": table["predicted_seconds"],
                "error, %": 100 * table["error"],
                "collectives, s": table["communication_seconds"],
                "predicted collectives, s": table["predicted_communication_seconds"],
                "volume, GB": table["volume"] / 1e9,
                "computed, GB": table["predicted_volume"] / 1e9,
                "memory, GiB": table["memory"] / GIB,
                "predicted memory, GiB": table["predicted_memory"] / GIB,
            }
        )
        st.dataframe(
            shown.round(4),
            hide_index=True,
            height=height_of(len(shown), 360),
            placeholder="–",
            key="intra_operator_overlay",
            alt="Every measured point with its prediction.",
        )
        if len(errors):
            st.caption(
                literal(
                    f"Predicted against measured steps: {signed_percent(float(errors.mean()))} on average, "
                    f"at most {signed_percent(float(errors[np.abs(errors).argmax()]))}."
                )
            )
        _draw_fitted_rates(asked, points)


def _draw_fitted_rates(asked: IntraOperatorInputs, points: pd.DataFrame) -> None:
    """Draw the rates that fit the points best, with a button to use them."""
    try:
        fitted = fit_rates(points, **planned_sizes(asked.question))
    except PlanError as problem:
        st.caption(literal(str(problem)))
        return
    rates = [
        ("matrix rate", fitted.matrix_rate, 1e12, "TFLOP/s"),
        ("ring", fitted.bandwidth, 1e9, "GB/s"),
        ("all-to-all", fitted.all_to_all_bandwidth, 1e9, "GB/s"),
    ]
    told = [f"{name} {plain(value / unit)} {word}" for name, value, unit, word in rates if value is not None]
    st.caption(literal(" ".join([f"Rates that fit the points best: {', '.join(told)}.", *fitted.notes])))
    st.button("Use these rates", icon=":material/check:", key="intra_operator_fit", on_click=_use_rates, args=(fitted,))


def _use_rates(fitted: FittedRates) -> None:
    values = (
        ("rate", fitted.matrix_rate, 1e12),
        ("bandwidth", fitted.bandwidth, 1e9),
        ("exchange", fitted.all_to_all_bandwidth, 1e9),
    )
    state.set_url_values(
        {
            "intra_operator_system": OWN,
            "intra_operator_limit": None,
            **{
                f"intra_operator_{name}": f"{value / unit:.4f}"
                for name, value, unit in values
                if value is not None and 1e-3 < value / unit < 9_999_999
            },
        }
    )


def draw_published() -> None:
    """Draws published volumes and runs next to computed ones."""
    st.html(markup.head("Published and computed", "CFP on A100; rates fitted to its first and third vector"))
    left, right = st.columns(2, gap="medium")
    volumes = _published_volumes()
    shown = pd.DataFrame(
        {
            "vector": [vector_text(each) for each in volumes["vector"]],
            "published, GB": volumes["published_volume"] / 1e9,
            "computed, GB": volumes["counted_volume"] / 1e9,
            "computed / published": volumes["ratio"],
            "collectives, s": volumes["communication_seconds"],
            "GB/s": volumes["bytes_per_second"] / 1e9,
            "reproduced": ["yes" if each else "no" for each in volumes["reproduced"]],
        }
    )
    with left:
        st.dataframe(
            shown.round(4),
            hide_index=True,
            height=height_of(len(shown)),
            placeholder="–",
            key="intra_operator_published",
            alt="Published and computed volumes of four vectors.",
        )
        st.caption(
            "Volumes of GPT F, batch 16, two layers. **Only the third is reproduced**; the other published ones are "
            "about 1.57 times ours, probably because of conversions inside GELU and norms. The order of the best two "
            "is the same. The last vector is inferred."
        )
    with right:
        runs = pd.DataFrame(_compute_published_runs())
        st.dataframe(
            runs,
            hide_index=True,
            height=height_of(len(runs)),
            placeholder="–",
            key="intra_operator_runs",
            alt="Published runs with their devices, and the step computed here.",
        )
        st.caption(
            "Throughput is of all devices together, as published: Alpa’s 158 TFLOP/s of eight devices are 19.7 of "
            "each, CFP’s 203 of four are 50.8. Two predicted steps are no validation. Expert parallelism is best here "
            "because the model assumes an all-to-all as fast as a ring; on these machines it was slower. CFP states "
            "up to 1.51 times Alpa’s throughput for GPT, 1.31 for LLaMA, 3.43 for mixtures of experts."
        )


@remembered(1)
def _published_volumes() -> pd.DataFrame:
    return published_volumes()


@remembered(1)
def _compute_published_runs() -> list[dict[str, object]]:
    """Return the published runs, each with its computed plan; the same for all sessions."""
    return [_compute_published_run(each) for each in published_runs().to_dict("records")]


def _compute_published_run(run: dict[Any, Any]) -> dict[str, object]:
    mesh = mesh_of({**A100, "devices": int(run["devices"])})
    found = search(run["model"], mesh, batch=int(run["batch"]), layers=int(run["layers"]))
    chosen, solution = found.chosen, run["solution"]
    own = None
    if solution is not None:
        vectors = [tuple(solution[at : at + 4]) for at in range(0, len(solution), 4)]
        own = evaluate_vectors(run["model"], mesh, vectors, batch=int(run["batch"]), layers=int(run["layers"]))
    return {
        "planner": run["system"],
        "model": f"{run['model']}, batch {run['batch']}, {run['layers']} layers",
        "devices": run["devices"],
        "step, s": round(run["seconds"], 4),
        "TFLOP/s": round(run["tflops"], 2),
        "of each": round(run["tflops_per_device"], 2),
        "published plan": "" if solution is None else vector_text(solution[:8]),
        "computed of it, s": None if own is None else round(own.seconds, 4),
        "best computed": "" if chosen is None else chosen.solution,
        "of that, s": None if chosen is None else round(chosen.seconds, 4),
    }
