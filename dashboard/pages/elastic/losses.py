"""Loss parity: losses of one training under several plans, from Figure 9 or the user's own runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pandas as pd
import streamlit as st

from dashboard.charts.elements import markup
from dashboard.charts.plans.elastic_overlays import loss_curves
from dashboard.compat.caches import remembered
from dashboard.link.fields import LinkField, LinkReader
from dashboard.pages.elastic.link import OWN, PAGE_NAME, LossesLink
from dashboard.pages.elastic.tables import downloads, worded
from dashboard.widgets.chart import show
from dashboard.widgets.link_fields import draw_choice, draw_segments
from dashboard.widgets.own_table import KEPT, NO_TABLE, OwnTable, draw_own_table, parse_own_table, read_table
from dashboard.words.markdown import literal
from dashboard.words.numbers import plain
from engine.questions.documents.elastic import LossesQuestion
from engine.reproductions.rubick.losses import loss_differences, parity
from engine.reproductions.rubick.losses import losses as read_losses

__all__ = ["LossesView", "draw_losses", "parse_losses"]

MOST_MEGABYTES: Final = 2
MOST_TILES: Final = 6
_PARITY: Final = {"run": "run", "mean": "mean difference", "max": "largest", "last": "at the end"}


@dataclass(frozen=True, slots=True)
class LossesView:
    """Part of the link about losses under several plans."""

    mode: str
    source: LinkField
    shown: LinkField
    own: OwnTable
    question: LossesQuestion | None
    """None until the user's own losses are uploaded, or with a problem."""
    against: LinkField | None
    table: pd.DataFrame | None
    """Losses by minibatch and run."""


def parse_losses(mode: str) -> LossesView:
    """Parse this part of the link. mode: "light" or "dark"."""
    page, asked = LinkReader(LossesLink, PAGE_NAME), LinkReader(LossesQuestion, PAGE_NAME)
    is_own = page.read("losses") == OWN
    page.read("loss_shown")
    own = parse_own_table("elastic_own_losses", "table of losses", read_losses) if is_own else NO_TABLE
    question = table = None
    if own.text is not None or not is_own:
        table = _load_losses(own.text or "")
        runs = {str(name): str(name).replace("_", ", ") for name in table.columns if name != "minibatch"}
        asked.read("against", default=next(iter(runs)), options=runs)
        question = asked.build(losses=own.text)
    fields = {**page.fields, **asked.fields}
    return LossesView(mode, fields["losses"], fields["loss_shown"], own, question, fields.get("against"), table)


def draw_losses(view: LossesView) -> None:
    """Draw losses of one training under several plans.

    Raises `engine.planners.contract.PlanError` for an invalid file.
    """
    mode, source = view.mode, view.source.value
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        draw_choice(view.source, width=210, resets=("elastic_against",))
        if source == OWN:
            _draw_upload()
        view.own.require()
        if view.question is None or view.against is None or view.table is None:
            st.info("Upload losses of your runs, or take those of figure 9.", icon=":material/upload_file:")
            return
        draw_choice(view.against, width=140, help="")
        draw_segments(view.shown)
    table, against, runs, shown = view.table, view.question.against, dict(view.against.options), view.shown.value
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


def _draw_upload() -> None:
    with st.popover("Losses", icon=":material/upload_file:", help="Losses of runs of yours."):
        st.markdown(
            "CSV with a row per minibatch, or per mean of several: `minibatch`, and a column `loss_…` per run, such as "
            f"`loss_244`; at most {MOST_MEGABYTES} MB. {KEPT}"
        )
        draw_own_table("Losses (CSV)", "elastic_own_losses", MOST_MEGABYTES, read_losses)


def _difference_tiles(summary: pd.DataFrame, runs: dict[str, str], against: str) -> list[markup.Tile]:
    return [
        markup.Tile(runs[row["run"]], plain(float(row["mean"]), 2), f"mean; at most {plain(float(row['max']), 2)}")
        for row in summary.to_dict("records")[: MOST_TILES + 1]
        if row["run"] != against
    ]
