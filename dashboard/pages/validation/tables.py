"""Tables of the Validation page: worst runs, errors per source and accelerator, unsupported runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import pandas as pd
import streamlit as st

from dashboard.charts.accuracy.releases import release_errors
from dashboard.charts.elements import markup
from dashboard.link.fields import LinkField
from dashboard.pages.validation.queries import EVERY, Filters, PredictedRuns, error_rows, memory_rows
from dashboard.pages.validation.run import layout_words
from dashboard.widgets.chart import show
from dashboard.widgets.link_fields import draw_segments, draw_switch
from dashboard.widgets.tables import ROW, height_of, signed
from dashboard.words.numbers import count, signed_percent
from engine.validation import REASONS, stored_releases
from engine.validation.serving.nearest_servers import SERVER_SOURCE, count_server_errors
from hardware import load_calibration

__all__ = ["draw_errors", "draw_releases", "draw_servers", "draw_unsupported", "draw_worst_runs"]

WORST: Final = 200
LISTED: Final = 1_000

COLUMNS: Final = (
    ("rows", "Runs", 60, "localized", "Runs with a prediction and a measured time"),
    ("mean", "Mean, %", 70, "%.1f", "Mean of |calibrated / measured − 1|"),
    ("median", "Median", 66, "%.1f", "Median of |calibrated / measured − 1|"),
    ("p90", "90th", 58, "%.1f", "90th percentile of |calibrated / measured − 1|"),
    ("bias", "Bias", 60, None, "Median of calibrated / measured − 1; negative: predicted too fast"),
    ("within_10", "In 10 %", 66, "%.0f", "Share of runs within 10 %, in percent"),
    ("calculon_rows", "Calc. runs", 78, "localized", "Runs that Calculon's model can express"),
    ("calculon_mean", "Calc. mean", 84, "%.1f", "Mean error of Calculon's model (modelled, not calibrated) on those"),
    ("calculon_bias", "Calc. bias", 80, None, "Median signed error of Calculon's model"),
    ("same_rows_mean", "Ours there", 86, "%.1f", "Mean error of the calibrated model on the runs of Calculon's column"),
    ("tau", "Tau", 54, "%.2f", "Kendall's tau of layouts of one workload on one machine; empty without such groups"),
    ("regret", "Regret", 64, "%.1f", "How much slower the layout predicted best was than the measured best"),
    ("unsupported", "Not sup.", 72, "%d", "Counted runs without a prediction"),
    ("largest", "Largest, %", 80, "%.1f", "Largest error"),
)
"""Name, header, width [px], format and help of each column; columns without a format are written with their sign."""
RELEASED: Final = {
    "published runs, dense": "Dense",
    "published runs, mixtures of experts": "Experts",
    "vTrain single node": "One A100 node",
    "vTrain multi node": "512 A100s",
}
"""Sets of runs whose errors by release are shown, each with its name on screen."""
_FIRST: Final = re.compile(r"^(?:all|published)\b")
"""Beginning of the name of a set of runs; other names are sources."""
_ENGINES: Final = {"vllm": "vLLM", "sglang": "SGLang", "trtllm": "TensorRT-LLM"}
_SIGNED: Final = [name for name, _, _, form, _ in COLUMNS if form is None]


def _column_settings(names: list[str], first: str) -> dict[str, Any]:
    found: dict[str, Any] = {"name": st.column_config.TextColumn(first, width=300)}
    for name, label, width, form, help_text in COLUMNS:
        if name in names:
            found[name] = st.column_config.NumberColumn(label, format=form, help=help_text, width=width)
    return found


def draw_worst_runs(rows: pd.DataFrame, key: str, filters: Filters, picked: Callable[[pd.DataFrame], None]) -> None:
    """Draws the runs with the largest errors.

    key, filters: identify the rows. picked: called with the runs in the order of the table when one is chosen.
    """
    found, shown = _worst_runs(rows, key, filters)
    st.dataframe(
        signed(shown, ["error"]),
        hide_index=True,
        height=height_of(len(shown), 250),
        row_height=ROW,
        key="validation_worst",
        on_select=lambda: picked(found),
        selection_mode="single-row",
        alt=f"The {len(shown)} runs with the largest errors, worst first.",
        column_config={
            "error": st.column_config.NumberColumn(
                "Error, %", width=76, help="Calibrated over measured; negative: predicted too fast"
            ),
            "model": st.column_config.TextColumn("Model", width=160),
            "hardware": st.column_config.TextColumn("Accelerator", width=170),
            "gpus": st.column_config.NumberColumn("GPUs", format="%d", width=66),
            "layout": st.column_config.TextColumn("Layout", width=230),
            "measured": st.column_config.NumberColumn("Measured, s", format="%.3f", width=96),
            "predicted": st.column_config.NumberColumn("Calibrated, s", format="%.3f", width=100),
            "source": st.column_config.TextColumn("Source", width=250),
        },
    )


@st.cache_resource(show_spinner=False, max_entries=16)
def _worst_runs(_rows: pd.DataFrame, key: str, filters: Filters) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the runs with the largest errors, and their table; both are cached, so never change them."""
    order = _rows["error"].abs().sort_values(ascending=False, kind="stable").index[:WORST]
    found = _rows.loc[order]
    shown = pd.DataFrame(
        {
            "error": 100 * found["error"],
            "model": found["model"].where(found["model"] != "", found["id"]),
            "hardware": found["hardware"],
            "gpus": found["num_gpus"],
            "layout": [layout_words(row) for _, row in found.iterrows()],
            "measured": found["measured_step_time_s"],
            "predicted": found["predicted_step_time_s"],
            "source": found["source"],
        }
    )
    return found, shown


