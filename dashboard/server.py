"""What all sessions of a server share."""

from __future__ import annotations

import atexit
import logging
import os
import sys
from typing import Final

import streamlit as st

from dashboard.runner import Runner
from dashboard.settings import settings_from
from dashboard.user_files import UserFiles
from dashboard.whatif_process import Apart, Here
from engine.parallel import WorkerError

__all__ = ["runner", "searches", "user_files"]

LOG: Final = logging.getLogger("shardscape.server")

TURN: Final = 0.001
"""How long a thread computes while others wait [s]."""


@st.cache_resource(show_spinner=False, on_release=Runner.close, max_entries=1)
def runner() -> Runner:
    """The one runner of the server."""
    # Threads take turns of 5 ms by default: one that is needed for an instant waits as long for every page at work.
    sys.setswitchinterval(TURN)
    made = Runner(settings_from(os.environ))
    atexit.register(made.close)  # a server that is stopped does not release its caches
    return made


@st.cache_resource(show_spinner=False, max_entries=1)
def user_files() -> UserFiles:
    """Own models and systems, and saved scenarios: files beside the store."""
    store = settings_from(os.environ).store
    return UserFiles(None if store is None else store.with_suffix(".user"))


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
