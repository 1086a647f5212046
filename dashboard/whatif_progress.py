"""How far a study of the What-if page is, how long it may take, and a way to stop it."""

from __future__ import annotations

import json
import time
from typing import Final

import streamlit as st

from dashboard.format import counted, plain
from dashboard.text import literal
from dashboard.whatif_studies import Run, studies
from engine import Scenario

__all__ = ["account", "progress", "searching", "span"]

SHOW: Final = 1.0
"""Time from which a study says how far it is [s]."""
EXECUTIONS_PER_SECOND: Final = 2.5e7
"""Executions of a space that the first search settles in a second on a small server, roughly."""
WORTH_SAYING: Final = 2.0
"""Shortest search that is announced with its time [s]."""
MINUTE: Final = 60.0
HOUR: Final = 3600.0


def span(seconds: float) -> str:
    """A time to wait in words: "12 s", "4 min", "1.5 h"."""
    if seconds < 1.5 * MINUTE:
        return f"{plain(max(1.0, round(seconds)), 2)} s"
    if seconds < 1.5 * HOUR:
        return f"{plain(round(seconds / MINUTE), 2)} min"
    return f"{plain(seconds / HOUR, 2)} h"


def searching(scenario: Scenario) -> str:
    """What is being done before anything can be shown, and for how long where that is long."""
    total = scenario.space.total
    long = total / EXECUTIONS_PER_SECOND
    tail = f"; that many may take {span(long)}" if long >= WORTH_SAYING else ""
    return f"Searching {counted(total, 'execution')} for the best{tail}"


def account(run: Run, each: float, sharing: int) -> str:
    """How far a study is, and how long it may yet take.

    Args:
        each: seconds of a point, as long as none was found.
        sharing: studies that are under way, this one among them.
    """
    done = len(run.found)
    if done:
        each = run.spent / done
    left = span((run.total - done) * each * max(1, sharing))
    if not done:
        return f"{counted(run.total, 'point')} · may take {left}"
    return f"{done} of {counted(run.total, 'point')} · {left} left"


def progress(run: Run, each: float) -> None:
    """How far a study is, and a way to stop it; nothing where it is done or has just begun. each: as for `account`."""
    if run.problem:
        st.warning(literal(run.problem), icon=":material/error:")
        return
    if run.finished:
        return
    mark = str(json.loads(run.key)[1])  # what tells the widgets of one study from those of another
    if run.cancelled:
        text, button = st.columns([4, 1], vertical_alignment="center")
        text.caption(f"Stopped after {len(run.found)} of {counted(run.total, 'point')}.")
        button.button("Start again", type="tertiary", key=f"whatif_again_{mark}", on_click=studies().restart,
                      args=(run.key,), width="stretch")  # fmt: skip
        return
    if time.monotonic() - run.started < SHOW and run.total * each < SHOW:
        return
    text, button = st.columns([5, 1], vertical_alignment="center")
    share = min(1.0, len(run.found) / max(run.total, 1))
    text.progress(share, text=account(run, each, studies().running))
    button.button("Stop", type="tertiary", key=f"whatif_stop_{mark}", on_click=studies().cancel,
                  args=(run.key,), width="stretch")  # fmt: skip