def draw_errors(checked: PredictedRuns, filters: Filters, fields: Mapping[str, LinkField]) -> None:
    """Draw errors per source and accelerator, ours and Calculon's; or errors of memory.

    Args:
        checked: runs with their predictions.
        filters: filters of the page.
        fields: fields of the page's link by name.
    """
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        scope = "of the step time, in percent: calibrated model and Calculon's model"
        st.html(markup.head("Errors per source and accelerator", scope))
        draw_segments(fields["errors"])
        kind = fields["errors"].value
        stored = checked.is_packaged and filters.family == EVERY
        calculon = stored
        if kind == "time" and not stored:
            draw_switch(fields["reference"])
            calculon = fields["reference"].value
    if kind == "memory":
        table = memory_rows(checked, filters)
        if not len(table):
            st.caption("No run here has both a measured and a modelled memory.")
            return
        st.dataframe(
            signed(table, _SIGNED),
            hide_index=True,
            key="validation_memory",
            row_height=ROW,
            height=height_of(len(table), 560),
            column_config=_column_settings(list(table.columns), "Memory"),
            alt=f"Errors of modelled memory for {len(table)} sources.",
        )
        st.caption("Memory of the fullest GPU is modelled, not calibrated; one factor for the framework's reserve.")
        return
    table = error_rows(checked, checked.key, filters, calculon)
    if not len(table):
        st.caption("No run here has both a prediction and a measured time.")
        return
    names = ["name", *(name for name, *_ in COLUMNS if name in table)]
    said = table["name"].str.removeprefix(", ")  # of runs that name no source
    table = table.assign(name=said.str.replace(_FIRST, lambda found: found[0].capitalize(), regex=True))
    st.dataframe(
        signed(table[names], _SIGNED),
        hide_index=True,
        key="validation_table",
        placeholder="–",
        column_config=_column_settings(names, "Source, accelerator"),
        height=height_of(len(table), 560),
        row_height=ROW,
        alt=f"Errors of the calibrated model for {len(table)} groups of runs.",
    )


def draw_releases(mode: str) -> None:
    """Draw the errors of the package's runs by release, as a chart and a table.

    Args:
        mode: theme, "light" or "dark".
    """
    table = stored_releases()
    st.html(markup.head("Errors by release", "mean error of the step time; a release is a new fit"))
    left, right = st.columns([1, 1.05], gap="medium")
    with left:
        show(release_errors(table, RELEASED, mode), "validation_releases_chart")
        st.caption("Open marks: fits without the source of the run, the error to expect of a new source.")
    rows = table[table["name"].isin(RELEASED)].sort_values("date", ascending=False, kind="stable")
    right.dataframe(
        rows.assign(name=rows["name"].map(RELEASED)),
        hide_index=True,
        key="validation_releases",
        height=height_of(len(rows), 300),
        row_height=ROW,
        alt=f"Errors by release: {rows['date'].nunique()} releases.",
        column_config={
            "date": st.column_config.TextColumn("Fitted on", width=100),
            "version": st.column_config.TextColumn("Version", width=70),
            "name": st.column_config.TextColumn("Runs", width=130),
            "rows": st.column_config.NumberColumn("Number", format="localized", width=70),
            "mean": st.column_config.NumberColumn("Mean, %", format="%.1f", width=76),
            "median": st.column_config.NumberColumn("Median", format="%.1f", width=70),
            "halves": st.column_config.NumberColumn(
                "Halves", format="%.1f", width=70, help="Mean error of fits without the half that has the run"
            ),
            "sources": st.column_config.NumberColumn(
                "Sources", format="%.1f", width=76, help="Mean error of fits without the source of the run"
            ),
        },
    )


