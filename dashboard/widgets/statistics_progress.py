"""What a page shows while figures that are not stored are evaluated, and where they will not be."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Concatenate, Final, ParamSpec

import streamlit as st

from dashboard.charts.elements.markup import head
from dashboard.jobs.turns import turns
from dashboard.jobs.unstored_statistics import Job, further, seconds_for
from dashboard.link import state
from dashboard.queries.economics import Metric
from dashboard.widgets.exploration_progress import progress_words
from dashboard.words.markdown import literal
from dashboard.words.names import in_sentence
from dashboard.words.numbers import count, counted, format_value
from engine import Exploration
from engine.columns import by_name
from engine.exploration.recomputed import is_stored
from engine.store import NotEvaluatedError, TooManyValuesError

__all__ = ["ABOUT", "names_of", "offer", "there", "whole_or_waiting"]

POLL: Final = 0.5
"""How often progress is looked at [s]."""
ABOUT: Final = (
    "Those with a group behind their name are not stored for every execution: all are evaluated again, once, which "
    "takes as long as stands behind."
)
"""About the names of `names_of`."""
_OTHERS: Final = "_further_of_others"
"""Key of what was stopped in vain."""


P = ParamSpec("P")


def whole_or_waiting(page: Callable[Concatenate[Exploration, P], None]) -> Callable[Concatenate[Exploration, P], None]:
    """A page or fragment that takes its turn, and waits again should figures for which it has waited give way while it
    is drawn."""

    @functools.wraps(page)
    def drawn(exploration: Exploration, /, *more: P.args, **named: P.kwargs) -> None:
        try:
            with turns.turn():
                page(exploration, *more, **named)
        except NotEvaluatedError as problem:
            if there(exploration, problem.names):
                st.rerun()

    return drawn


def there(exploration: Exploration, names: Sequence[str]) -> bool:
    """Whether rows answer figures. Where they do not, they are evaluated, and this draws how far that is, with a way to
    stop it; how it ended, with a way to start it once more; or why it will not be done.

    The page runs again when they are there. names: of statistics, stored ones too.
    """
    if all(map(is_stored, names)):
        return True
    watcher = state.watcher()
    try:
        job = further().need(exploration, names, watcher)
    except TooManyValuesError as problem:
        _too_many(problem)
        return False
    if job is not None:
        _wait_for(job, watcher)
    return job is None


def offer(exploration: Exploration, name: str) -> bool:
    """Whether rows answer a figure. Where they do not, draws what asking for it takes, and a button that does."""
    if is_stored(name) or not exploration.rows.missing([name]):
        return True
    server, watcher = further(), state.watcher()

    def start() -> None:
        try:
            server.request(exploration, [name], watcher)
        except TooManyValuesError as problem:
            st.toast(str(problem))

    job = server.find(exploration, name)
    if job is not None:
        _wait_for(job, watcher, key=name)
    else:
        st.button(
            f"Evaluate {literal(in_sentence(by_name(name).label))} · {cost_words(exploration)}", on_click=start,
            key=f"further_start_{name}", icon=":material/calculate:",
            help="Not stored: every execution that runs is evaluated again, after which it is as quick as any other.",
        )  # fmt: skip
    return False


def names_of(exploration: Exploration, known: Mapping[str, Metric]) -> dict[str, str]:
    """What choosers call figures: those that are not stored with their group behind, and about how long asking for them
    takes as long as nobody has: "Activations · Memory · about 12 s".

    known: the figures by their keys.
    """
    unstored = {metric.statistic for metric in known.values() if not is_stored(metric.statistic)}
    missing = set(exploration.rows.missing(list(unstored))) if unstored and exploration.feasible else set()
    cost = f" · {cost_words(exploration)}" if missing else ""
    return {
        key: metric.column.label if metric.statistic not in unstored
        else f"{metric.column.label} · {metric.column.group}{cost if metric.statistic in missing else ''}"
        for key, metric in known.items()
    }  # fmt: skip


def cost_words(exploration: Exploration) -> str:
    """About how long asking for a figure takes that is not stored: "about 12 s"."""
    seconds = seconds_for(exploration)
    words = format_value("total_time", max(1.0, seconds), digits=1 if seconds <= 1 else 2)
    return f"{'under' if seconds < 1 else 'about'} {words}"


def _wait_for(job: Job, watcher: str, key: str = "") -> None:
    """Draws how far an evaluation is, with a way to stop it, or how it ended, with a way to start it once more.

    The page runs again when it is done. key: tells apart several on a page.
    """
    if not job.done.is_set():
        _watch(job, watcher, key)
    elif job.problem:
        st.error(literal(f"{_what(job)} cannot be shown. {job.problem}"), icon=":material/error:")
        _again(job, "Try again", key)
    else:
        st.info(
            literal(f"Stopped before {_what(job, first=False)} of all executions were known; nothing was kept. Stored "
                    "figures are there at once."), icon=":material/cancel:",
        )  # fmt: skip
        _again(job, "Start again", key)


def _too_many(problem: TooManyValuesError) -> None:
    """Says why figures are not evaluated, and what would do."""
    figures = "This figure is" if problem.names == 1 else f"These {problem.names} figures are"
    more = "" if problem.names == 1 else ", choose fewer of them at once"
    st.info(
        f"{figures} not stored, and of the {counted(problem.rows, 'execution')} that run up to "
        f"{count(problem.most // problem.names)} can be evaluated again: limit the scenario{more}, or choose figures "
        "that are stored.",
        icon=":material/filter_list:",
    )  # fmt: skip


def _again(job: Job, label: str, key: str) -> None:
    st.button(
        label, icon=":material/refresh:", on_click=further().forget, args=(job,), key=f"further_again{key and '_'}{key}"
    )


@st.fragment(run_every=POLL)
def _watch(job: Job, watcher: str, key: str) -> None:
    """The progress card; runs the page again when the evaluation has ended."""
    server = further()
    server.look(job, watcher)
    if job.done.is_set():
        st.rerun()

    def stop() -> None:
        st.session_state[_OTHERS] = "" if server.cancel(job, watcher) else repr((job.key, job.names))

    with st.container(border=True, key=f"further_progress{key}"):
        title, button = st.columns([6, 1], vertical_alignment="center")
        scenario = job.scenario
        size = f"{scenario.model.title or scenario.model.name} on {counted(scenario.num_procs, 'GPU')}"
        title.html(head(f"Evaluating {_what(job, first=False)}", f"{counted(job.rows, 'execution')} · {size}"))
        button.button(
            "Stop", icon=":material/close:", type="tertiary", key=f"further_stop{key}", on_click=stop, width="stretch"
        )
        progress = job.progress
        st.progress(0.0 if progress is None or not progress.total else progress.done / progress.total,
                    text=_account(job, server.ahead(job)))  # fmt: skip
        if st.session_state.get(_OTHERS) == repr((job.key, job.names)):
            st.caption("Somebody else waits for the same, so it goes on.")
        else:
            others = ", for every figure there is" if len(job.every) > len(job.names) else ""
            st.caption(f"Not stored, so every execution is evaluated again, once{others}; the rest appears by itself.")


def _account(job: Job, ahead: int) -> str:
    """How far a job is, in words."""
    return f"Waiting for {ahead} asked for before" if ahead and job.progress is None else progress_words(job.progress)


def _what(job: Job, *, first: bool = True) -> str:
    """The figures of a job by name. first: whether they begin the sentence."""
    labels = [by_name(name).label for name in job.names]
    return " and ".join(label if first and not place else in_sentence(label) for place, label in enumerate(labels))
