"""Card "Is my throughput normal?": a measured figure against the prediction, and the nearest measured runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pandas as pd
import streamlit as st

from dashboard.charts.elements import markup
from dashboard.link.fields import LinkField, LinkReader
from dashboard.link.measured import MeasuredLink
from dashboard.queries.normal_throughput import find_normal_throughput
from dashboard.widgets.link_fields import draw_choice, draw_decimal
from dashboard.widgets.menus import filled
from dashboard.words.markdown import literal
from dashboard.words.numbers import ABSENT, format_value, percent, plain, signed_percent
from engine import Exploration
from engine.questions.errors import QuestionError
from engine.questions.nearest_runs import NOT_TRAINING

__all__ = ["draw_measurement_menu", "draw_normal_runs", "draw_verdict", "parse_measured"]

_NEAREST: Final = 6
_MENU_HELP: Final = "Compare a measured figure with the prediction, and see the nearest measured runs."
_BEYOND: Final = (
    "Your measurement is beyond the peak of the GPUs. Check its unit and the number of GPUs.",
    "Your measurement is more than the memory of a GPU. Give GiB of one GPU.",
)
_TONES: Final = {"slower than expected": "worse", "faster than expected": "better"}


def parse_measured(page: str) -> Mapping[str, LinkField]:
    """Parse the measured figure in the link of a page; a page's `parse` calls it."""
    reader = LinkReader(MeasuredLink, page)
    reader.read("measured")
    reader.read("measured_as")
    return reader.fields


def draw_normal_runs(exploration: Exploration, row: Mapping[str, Any], fields: Mapping[str, LinkField]) -> None:
    """Draw the card.

    Args:
        exploration: that the execution is of.
        row: the execution with its statistics.
        fields: of `parse_measured`.
    """
    value, kind = fields["measured"], fields["measured_as"]
    st.html(markup.head("Is my throughput normal?", "your figure, the prediction, and the nearest measured runs"))
    if not row["training"]:
        st.caption(NOT_TRAINING)
        return
    with st.container(horizontal=True, gap="small", vertical_alignment="bottom"):
        draw_decimal(value, width=170, help="Optional: a figure of your own run, to compare with the prediction.")
        draw_choice(kind, width=230)
    found, problem = _find_or_explain(exploration, row, value.value, kind.value)
    if problem:
        st.warning(problem, icon=":material/block:")
    st.html(markup.figure_strip(_tiles(found)))
    if not problem:
        draw_verdict(exploration, row, value, kind)
    _draw_nearest(found, "normal_runs")
    st.caption(literal(found["note"]))


def draw_measurement_menu(
    exploration: Exploration, row: Mapping[str, Any], value: LinkField, kind: LinkField, key: str
) -> None:
    """Draw the menu with the fields of a measured figure and the nearest measured runs.

    Args:
        exploration: that the execution is of.
        row: the execution with its statistics; with an `id` of its own.
        value, kind: the measured figure and its unit.
        key: of the menu.
    """
    with st.popover("Measured", icon=":material/speed:", type="tertiary", key=key, help=_MENU_HELP):
        if not filled(key):
            return
        with st.container(horizontal=True, gap="small", vertical_alignment="bottom"):
            draw_decimal(value, width=170, help="One figure of your run, to compare with the prediction.")
            draw_choice(kind, width=230)
        draw_verdict(exploration, row, value, kind)
        st.html(markup.head("Nearest measured runs", "published runs most like yours, with the prediction for each"))
        found, _ = _find_or_explain(exploration, row, value.value, kind.value)
        _draw_nearest(found, f"{key}_runs")
        st.caption(literal(found["note"]))


def draw_verdict(exploration: Exploration, row: Mapping[str, Any], value: LinkField, kind: LinkField) -> None:
    """Draw whether a measured figure is inside the error of its prediction, and what would explain the difference.

    See `draw_measurement_menu`.
    """
    if value.value is None:
        return
    found, problem = _find_or_explain(exploration, row, value.value, kind.value)
    if problem:
        st.warning(problem, icon=":material/block:")
        return
    own, unit = (found["measured_memory"], "GiB") if kind.value == "memory" else (found["measured"], "s a step")
    if own is None or not own["words"]:
        return
    would = [f"{plain(each['predicted'])} {unit} with {each['words']}" for each in own["explanations"]]
    st.markdown(literal(own["words"]))
    if would:
        st.caption(literal(f"It would be predicted at {'; '.join(would)}."))
    elif own["verdict"] not in ("as expected", "no interval"):
        st.caption("No single setting of the execution explains it; a trace shows where the step goes.")


def _find_or_explain(
    exploration: Exploration, row: Mapping[str, Any], value: float | None, kind: str
) -> tuple[dict[str, Any], str]:
    """Return the answer, and why a figure was left out of it; empty if it was not."""
    try:
        return find_normal_throughput(exploration, row, value, kind, _NEAREST), ""
    except QuestionError:
        return find_normal_throughput(exploration, row, None, "step", _NEAREST), _BEYOND[kind == "memory"]