def draw_unsupported(gone: pd.DataFrame, total: int) -> None:
    """Draws the runs without a prediction and the reasons, by reason and by row."""
    st.html(markup.head("Runs without a prediction", f"{count(len(gone))} of {count(total)} runs"))
    if not len(gone):
        st.caption("Every run here is predicted.")
        return
    reasons = gone["reason"].value_counts()
    st.dataframe(
        pd.DataFrame(
            {"reason": [REASONS.get(str(code), str(code)) for code in reasons.index], "runs": reasons.to_numpy()}
        ),
        hide_index=True,
        key="validation_reasons",
        alt=f"{len(reasons)} reasons for runs without a prediction.",
        height=height_of(len(reasons)),
        row_height=ROW,
        width=680,
        column_config={
            "reason": st.column_config.TextColumn("Because", width=600),
            "runs": st.column_config.NumberColumn("Runs", format="%d", width=64),
        },
    )
    st.dataframe(
        gone.head(LISTED)[["row", "reason_text", "hardware", "model", "source_family", "id"]],
        hide_index=True,
        key="validation_gone",
        alt=f"{len(gone)} runs without a prediction.",
        row_height=ROW,
        height=height_of(min(len(gone), LISTED), 320),
        column_config={
            "row": st.column_config.NumberColumn("Row", format="%d", width=56, help="From 1, below the header"),
            "reason_text": st.column_config.TextColumn(
                "Why", width=320, help="Words such as mbs are columns of the table of runs, as under Upload runs."
            ),
            "hardware": st.column_config.TextColumn("Accelerator", width=170),
            "model": st.column_config.TextColumn("Model", width=170),
            "source_family": st.column_config.TextColumn("Source", width=220),
            "id": st.column_config.TextColumn("Id", width=270),
        },
    )
    if len(gone) > LISTED:
        st.caption(f"The first {LISTED:,} of {len(gone):,}.")


def draw_servers() -> None:
    """Draw the errors of predicted servers by GPU, engine and model."""
    rows = count_server_errors()
    number = int(rows["servers"].sum())
    st.html(markup.head("Measured servers", f"{number:,} servers under load; predicted against measured"))
    names = {"tpot": "per token", "output": "output", "ttft": "first token"}
    shown = pd.DataFrame(
        {
            "GPU": rows["gpu"].str.replace("_sxm", "").str.upper(),
            "Engine": rows["engine"].map(_ENGINES),
            "Model": rows["model"].str.rpartition("/")[2],
            "Servers": rows["servers"],
        }
    )
    settings: dict[str, Any] = {
        "GPU": st.column_config.TextColumn(width=60),
        "Engine": st.column_config.TextColumn(width=110),
        "Model": st.column_config.TextColumn(width=180),
        "Servers": st.column_config.NumberColumn(width=66, format="localized"),
    }
    for name, words in names.items():
        median, bias = f"{words.capitalize()}, %", f"Bias, {words}"
        shown[median] = 100.0 * rows[f"{name}_median"]
        shown[bias] = [signed_percent(value) for value in rows[f"{name}_bias"]]
        settings[median] = st.column_config.NumberColumn(
            width=100, format="%.1f", help="Median of |predicted / measured − 1|"
        )
        settings[bias] = st.column_config.TextColumn(
            width=110, help="Median of predicted / measured − 1; negative: predicted too small"
        )
    st.dataframe(
        shown,
        hide_index=True,
        key="validation_servers",
        height=height_of(len(shown), 24),
        row_height=ROW,
        column_config=settings,
        alt=f"Errors of predicted first token, time per token and output of {number:,} measured servers",
    )
    unseen = {each.described.split(",")[0]: each for each in load_calibration("serving").errors if each.held_out}
    told = "; ".join(
        f"{words.removeprefix('all servers: ')} {each.median_absolute_percent:.0f} %"
        for words, each in unseen.items()
        if words.startswith("all servers: ")
    )
    st.caption(
        f"The constants of serving were fitted to these servers. Median error at the fit with every model left out in "
        f"turn: {told}. Source: {SERVER_SOURCE}. The page Serving has the nearest of them for any deployment."
    )
