"""The Validation page: predicted against measured runs, the largest errors, and unsupported runs."""

from __future__ import annotations

from collections.abc import Mapping
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
from dashboard.link.fields import LinkField, LinkReader
from dashboard.pages.validation import queries as data
from dashboard.pages.validation.link import FIELDS, PAGE_NAME, ValidationLink
from dashboard.pages.validation.run import draw_run
from dashboard.pages.validation.tables import (
    draw_errors,
    draw_releases,
    draw_servers,
    draw_unsupported,
    draw_worst_runs,
)
from dashboard.widgets.chart import clicked, show
from dashboard.widgets.link_fields import draw_choice
from dashboard.widgets.upload import file_field
from dashboard.words.markdown import literal
from dashboard.words.numbers import count, percent, signed_percent
from engine.questions.fields import question_field
from engine.validation import library_calibration, stored_coverage

__all__ = ["ValidationView", "parse", "render"]

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
FILTERS: Final = {"source": "source_family", "hardware": "hardware", "family": "family"}
"""Column of each filter, in the order of `queries.Filters`."""
MOST_MEGABYTES: Final = data.MOST_BYTES // 1_000_000
CHARTS_KEPT: Final = 16
"""Most cached charts of either kind; one takes about 1 MB."""


@dataclass(frozen=True, slots=True)
class ValidationView:
    """All that the link says of the page."""

    mode: str
    """The theme: "light" or "dark"."""
    link: ValidationLink
    fields: Mapping[str, LinkField]


def parse() -> ValidationView:
    """Parse the page's part of the link."""
    page = LinkReader(ValidationLink, PAGE_NAME)
    for name in ("source", "hardware", "family", "run", "errors", "reference"):
        page.read(name)
    page.read("field", options=FIELDS)
    return ValidationView(state.theme_mode(), page.build(), page.fields)


def render(view: ValidationView) -> None:
    """Draw the page."""
    mode = view.mode
    bar = st.container(horizontal=True, gap="small", vertical_alignment="bottom")
    checked = _choose_runs(bar)
    filters = _choose_filters(checked, bar, view.fields)
    rows = data.counted_rows(checked, filters)
    gone = data.unsupported_rows(checked, filters)
    if not data.is_selected(checked, filters).any():
        _draw_no_runs(filters)
        return
    _draw_strip(checked, filters, rows, gone)
    if not checked.is_packaged:
        _bad_rows(checked)
    if not len(rows):
        st.info("No run here has both a prediction and a measured time.", icon=":material/info:")
        draw_unsupported(gone, len(checked.rows[data.is_selected(checked, filters)]))
        return
    chosen = _chosen_run(checked, rows, view.link.run)
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
        draw_run(checked, chosen, mode)
    st.html(markup.head("Worst predictions", "largest error first; pick one to see its step"))
    draw_worst_runs(rows, checked.key, filters, _pick_worst)
    _draw_residuals(view, checked, filters, rows)
    draw_errors(checked, filters, view.fields)
    if checked.is_packaged and filters == data.Filters():
        draw_releases(mode)
        draw_servers()
    draw_unsupported(gone, len(checked.rows[data.is_selected(checked, filters)]))


def _draw_no_runs(filters: data.Filters) -> None:
    """Draw the filters that together leave nothing, with a button to lift each."""
    labels = {name: question_field(ValidationLink, name).label for name in FILTERS}
    said = [(name, labels[name], value) for name, value in filters._asdict().items() if value != data.EVERY]
    words = " and ".join(f"{label.lower()} {NAMES.get(value, value)}" for _, label, value in said)
    st.info(literal(f"No run has {words} at once."), icon=":material/filter_list:")
    with st.container(horizontal=True, gap="small"):
        for name, label, value in said:
            st.button(
                literal(f"Any {label.lower()} instead of {NAMES.get(value, value)}"),
                key=f"{PAGE_NAME}_{name}_any",
                icon=":material/filter_list_off:",
                on_click=state.set_url_value,
                args=(f"{PAGE_NAME}_{name}", None),
            )


def _describe_coverage(checked: data.PredictedRuns) -> str:
    """Return a sentence on the runs that errors are counted on."""
    if checked.is_packaged:
        unseen = stored_coverage().iloc[0]
        return (
            "Counted: the last complete measurement of each configuration; the fitted parameters come from them. Of "
            f"sources that a fit did not see, 80 % intervals hold {unseen['covered_80']:.0f} % of the runs, and "
            f"{unseen['sources_80']:.0f} % if every source counts once."
        )
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
            return data.load_uploaded_runs(file.getvalue(), file.name)
        except Refused as problem:
            st.error(literal(str(problem)), icon=":material/error:")
    return data.load_packaged_runs()


def _other_runs() -> None:
    """Reset the choices among the runs shown before."""
    state.set_url_values({f"validation_{name}": None for name in ("source", "hardware", "family", "run")})


def _choose_filters(checked: data.PredictedRuns, bar: Any, fields: Mapping[str, LinkField]) -> data.Filters:
    """Draw the choice of source, accelerator and family among the runs'; return it."""
    found = []
    with bar:
        for name, column in FILTERS.items():
            values = checked.rows[column].value_counts()
            options = {data.EVERY: "All"} | {
                str(value): f"{NAMES.get(str(value), literal_word(value))} ({many:,})"
                for value, many in values.items()
                if value
            }
            field = fields[name].among(options)
            draw_choice(field)
            found.append(str(field.value))
    return data.Filters(*found)


def literal_word(value: object) -> str:
    """Returns a value of a file as an option of a list: one line, not too long."""
    return " ".join(str(value).split())[:60]


def _draw_strip(checked: data.PredictedRuns, filters: data.Filters, rows: pd.DataFrame, gone: pd.DataFrame) -> None:
    """Draw the headline figures."""
    figures = data.headline_errors(checked, filters)
    off = int((np.abs(rows["error"]) > 0.1).sum())

    def share(name: str, signed: bool = False) -> str:
        value = figures[name]
        if not np.isfinite(value):
            return "–"
        return signed_percent(value / 100) if signed else percent(value / 100)

    everything = int(data.is_selected(checked, filters).sum())
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


def _draw_residuals(
    view: ValidationView, checked: data.PredictedRuns, filters: data.Filters, rows: pd.DataFrame
) -> None:
    """Draw signed errors against a chosen field."""
    heading, picker = st.columns([4, 1], vertical_alignment="bottom")
    scope = "signed; lines are medians, with the number of runs; extremes are drawn at the edge"
    heading.html(markup.head("Where the errors are", scope))
    with picker:
        draw_choice(view.fields["field"], label="Errors against")
    show(_residuals_chart(rows, checked.key, filters, view.link.field, view.mode), "validation_residuals")


@st.cache_resource(show_spinner=False, max_entries=CHARTS_KEPT)
def _measured_chart(_rows: pd.DataFrame, key: str, filters: data.Filters, chosen: int | None, mode: str) -> Chart:
    return measured(_rows, mode, selected=chosen)


@st.cache_resource(show_spinner=False, max_entries=CHARTS_KEPT)
def _residuals_chart(_rows: pd.DataFrame, key: str, filters: data.Filters, field: str, mode: str) -> Chart:
    return residuals(_rows, data.field_values(_rows, field), FIELDS[field], mode)
