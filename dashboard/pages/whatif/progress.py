"""How far a study of the What-if page is, how long it may take, and a way to stop it."""

from __future__ import annotations

import json
import time
from typing import Final

import streamlit as st

from dashboard.jobs.studies import Run, studies
from dashboard.words.markdown import literal
from dashboard.words.numbers import counted, plain, with_unit
from engine import Scenario
from engine.whatif import Answer

__all__ = ["account", "is_slow", "progress", "searching", "searching_again", "span"]

SHOW: Final = 1.0
"""Time from which a study says how far it is [s]."""
EXECUTIONS_PER_SECOND: Final = 2.5e7
"""Executions of a space that the first search settles in a second on a small server, roughly."""
WORTH_SAYING: Final = 2.0
"""Shortest search that is announced with its time [s]."""
SLOW: Final = 0.7
"""Time of an answer from which the page says that it is being looked for [s]."""
SLOW_FIRST: Final = 3.0
"""Time of the first search of a space, which makes it ready, from which later ones are expected to be slow [s]."""
MINUTE: Final = 60.0
HOUR: Final = 3600.0


def span(seconds: float) -> str:
    """A time to wait in words: "12 s", "4 min", "1.5 h"."""
    if seconds < 1.5 * MINUTE:
        return with_unit(plain(max(1.0, round(seconds)), 2), "s")
    if seconds < 1.5 * HOUR:
        return with_unit(plain(round(seconds / MINUTE), 2), "min")
    return with_unit(plain(seconds / HOUR, 2), "h")


def searching(scenario: Scenario) -> str:
    """What is being done before anything can be shown, and for how long where that is long."""
    total = scenario.space.total
    long = total / EXECUTIONS_PER_SECOND
    tail = f"; that many may take {span(long)}" if long >= WORTH_SAYING else ""
    return f"Searching {counted(total, 'execution')} for the best{tail}"


def is_slow(answer: Answer) -> bool:
    """Whether one waits for answers of this space so long that the page should say what is going on."""
    return answer.seconds > (SLOW if answer.changes else SLOW_FIRST)


def searching_again(answer: Answer) -> str:
    """What every change of a space takes that is so large that one waits for it."""
    return f"Every change searches {counted(answer.total, 'execution')} again; the last took {span(answer.seconds)}."


def account(run: Run, left: float | None) -> str:
    """How far a study is, and how long it may yet take [s], where that is known."""
    done = f"{len(run.found)} of {counted(run.total, 'point')}"
    return done if left is None else f"{done} · {span(left)} left"


def progress(run: Run) -> None:
    """How far a study is, and a way to stop it or to go on; nothing where it is done or has just begun."""
    if run.problem:
        st.warning(literal(run.problem), icon=":material/error:")
        return
    if run.finished:
        return
    mark = str(json.loads(run.key)[1])  # what tells the widgets of one study from those of another
    if run.cancelled:
        text, button = st.columns([4, 1], vertical_alignment="center")
        text.caption(f"Stopped after {len(run.found)} of {counted(run.total, 'point')}; what was found stays.")
        button.button("Go on", type="tertiary", key=f"whatif_on_{mark}", on_click=studies().go_on, args=(run.key,),
                      width="stretch", help="Finds the points that are missing.")  # fmt: skip
        return
    if time.monotonic() - run.started < SHOW:
        return
    text, button = st.columns([5, 1], vertical_alignment="center")
    share = min(1.0, len(run.found) / max(run.total, 1))
    text.progress(share, text=account(run, studies().wait_for(run)))
    button.button("Stop", type="tertiary", key=f"whatif_stop_{mark}", on_click=studies().cancel,
                  args=(run.key,), width="stretch", help="What was found stays.")  # fmt: skip
