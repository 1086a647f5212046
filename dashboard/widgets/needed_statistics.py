"""Page content while statistics that are not stored are evaluated, and if they cannot be."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Concatenate, Final, ParamSpec

import streamlit as st

from dashboard.jobs.board import BoardFull
from dashboard.jobs.server import unstored_statistics
from dashboard.jobs.turns import turns
from dashboard.link import state
from dashboard.queries.economics import Metric
from dashboard.widgets.job_card import watch
from dashboard.words.markdown import literal
from dashboard.words.names import in_sentence
from dashboard.words.numbers import count, counted, format_value
from engine import Exploration
from engine.columns import by_name
from engine.exploration.unstored_statistics import is_stored
from engine.store import NotEvaluatedError, TooManyValuesError

__all__ = ["ABOUT", "names_of", "offer", "there", "whole_or_waiting"]

ABOUT: Final = (
    "Figures with a group behind their name are not stored. The first use evaluates all executions again, in the time "
    "given there."
)
"""About the names of `names_of`."""

P = ParamSpec("P")


def whole_or_waiting(page: Callable[Concatenate[Exploration, P], None]) -> Callable[Concatenate[Exploration, P], None]:
    """Returns a page or fragment that takes its turn, and waits again should figures for which it has waited give way
    while it is drawn."""

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
    """Returns whether rows answer figures. Where they do not, they are evaluated, and this draws how far that is, with
    a way to stop it; how it ended, with a way to start it once more; or why it will not be done.

    The page runs again when they are there. names: of statistics, stored ones too.
    """
    if all(map(is_stored, names)):
        return True
    watcher = state.watcher()
    try:
        job = unstored_statistics().need(exploration, names, watcher)
    except TooManyValuesError as problem:
        _too_many(problem)
        return False
    except BoardFull as problem:
        st.warning(literal(str(problem)), icon=":material/hourglass_empty:")
        return False
    if job is not None:
        watch(job, watcher)
    return job is None


def offer(exploration: Exploration, name: str) -> bool:
    """Returns whether rows answer a figure. Where they do not, draws what asking for it takes, and a button that
    does."""
    if is_stored(name) or not exploration.rows.missing([name]):
        return True
    server, watcher = unstored_statistics(), state.watcher()

    def start() -> None:
        try:
            server.request(exploration, [name], watcher)
        except (TooManyValuesError, BoardFull) as problem:
            st.toast(str(problem))

    job = server.find(exploration, name)
    if job is not None:
        watch(job, watcher, name)
    else:
        st.button(
            f"Evaluate {literal(in_sentence(by_name(name).label))} · {cost_words(exploration)}",
            on_click=start,
            key=f"evaluate_{name}",
            icon=":material/calculate:",
            help="Not stored: the first use evaluates all feasible executions again. Later uses are quick.",
        )
    return False


def names_of(exploration: Exploration, known: Mapping[str, Metric]) -> dict[str, str]:
    """Returns the labels of figures in choosers. A figure that is not stored has its group behind it, and until it is
    evaluated the estimated time: "Activations · Memory · about 12 s".

    known: the figures by their keys.
    """
    unstored = {metric.statistic for metric in known.values() if not is_stored(metric.statistic)}
    missing = set(exploration.rows.missing(list(unstored))) if unstored and exploration.feasible else set()
    cost = f" · {cost_words(exploration)}" if missing else ""
    return {
        key: metric.column.label
        if metric.statistic not in unstored
        else f"{metric.column.label} · {metric.column.group}{cost if metric.statistic in missing else ''}"
        for key, metric in known.items()
    }


def cost_words(exploration: Exploration) -> str:
    """Returns about how long asking for a figure takes that is not stored: "about 12 s"."""
    seconds = unstored_statistics().seconds_for(exploration)
    words = format_value("total_time", max(1.0, seconds), digits=1 if seconds <= 1 else 2)
    return f"{'under' if seconds < 1 else 'about'} {words}"


def _too_many(problem: TooManyValuesError) -> None:
    """Says why figures are not evaluated, and what would do."""
    figures = "This figure is" if problem.names == 1 else f"These {problem.names} figures are"
    more = "" if problem.names == 1 else ", choose fewer of them at once"
    st.info(
        f"{figures} not stored, and at most {count(problem.most // problem.names)} of "
        f"{counted(problem.rows, 'feasible execution')} can be evaluated again: limit the scenario{more}, or choose "
        "stored figures.",
        icon=":material/filter_list:",
    )
