"""What all sessions of a server share."""

from __future__ import annotations

import atexit
import logging
import os
import sys
from typing import Final

import streamlit as st

from dashboard.jobs.board import Board
from dashboard.jobs.explorations import Runner
from dashboard.jobs.searches import Apart, Here
from dashboard.settings import settings_from
from engine.exploration.workers import WorkerError

__all__ = ["board", "runner", "searches"]

LOG: Final = logging.getLogger("shardscape.server")

TURN: Final = 0.001
"""How long a thread computes while others wait [s]."""


@st.cache_resource(show_spinner=False, on_release=Board.close, max_entries=1)
def board() -> Board:
    """The one board of the server."""
    return Board()


@st.cache_resource(show_spinner=False, on_release=Runner.close, max_entries=1)
def runner() -> Runner:
    """The one runner of the server."""
    # Threads take turns of 5 ms by default: one that is needed for an instant waits as long for every page at work.
    sys.setswitchinterval(TURN)
    made = Runner(settings_from(os.environ), board())
    atexit.register(made.close)  # a server that is stopped does not release its caches
    return made


@st.cache_resource(show_spinner=False, on_release=lambda made: made.close(), max_entries=1)
def searches() -> Here:
    """What answers What-if's questions: a process of its own, unless explorations have none either."""
    made = Here()
    if runner().settings.process:
        try:
            made = Apart()
        except (OSError, WorkerError) as problem:
            LOG.warning("What-if searches beside the pages, because no process can be started: %s", problem)
    atexit.register(made.close)  # a server that is stopped does not release its caches
    return made