def _tiles(found: Mapping[str, Any]) -> list[markup.Tile]:
    """Return the prediction, and the measurement if there is one."""
    told, own, counted = found["predicted"], found["measured"], found["attention"]
    tiles = []
    if told is None:
        tiles.append(markup.Tile("Predicted step", ABSENT, "does not run"))
    else:
        has_interval = told["low_s"] is not None
        between, held = "no interval", ""
        if has_interval:
            share = percent(told["share"], 0)
            between = f"{plain(told['low_s'])} to {plain(told['high_s'])} s ({share})"
            held = f"Interval for {share} of {told['rests_on']}."
        tiles.append(
            markup.Tile("Predicted step", format_value("total_time", told["step_time_s"]), between, formula=held)
        )
        tiles += _rate_tiles(told, counted, "Predicted")
    if own is not None:
        difference = "" if own["difference"] is None else f"{signed_percent(own['difference'])} step time"
        tiles.append(
            markup.Tile(
                "Measured step",
                format_value("total_time", own["step_time_s"]),
                f"{difference}: {own['verdict']}" if difference else "",
                _TONES.get(own["verdict"], ""),
            )
        )
        tiles += _rate_tiles(own, counted, "Measured")
    return tiles


def _rate_tiles(told: Mapping[str, Any], counted: str, whose: str) -> list[markup.Tile]:
    return [
        markup.Tile(
            f"{whose} TFLOP/s, {counted}",
            plain(told[f"tflops_per_gpu_{counted}"]),
            f"MFU {percent(told[f'mfu_{counted}'])}, {plain(told['tokens_per_s_per_gpu'])} tokens/s",
            formula="Per GPU. Cost model, above, has the switch between causal and full attention.",
        )
    ]


def _draw_nearest(found: Mapping[str, Any], key: str) -> None:
    """Draw the nearest measured runs as a table with links to their sources."""
    runs, counted = found["nearest"], found["attention"]
    rate = f"TFLOP/s, {counted}"
    shown = pd.DataFrame(
        {
            "Model": [run["model"] for run in runs],
            "Measured, s": [run["measured_step_time_s"] for run in runs],
            "Predicted, s": [run["predicted_step_time_s"] for run in runs],
            "Difference": [
                run["reason"] if run["difference"] is None else signed_percent(run["difference"]) for run in runs
            ],
            "GPUs": [f"{run['num_procs'] or 0:,.0f} × {run['hardware']}" for run in runs],
            "Batch": [run["batch_size"] for run in runs],
            "Layout": [f"{run['layout']}, mb {run['microbatch_size'] or 0:g}" for run in runs],
            "Type": [run["datatype"] for run in runs],
            "Tokens": [run["seq_size"] for run in runs],
            rate: [run[f"measured_tflops_per_gpu_{counted}"] for run in runs],
            "Distance": [run["distance"] for run in runs],
            "Source": [run["link"] for run in runs],
            "Where": [run["place"] for run in runs],
        }
    )
    weights = ", ".join(f"{name} {weight:g}" for name, weight in found["weights"].items())
    st.dataframe(
        shown,
        hide_index=True,
        height="content",
        row_height=28,
        key=key,
        alt=f"The {len(shown)} measured runs that are nearest to this execution, with measurement and prediction",
        column_config={
            "Model": st.column_config.TextColumn(width=108),
            "GPUs": st.column_config.TextColumn(width=150),
            "Batch": st.column_config.NumberColumn(format="%,d", width=52, help="Sequences of a step."),
            "Layout": st.column_config.TextColumn(width=216),
            "Type": st.column_config.TextColumn(width=50),
            "Tokens": st.column_config.NumberColumn(format="%,d", width=60, help="Tokens of a sequence."),
            "Measured, s": st.column_config.NumberColumn(format="%.4g", width=84, help="Measured step time."),
            "Predicted, s": st.column_config.NumberColumn(
                format="%.4g", width=84, help="Step time that the calibrated model predicts for that run."
            ),
            "Difference": st.column_config.TextColumn(
                width=78, help="Measured over predicted step time; positive is slower than predicted."
            ),
            rate: st.column_config.NumberColumn(
                format="%.0f", width=112, help=f"Measured model FLOP/s per GPU, {counted} attention."
            ),
            "Distance": st.column_config.NumberColumn(
                format="%.2f", width=62, help=f"Sum over parts with these weights: {weights}. Sizes count in doublings."
            ),
            "Source": st.column_config.LinkColumn(
                width=64, display_text=":material/open_in_new:", help="A paper, or a file at a commit."
            ),
            "Where": st.column_config.TextColumn(width=320, help="Place in the source."),
        },
    )
