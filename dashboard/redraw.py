"""The parts of the Explore page that run again by themselves, so that a click draws what it changes and no more.

Each is a fragment under one of these keys. The functions end a widget's callback by naming those that run; the widget
may lie in any of them, or in none.
"""

from __future__ import annotations

from typing import Final, NoReturn

import streamlit as st
from streamlit.errors import StreamlitAPIException
from streamlit.runtime.scriptrunner import get_script_run_ctx

__all__ = [
    "CELLS", "COSTS", "DOWNLOAD", "MAP", "METRICS", "PAGE", "PANEL", "TERMS", "execution", "metric", "page",
    "selection", "was_selection",
]  # fmt: skip

PAGE: Final = "explore_page_part"
"""All of them."""
MAP: Final = "explore_map_part"
PANEL: Final = "explore_panel_part"
COSTS: Final = "explore_costs_part"
DOWNLOAD: Final = "explore_download_part"
TERMS: Final = "explore_terms_part"
METRICS: Final = "explore_metrics_part"
"""The list of every metric."""
CELLS: Final = "explore_cells_part"
"""The list of every cell."""
_SELECTED: Final = "_explore_selected"


def selection() -> None:
    """After a cell was selected. The panel comes first: it is what is waited for."""
    st.session_state[_SELECTED] = True
    _run(PANEL, MAP, CELLS, DOWNLOAD)


def execution() -> None:
    """After an execution of the cell that is shown was selected, and with it the cell, if none was."""
    _run(PANEL, DOWNLOAD, CELLS)


def was_selection() -> bool:
    """Whether something was selected since this was asked last."""
    return bool(st.session_state.pop(_SELECTED, False))


def metric() -> None:
    """After one metric of which the exploration keeps the cells was chosen in the place of another."""
    _run(MAP, PANEL, COSTS, TERMS, METRICS)


def page() -> NoReturn:
    """After a change of what all parts show."""
    st.rerun(PAGE)


def _run(*parts: str) -> None:
    context = get_script_run_ctx(suppress_warning=True)
    if context is not None and not context.fragment_ids_this_run:
        return  # everything runs, as the browser went back or to another page meanwhile: that must not be cut short
    try:
        st.rerun(list(parts))
    except StreamlitAPIException:  # not all of them are drawn yet, or are while the page waits for something
        st.rerun(PAGE)
