"""The Elastic page: one job and what was measured of it, library models, several jobs, and a workload over time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import streamlit as st

from dashboard.link import state
from dashboard.link.fields import LinkField, LinkReader
from dashboard.pages.elastic.accuracy import draw_accuracy, parse_accuracy
from dashboard.pages.elastic.fit import draw_fit, parse_fit
from dashboard.pages.elastic.library_model import draw_model, parse_model, parse_scenario
from dashboard.pages.elastic.link import PAGE_NAME, ElasticLink
from dashboard.pages.elastic.losses import draw_losses, parse_losses
from dashboard.pages.elastic.one_job import draw_job, parse_job
from dashboard.pages.elastic.several_jobs import draw_jobs, parse_jobs
from dashboard.pages.elastic.workload import draw_workload, parse_workload
from dashboard.widgets.link_fields import draw_segments
from dashboard.words.markdown import literal

__all__ = ["ElasticView", "parse", "render"]

SUBJECTS: Final[Mapping[str, tuple[Callable[[str], Any], Callable[[Any], None]]]] = {
    "job": (parse_job, draw_job),
    "model": (parse_model, draw_model),
    "several": (parse_jobs, draw_jobs),
    "workload": (parse_workload, draw_workload),
    "accuracy": (parse_accuracy, draw_accuracy),
    "fit": (parse_fit, draw_fit),
    "losses": (parse_losses, draw_losses),
}
"""Door of each subject's part of the link, and what draws it."""


@dataclass(frozen=True, slots=True)
class ElasticView:
    """All that the link says of the page."""

    subject: LinkField
    part: Any
    """View of the subject; None with a problem."""
    problem: str = ""


def parse() -> ElasticView:
    """Parse the page's part of the link. With a scenario it opens on its model, otherwise on a published one."""
    reader = LinkReader(ElasticLink, PAGE_NAME)
    name = reader.read("show", default="job" if parse_scenario() is None else "model")
    subject = reader.fields["show"]
    try:
        return ElasticView(subject, SUBJECTS[name][0](state.theme_mode()))
    except ValueError as problem:  # a PlanError, or of a model, a system or a card
        return ElasticView(subject, None, str(problem))


def render(view: ElasticView) -> None:
    """Draws the page."""
    draw_segments(view.subject)
    problem = view.problem
    if not problem:
        try:
            SUBJECTS[view.subject.value][1](view.part)
        except ValueError as error:
            problem = str(error)
    if problem:
        st.error(literal(problem), icon=":material/error:")
