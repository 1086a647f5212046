"""Loss parity: losses of one training under several plans, from Figure 9 or the user's own runs."""

from __future__ import annotations

from typing import Final

import pandas as pd
import streamlit as st

from dashboard.charts.elements import markup
from dashboard.charts.plans.elastic_overlays import loss_curves
from dashboard.compat.caches import remembered
from dashboard.pages.elastic.tables import downloads, worded
from dashboard.widgets.chart import show
from dashboard.widgets.controls import choose, segments
from dashboard.widgets.own_table import KEPT, own_table, read_table
from dashboard.words.markdown import literal
from dashboard.words.numbers import plain
from engine.planners.elastic.losses import loss_differences, parity
from engine.planners.elastic.losses import losses as read_losses

__all__ = ["losses"]

OWN: Final = "own"
MOST_MEGABYTES: Final = 2
MOST_TILES: Final = 6
_SOURCES: Final = {"figure_9": "LLaMA-2-7B (figure 9)", OWN: "My runs"}
_SHOWN: Final = {"differences": "Differences", "losses": "Losses"}
_PARITY: Final = {"run": "run", "mean": "mean difference", "max": "largest", "last": "at the end"}


def losses(mode: str) -> None:
    """Draws losses of one training under several plans.

    Args:
        mode: "light" or "dark".

    Raises `engine.planners.contract.PlanError` for an invalid file.
    """
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        source = choose("Runs", _SOURCES, "elastic_losses", width=210, gone=("elastic_against",))
        text = _upload_losses() if source == OWN else ""
        if text is None:
            st.info("Upload losses of your runs, or take those of figure 9.", icon=":material/upload_file:")
            return
        table = _load_losses(text)
        runs = {str(name): str(name).replace("_", ", ") for name in table.columns if name != "minibatch"}
        against = choose("Compared with", runs, "elastic_against", width=140)
        shown = segments("Show", _SHOWN, "elastic_loss_shown")
    differences, summary = loss_differences(table, against), parity(table, against)
    st.html(markup.figure_strip(_difference_tiles(summary, runs, against)))
    with st.container(border=True, gap="xsmall"):
        st.html(markup.head("Losses under several plans", "digits are pipeline, tensor, data degrees"))
        other = differences.drop(columns=against)
        label = f"difference of the loss to that of {runs[against]}, without sign"
        chart = loss_curves(other, label, mode) if shown == "differences" else loss_curves(table, "loss", mode)
        show(chart, "elastic_loss_curves")
        st.markdown(literal(chart.alt))
        if source != OWN:
            st.markdown("Each point is a mean of 25 minibatches. Another seed alone differs as much as other plans do.")
    with st.container(border=True, gap="xsmall"):
        st.html(markup.head("Every run", "its loss less that of the run it is compared with, without sign"))
        told = summary[summary["run"] != against]
        worded(told, _PARITY, "elastic_parity", "Mean, largest and last difference of every run.")
    downloads({"Losses": table, "Differences": differences, "Runs": summary}, "elastic_losses", {"Curves": chart})


@remembered(8)
def _load_losses(text: str) -> pd.DataFrame:
    """Return the losses of a text; an empty text stands for Figure 9."""
    return read_table(read_losses, text) if text else read_losses(None)


def _upload_losses() -> str | None:
    with st.popover("Losses", icon=":material/upload_file:", help="Losses of runs of yours."):
        st.markdown(
            "CSV with a row per minibatch, or per mean of several: `minibatch`, and a column `loss_…` per run, such as "
            f"`loss_244`; at most {MOST_MEGABYTES} MB. {KEPT}"
        )
        return own_table("Losses (CSV)", "elastic_own_losses", "table of losses", MOST_MEGABYTES, read_losses)


def _difference_tiles(summary: pd.DataFrame, runs: dict[str, str], against: str) -> list[markup.Tile]:
    return [
        markup.Tile(runs[row["run"]], plain(float(row["mean"]), 2), f"mean; at most {plain(float(row['max']), 2)}")
        for row in summary.to_dict("records")[: MOST_TILES + 1]
        if row["run"] != against
    ]
