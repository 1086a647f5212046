"""Explore: the whole space as a map, the best execution, what each choice costs."""

import streamlit as st

from dashboard import state
from dashboard.explore_view import headline, overview

exploration = state.require_exploration()
best = exploration.best
if best is not None:
    headline(exploration, best)
else:
    st.warning(
        "Nothing fits: none of the executions can run on this system. "
        "The map says how far each cell is from fitting; click one for the nearest change that would help.",
        icon=":material/block:",
    )
overview(exploration)
