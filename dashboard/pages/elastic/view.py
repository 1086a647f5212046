"""The Elastic page: one job and what was measured of it, library models, several jobs, and a workload over time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import streamlit as st

from dashboard.link import state
from dashboard.pages.elastic.accuracy import accuracy
from dashboard.pages.elastic.fit import fit
from dashboard.pages.elastic.library_model import library_model
from dashboard.pages.elastic.losses import losses
from dashboard.pages.elastic.one_job import one_job
from dashboard.pages.elastic.several_jobs import several_jobs
from dashboard.pages.elastic.workload import workload
from dashboard.widgets.controls import segments
from dashboard.words.markdown import literal

__all__ = ["ElasticView", "parse", "render"]

SUBJECTS: Final = {
    "job": "One job",
    "model": "Library model",
    "several": "Several jobs",
    "workload": "Workload",
    "accuracy": "Against measurements",
    "fit": "Fit",
    "losses": "Losses",
}
DRAWN: Final[Mapping[str, Callable[[str], None]]] = {
    "job": one_job,
    "model": library_model,
    "several": several_jobs,
    "workload": workload,
    "accuracy": accuracy,
    "fit": fit,
    "losses": losses,
}


@dataclass(frozen=True, slots=True)
class ElasticView:
    """Page-wide part of the link; the fields read their own parts."""

    mode: str
    """The theme: "light" or "dark"."""


def parse() -> ElasticView:
    """Reads the page's part of the link."""
    return ElasticView(state.theme_mode())


def render(view: ElasticView) -> None:
    """Draws the page."""
    subject = segments("Subject", SUBJECTS, "elastic_show")
    try:
        DRAWN[subject](view.mode)
    except ValueError as problem:  # a PlanError, or of a model, a system or a card
        st.error(literal(str(problem)), icon=":material/error:")
