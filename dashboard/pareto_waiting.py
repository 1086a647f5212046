"""What the Pareto page shows while figures that are not stored are evaluated, and where they will not be."""

from __future__ import annotations

from typing import Final

import streamlit as st

from dashboard.charts.markup import head
from dashboard.charts.template import in_sentence
from dashboard.format import count, counted
from dashboard.pareto_columns import Job, TooMany, columns
from dashboard.text import literal
from dashboard.waiting import progress_words
from engine.columns import by_name

__all__ = ["too_many", "wait_for"]

POLL: Final = 0.5
"""How often progress is looked at [s]."""
_OTHERS: Final = "_pareto_of_others"
"""Key of what was stopped in vain."""


def wait_for(job: Job, watcher: str) -> None:
    """Draws how far an evaluation is, with a way to stop it, or how it ended, with a way to start it once more.

    The page runs again when it is done.
    """
    if not job.done.is_set():
        _watch(job, watcher)
    elif job.problem:
        st.error(literal(f"{_what(job)} cannot be shown. {job.problem}"), icon=":material/error:")
        _again(job, "Try again")
    else:
        st.info(
            literal(f"Stopped before {_what(job, first=False)} of all executions were known; nothing was kept. Stored "
                    "figures are there at once."), icon=":material/cancel:",
        )  # fmt: skip
        _again(job, "Start again")


def too_many(problem: TooMany, *, filtered: bool) -> None:
    """Says why figures are not evaluated, and what would do."""
    which = "that meet the filters" if filtered else "that run"
    more = "filter further" if filtered else "filter them"
    figures = "This figure is" if problem.names == 1 else f"These {problem.names} figures are"
    st.info(
        f"{figures} not stored, and of the {counted(problem.rows, 'execution')} {which} up to {count(problem.most)} "
        f"can be evaluated again for a frontier: {more}, limit the scenario, or choose figures without a group behind "
        "their name, which are stored.",
        icon=":material/filter_list:",
    )  # fmt: skip


def _again(job: Job, label: str) -> None:
    st.button(label, icon=":material/refresh:", on_click=columns().forget, args=(job,), key="pareto_again")


@st.fragment(run_every=POLL)
def _watch(job: Job, watcher: str) -> None:
    """The progress card; runs the page again when the evaluation has ended."""
    server = columns()
    server.look(job, watcher)
    if job.done.is_set():
        st.rerun()

    def stop() -> None:
        st.session_state[_OTHERS] = "" if server.cancel(job, watcher) else repr((job.key, job.names))

    with st.container(border=True, key="pareto_progress"):
        title, button = st.columns([6, 1], vertical_alignment="center")
        scenario = job.scenario
        size = f"{scenario.model.title or scenario.model.name} on {counted(scenario.num_procs, 'GPU')}"
        title.html(head(f"Evaluating {_what(job, first=False)}", f"{counted(job.rows, 'execution')} · {size}"))
        button.button(
            "Stop", icon=":material/close:", type="tertiary", key="pareto_stop", on_click=stop, width="stretch"
        )
        progress = job.progress
        st.progress(0.0 if progress is None or not progress.total else progress.done / progress.total,
                    text=_account(job, server.ahead(job)))  # fmt: skip
        if st.session_state.get(_OTHERS) == repr((job.key, job.names)):
            st.caption("Somebody else waits for the same, so it goes on.")
        else:
            st.caption("Not stored, so every execution is evaluated again; the frontier appears by itself.")


def _account(job: Job, ahead: int) -> str:
    """How far a job is, in words."""
    return f"Waiting for {ahead} asked for before" if ahead and job.progress is None else progress_words(job.progress)


def _what(job: Job, *, first: bool = True) -> str:
    """The figures of a job by name. first: whether they begin the sentence."""
    labels = [by_name(name).label for name in job.names]
    return " and ".join(label if first and not place else in_sentence(label) for place, label in enumerate(labels))
