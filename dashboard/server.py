"""What all sessions of a server share."""

from __future__ import annotations

import os

import streamlit as st

from dashboard.runner import Runner
from dashboard.settings import settings_from

__all__ = ["runner"]


@st.cache_resource(show_spinner=False, on_release=Runner.close, max_entries=1)
def runner() -> Runner:
    """The one runner of the server."""
    return Runner(settings_from(os.environ))
