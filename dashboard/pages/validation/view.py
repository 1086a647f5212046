"""The Validation page: predicted against measured runs, the largest errors, and unsupported runs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd
import streamlit as st

from dashboard.charts.accuracy.measured import MAX_MARKS, measured
from dashboard.charts.accuracy.residuals import residuals
from dashboard.charts.elements import markup
from dashboard.charts.elements.template import Chart
from dashboard.link import state
from dashboard.link.document_validation import Refused
from dashboard.pages.validation import queries as data
from dashboard.pages.validation.run import panel
from dashboard.pages.validation.tables import errors, not_supported, worst
from dashboard.widgets.chart import clicked, show
from dashboard.widgets.controls import choose
from dashboard.widgets.upload import file_field
from dashboard.words.markdown import literal
from dashboard.words.numbers import count, percent, signed_percent
from engine.validation import library_calibration

__all__ = ["ValidationView", "parse", "render"]

FIELDS: Final = {
    "num_gpus": "GPUs",
    "tp": "Tensor parallel",
    "pp": "Pipeline parallel",
    "dp": "Data parallel",
    "cp": "Context parallel",
    "ep": "Expert parallel",
    "vpp": "Interleaving",
    "mbs": "Microbatch",
    "gbs": "Batch",
    "hidden": "Hidden size",
    "layers": "Blocks",
    "heads": "Attention heads",
    "seq_len": "Sequence length",
    "moe_experts": "Experts",
    "year": "Date",
    "measured_step_time_s": "Measured step time, s",
    "hardware": "Accelerator",
    "family": "Family",
    "framework": "Framework",
    "software_rule": "Software rule",
    "dtype": "Datatype",
    "recompute": "Recompute",
    "attn": "Attention",
}
NAMES: Final = {
    "dense_megatron": "Dense, Megatron style",
    "dense_fsdp": "Dense, fully sharded",
    "moe": "Mixture of experts",
    "dense_longseq": "Dense, long sequences",
    "dense_sft": "Dense, fine-tuning",
    "hybrid_mamba": "Hybrid, state space",
    "tpu_fsdp": "TPU, fully sharded",
    "dense_dp": "Dense, data parallel",
    "memory_only": "Memory only",
    "dense_zerobubble": "Dense, zero bubble",
    "moe_zerobubble": "Experts, zero bubble",
    "dense_zero_offload": "Dense, offload",
}
FILTERS: Final = (
    ("validation_source", "Source", "source_family"),
    ("validation_hardware", "Accelerator", "hardware"),
    ("validation_family", "Family", "family"),
)
"""Link parameter, label and column of each filter, as in `validation_data.Filters`."""
MOST_MEGABYTES: Final = data.MOST_BYTES // 1_000_000
CHARTS_KEPT: Final = 16
"""Most cached charts of either kind; one takes about 1 MB."""
ANY_ROW: Final = re.compile(r"[1-9]\d{0,5}")


@dataclass(frozen=True, slots=True)
class ValidationView:
    """The page's part of the link."""

    mode: str
    """The theme: "light" or "dark"."""
    run: int | None
    """Row of the chosen run; None for the one with the largest error."""


def parse() -> ValidationView:
    """Reads the page's part of the link."""
    run = state.url_value("validation_run", "", ANY_ROW)
    return ValidationView(state.theme_mode(), int(run) if run else None)


