"""Page content for a scenario without feasible executions: the shortfall, and the nearest changes that would help."""

from __future__ import annotations

from typing import Final

import streamlit as st

from dashboard.charts.elements import markup
from dashboard.link import page_links, state
from dashboard.queries.nearest_fit import how_far, ways
from dashboard.queries.scenario_edits import altered
from engine import Exploration

__all__ = ["nothing_runs"]

_ONWARD: Final = (
    ("memory", "What each cell needs", ":material/memory:"),
    ("explore", "Reasons on the map", ":material/grid_view:"),
    ("whatif", "Change the hardware", ":material/tune:"),
)


def nothing_runs(exploration: Exploration, here: str) -> None:
    """Draws why there is nothing to show on page `here`, and what would change that."""
    scenario = exploration.scenario
    st.warning(how_far(exploration), icon=":material/block:")
    with st.container(border=True, gap="xsmall", key="nothing_runs"):
        st.html(markup.head("What would make it run", "the nearest changes to the scenario"))
        with st.container(horizontal=True, gap="small", vertical_alignment="center"):
            found = ways(scenario, scenario.key)
            for number, (words, changes) in enumerate(found.items()):
                st.button(
                    words,
                    icon=":material/arrow_forward:",
                    key=f"nothing_runs_{number}",
                    on_click=state.set_scenario,
                    args=(altered(scenario, **changes),),
                )
            for name, words, icon in _ONWARD:
                if name != here and page_links.exists(name):
                    st.page_link(page_links.target(name), label=words, icon=icon, width="content")
        if not found:
            st.caption("Neither more GPUs nor fewer limits help; other hardware or another model might.")
