"""The Post-train page: reinforcement learning, with the step of each mode, phases and memory; or fine-tuning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd
import streamlit as st

from dashboard.charts.elements import markup
from dashboard.charts.plans.post_training import step_by_split
from dashboard.charts.plans.post_training_pools import pools_over_time
from dashboard.charts.plans.response_lengths import lengths_with_tail
from dashboard.files.post_training_report import (
    build_post_training_report,
    describe_best,
    measured_marks,
    memory_rows,
    nearest_rows,
    phase_rows,
    post_training_tiles,
)
from dashboard.jobs.post_training import PostTrainingJob
from dashboard.jobs.server import server
from dashboard.link import state
from dashboard.link.fields import LinkField, LinkReader
from dashboard.pages.post_training.changes import draw_changes
from dashboard.pages.post_training.inputs import RefusedInputsError, draw_inputs, parse_inputs
from dashboard.pages.post_training.launch_file import draw_launch_card, draw_own_file
from dashboard.pages.post_training.link import PAGE_NAME, PostTrainingLink
from dashboard.pages.post_training.tuning import FineTuningView, parse_tuning, render_tuning
from dashboard.widgets import share
from dashboard.widgets.chart import show
from dashboard.widgets.file_download import draw_download
from dashboard.widgets.job_card import found_soon
from dashboard.widgets.link_fields import draw_segments
from dashboard.widgets.tables import height_of
from dashboard.words.markdown import literal
from dashboard.words.numbers import ABSENT
from engine.post_training.lengths import LengthLaw
from engine.questions.documents.post_training import MODE_WORDS, PHASE_WORDS, PostTrainingQuestion

__all__ = ["PostTrainingView", "parse", "render"]


@dataclass(frozen=True, slots=True)
class PostTrainingView:
    """All that the link says of the page."""

    mode: str
    """The theme: "light" or "dark"."""
    question: PostTrainingQuestion | None
    fields: Mapping[str, LinkField]
    problem: str = ""
    """Reason if the link holds no question."""
    part: LinkField | None = None
    """Reinforcement learning, or fine-tuning."""
    address: str = ""
    """Link to the plan, for its report."""
    tuning: FineTuningView | None = None
    """All that the link says of fine-tuning, if that is shown."""


def parse() -> PostTrainingView:
    """Parse the page's part of the link."""
    page = LinkReader(PostTrainingLink, PAGE_NAME)
    page.read("part")
    part = page.fields["part"]
    if part.value == "tuning":
        return PostTrainingView(state.theme_mode(), None, {}, part=part, tuning=parse_tuning())
    try:
        question, fields = parse_inputs()
    except RefusedInputsError as problem:
        return PostTrainingView(state.theme_mode(), None, problem.fields, str(problem), part)
    except ValueError as problem:
        return PostTrainingView(state.theme_mode(), None, {}, str(problem), part)
    return PostTrainingView(state.theme_mode(), question, fields, part=part, address=share.current_link())


def render(view: PostTrainingView) -> None:
    """Draw the page."""
    if view.part is not None:
        draw_segments(view.part)
    if view.tuning is not None:
        render_tuning(view.tuning)
        return
    question = view.question
    if question is None:
        if view.fields:
            draw_inputs(view.fields)
        st.error(literal(view.problem), icon=":material/error:")
        return
    draw_inputs(view.fields)
    draw_own_file(view.fields)
    title = view.fields["model"].options[view.fields["model"].value]
    shared, watcher = server(), state.watcher()
    job = shared.board.post(PostTrainingJob(shared.post_training_plans, question, title), watcher)
    answer = found_soon(job, PostTrainingJob, watcher, lambda one: one.answer)
    if answer is not None:
        _draw_answer(view, question, answer, title)


def _draw_answer(view: PostTrainingView, question: PostTrainingQuestion, answer: Mapping[str, Any], title: str) -> None:
    reasons = " ".join(f"**{MODE_WORDS[mode]}**: {literal(text)}" for mode, text in answer["reasons"].items())
    if not answer["best"]:
        change = f" Smallest change that fits: {literal(answer['change'])}." if answer["change"] else ""
        st.warning(f"**Nothing runs.** {reasons}{change}", icon=":material/block:")
        _draw_nearest(answer)
        return
    best = answer["best"][0]
    st.html(markup.head(describe_best(best), f"{answer['samples']:,} samples a step; modelled"))
    st.html(markup.figure_strip(post_training_tiles(question, best), answer["basis"]))
    if reasons:
        st.caption(reasons)
    with st.container(border=True, gap="xsmall"):
        st.html(markup.head("Step against the split", "each point the best execution and deployment of its sides"))
        marks = measured_marks(answer)
        show(
            step_by_split(answer["curve"], answer["num_procs"], MODE_WORDS, marks, mode=view.mode),
            "post_training_curve",
        )
        draw_download(
            "Splits as CSV",
            lambda: pd.DataFrame(answer["curve"]).to_csv(index=False),
            "splits.csv",
            "text/csv",
            key="post_training_splits",
            help="Step by mode, GPUs that train and GPUs that generate.",
        )
    wide, narrow = st.columns((2, 1), gap="medium")
    with wide, st.container(border=True, gap="xsmall"):
        st.html(markup.head("One step", f"{MODE_WORDS[best['mode']]}; idle time is hatched"))
        show(pools_over_time(best, PHASE_WORDS, mode=view.mode), "post_training_pools")
    with narrow, st.container(border=True, gap="xsmall"):
        st.html(markup.head("Response lengths", "share that still runs after so many tokens"))
        said = question.response
        assert said.mean is not None
        assert said.cap is not None
        law = LengthLaw.lognormal(said.mean, said.cap, said.cv)
        show(lengths_with_tail(law.tokens, law.survival, law.mean, mode=view.mode), "post_training_lengths")
    draw_changes(
        view.fields, answer, f"{describe_best(best)}; each against the step above. Apply may find another split"
    )
    left, right = st.columns(2, gap="medium")
    with left, st.container(border=True, gap="xsmall"):
        st.html(markup.head("Phases", "seconds of a step, from low to high"))
        _draw_table(phase_rows(answer["best"]), "post_training_phases", "Phases of a step by mode.")
    with right, st.container(border=True, gap="xsmall"):
        st.html(markup.head("Memory", f"{MODE_WORDS[best['mode']]}; {PHASE_WORDS[best['binds']].lower()} binds"))
        _draw_table(memory_rows(best), "post_training_memory", "Memory of a GPU by phase.")
    draw_launch_card(question, best)
    _draw_nearest(answer)
    draw_download(
        "Report",
        lambda: build_post_training_report(question, answer, title, view.address),
        "reinforcement-learning.html",
        "text/html",
        key="post_training_report",
        help="One HTML file that opens offline; print it for PDF.",
    )


def _draw_nearest(answer: Mapping[str, Any]) -> None:
    with st.container(border=True, gap="xsmall"):
        st.html(markup.head("Nearest measured runs", "is my speed normal?"))
        _draw_table(nearest_rows(answer), "post_training_nearest", "Measured runs nearest to the question.")


def _draw_table(rows: list[dict[str, Any]], key: str, alt: str) -> None:
    st.dataframe(
        pd.DataFrame(rows), hide_index=True, height=height_of(len(rows), 400), placeholder=ABSENT, key=key, alt=alt
    )