def render(view: ValidationView) -> None:
    """Draws the page."""
    mode = view.mode
    bar = st.container(horizontal=True, gap="small", vertical_alignment="bottom")
    checked = _choose_runs(bar)
    filters = _choose_filters(checked, bar)
    rows = data.counted(checked, filters)
    gone = data.unsupported(checked, filters)
    if not data.selected(checked, filters).any():
        _draw_no_runs(filters)
        return
    _draw_strip(checked, filters, rows, gone)
    if not checked.is_packaged:
        _bad_rows(checked)
    if not len(rows):
        st.info("No run here has both a prediction and a measured time.", icon=":material/info:")
        not_supported(gone, len(checked.rows[data.selected(checked, filters)]))
        return
    chosen = _chosen_run(checked, rows, view.run)
    left, right = st.columns([1.6, 1], gap="medium")
    with left:
        st.html(markup.head("Predicted against measured", "step time; calibrated model against measured runs"))
        plot = _measured_chart(rows, checked.key, filters, chosen, mode)
        show(plot, "validation_plot", on_click=_pick_run)
        note = "Each mark is one run; click one. " + _describe_coverage(checked)
        if len(rows) > MAX_MARKS:
            note += f" The {MAX_MARKS // 2:,} worst and an even choice of the other {len(rows):,} runs are drawn."
        st.caption(note)
    with right.container(border=True, gap="xsmall"):
        panel(checked, chosen, mode)
    st.html(markup.head("Runs that are predicted worst", "largest error first; pick one to see its step"))
    worst(rows, checked.key, filters, _pick_worst)
    _draw_residuals(checked, filters, rows, mode)
    errors(checked, filters)
    not_supported(gone, len(checked.rows[data.selected(checked, filters)]))


def _draw_no_runs(filters: data.Filters) -> None:
    """Draw the filters that together leave nothing, with a button to lift each."""
    said = [
        (name, label, value) for (name, label, _), value in zip(FILTERS, filters, strict=True) if value != data.EVERY
    ]
    words = " and ".join(f"{label.lower()} {NAMES.get(value, value)}" for _, label, value in said)
    st.info(literal(f"No run has {words} at once."), icon=":material/filter_list:")
    with st.container(horizontal=True, gap="small"):
        for name, label, value in said:
            st.button(
                literal(f"Any {label.lower()} instead of {NAMES.get(value, value)}"),
                key=f"{name}_any",
                icon=":material/filter_list_off:",
                on_click=state.set_url_value,
                args=(name, None),
            )


def _describe_coverage(checked: data.PredictedRuns) -> str:
    """Return a sentence on the runs that errors are counted on."""
    if checked.is_packaged:
        return "Counted: the last complete measurement of each configuration; the six parameters were fitted to them."
    return "Counted: all runs of the file with a prediction and a measured time, or the ones marked as complete."


def _choose_runs(bar: Any) -> data.PredictedRuns:
    """Draw the upload; return its runs, or the package's."""
    with bar.popover("Upload runs", icon=":material/upload_file:", help="Check the model against runs of your own."):
        st.caption(
            f"A CSV file of up to {MOST_MEGABYTES} MB and {data.MOST_RUNS:,} runs, one per row, with the columns of "
            "runs.csv: hardware, hidden, ffn, layers, heads, vocab, seq_len, num_gpus, tp, pp, dp, mbs, gbs and a "
            "measured step_time_s or tokens_per_s_per_gpu. It stays on this server while this page is open."
        )
        file = file_field("Measured runs", "csv", "validation_upload", MOST_MEGABYTES, on_change=_other_runs)
    if file is not None:
        try:
            return data.uploaded(file.getvalue(), file.name)
        except Refused as problem:
            st.error(literal(str(problem)), icon=":material/error:")
    return data.packaged()


def _other_runs() -> None:
    """Reset the choices among the runs shown before."""
    state.set_url_values({f"validation_{name}": None for name in ("source", "hardware", "family", "run")})


def _choose_filters(checked: data.PredictedRuns, bar: Any) -> data.Filters:
    """Draw the choice of source, accelerator and family; return it."""
    found = []
    with bar:
        for name, label, column in FILTERS:
            values = checked.rows[column].value_counts()
            options = {data.EVERY: "All"} | {
                str(value): f"{NAMES.get(str(value), literal_word(value))} ({many:,})"
                for value, many in values.items()
                if value
            }
            found.append(choose(label, options, name))
    return data.Filters(*found)


def literal_word(value: object) -> str:
    """Returns a value of a file as an option of a list: one line, not too long."""
    return " ".join(str(value).split())[:60]


def _draw_strip(checked: data.PredictedRuns, filters: data.Filters, rows: pd.DataFrame, gone: pd.DataFrame) -> None:
    """Draw the headline figures."""
    figures = data.headline(checked, filters)
    off = int((np.abs(rows["error"]) > 0.1).sum())

    def share(name: str, signed: bool = False) -> str:
        value = figures[name]
        if not np.isfinite(value):
            return "–"
        return signed_percent(value / 100) if signed else percent(value / 100)

    everything = int(data.selected(checked, filters).sum())
    bias = figures["bias"]
    side = "balanced" if not abs(bias) > 0.5 else "calibrated too slow" if bias > 0 else "calibrated too fast"
    tiles = [
        markup.Tile("Runs counted", count(len(rows)), f"of {everything:,} runs"),
        markup.Tile(
            "Mean error, calibrated", share("mean"), "of the step time", formula="mean of |predicted / measured − 1|"
        ),
        markup.Tile(
            "Median error",
            share("median"),
            f"90 % within {share('p90')}",
            formula="median of |predicted / measured − 1|",
        ),
        markup.Tile(
            "Bias",
            share("bias", signed=True),
            side,
            formula="median of predicted / measured − 1; negative: predicted faster than measured",
        ),
        markup.Tile("Within 10 %", share("within_10"), f"{off:,} beyond"),
    ]
    if checked.is_packaged and filters == data.Filters():
        tiles += [
            markup.Tile(
                "Mean error, unseen",
                percent(error.mean_absolute_percent / 100),
                "halves left out of the fit",
                formula=error.described,
            )
            for error in library_calibration().errors
            if error.held_out and error.described.startswith("all rows")
        ]
    tiles.append(markup.Tile("Not supported", count(len(gone)), "reasons below"))
    st.html(markup.figure_strip(tiles))


def _bad_rows(checked: data.PredictedRuns) -> None:
    """Draw a warning about unreadable and impossible values of an uploaded file, by row."""
    bad = checked.rows[
        checked.rows["reason"].isin(
            ["bad_value", "impossible_product", "implausible_measurement", "missing_field", "impossible_split"]
        )
    ]
    if len(bad):
        first = " ".join(f"Row {row['row']}: {row['reason_text']}" for row in bad.head(3).to_dict("records"))
        more = f" {len(bad) - 3:,} more are listed at the end of the page." if len(bad) > 3 else ""
        rows = "1 row" if len(bad) == 1 else f"{len(bad):,} rows"
        st.warning(f"{rows} of the file cannot be used. {literal(first[:600])}{more}", icon=":material/rule:")


def _chosen_run(checked: data.PredictedRuns, rows: pd.DataFrame, wanted: int | None) -> int | None:
    """Return the row of the chosen run: the link's if it exists, otherwise the worst."""
    if wanted is not None and wanted <= len(checked.rows):
        return wanted
    if wanted is not None:
        last = f"there are {len(checked.rows):,}"
        sentence = f"The link's run {wanted} does not exist; {last}. Showing the worst instead."
        state.complain("validation_run", sentence)
    return int(rows["row"].to_numpy()[int(rows["error"].abs().to_numpy().argmax())]) if len(rows) else None


def _pick_run() -> None:
    if found := clicked("validation_plot"):
        state.set_url_value("validation_run", str(int(found[0])))


def _pick_worst(shown: pd.DataFrame) -> None:
    picked = st.session_state["validation_worst"].selection.rows
    state.set_url_value("validation_run", str(int(shown["row"].iloc[picked[0]])) if picked else None)


def _draw_residuals(checked: data.PredictedRuns, filters: data.Filters, rows: pd.DataFrame, mode: str) -> None:
    """Draw signed errors against a chosen field."""
    heading, picker = st.columns([4, 1], vertical_alignment="bottom")
    scope = "signed; lines are medians, with the number of runs; extremes are drawn at the edge"
    heading.html(markup.head("Where the errors are", scope))
    with picker:
        field = choose("Errors against", FIELDS, "validation_field")
    show(_residuals_chart(rows, checked.key, filters, field, mode), "validation_residuals")


@st.cache_resource(show_spinner=False, max_entries=CHARTS_KEPT)
def _measured_chart(_rows: pd.DataFrame, key: str, filters: data.Filters, chosen: int | None, mode: str) -> Chart:
    return measured(_rows, mode, selected=chosen)


@st.cache_resource(show_spinner=False, max_entries=CHARTS_KEPT)
def _residuals_chart(_rows: pd.DataFrame, key: str, filters: data.Filters, field: str, mode: str) -> Chart:
    return residuals(_rows, data.field_values(_rows, field), FIELDS[field], mode)
