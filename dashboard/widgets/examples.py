"""Questions to start from, in one line above the first page until they are dismissed.

The browser remembers the dismissal in a cookie that `dashboard/shell/behaviour.js` sets: the server has no accounts,
and one visitor's dismissal must not hide them from others.
"""

from __future__ import annotations

from html import escape
from typing import Any, Final

import streamlit as st

from dashboard.charts.elements.advice import card_text
from dashboard.link import page_links, scenario_parameters, state
from dashboard.link.examples import EXAMPLES, Example
from dashboard.widgets.clicks import was_clicked
from dashboard.widgets.window import is_narrow
from engine import Scenario

__all__ = ["draw_examples"]

COOKIE: Final = "shardscape_examples"
"""The cookie that a browser has once the examples were dismissed."""
_VALUE: Final = "dismissed"
_DISMISSED: Final = "_examples_dismissed"


def draw_examples(scenario: Scenario) -> None:
    """Draws the line if one of the examples is shown, for visitors who have not dismissed them.

    scenario: of the page.
    """
    if st.session_state.get(_DISMISSED) or st.context.cookies.get(COOKIE) == _VALUE:
        return
    shown = _shown_example(scenario)
    if shown is None:
        return
    others = [example for example in EXAMPLES if example is not shown]
    if is_narrow():
        with st.popover("Other examples", icon=":material/lightbulb:", type="tertiary", key="examples"):
            for example in others:
                st.html(card_text(example.kind, example.title, example.about))
                _draw_opener(example, "Open")
            _draw_dismiss_button("Dismiss the examples")
        return
    with st.container(horizontal=True, gap="small", vertical_alignment="center", key="examples"):
        st.html(f'<span class="ss-examples">Example: {escape(shown.title)}. Others:</span>', width="content")
        for example in others:
            _draw_opener(example, example.title)
        _draw_dismiss_button(":material/close:")


def _shown_example(scenario: Scenario) -> Example | None:
    """The example that the page is about; None where it is about something else."""
    for example in EXAMPLES:
        if example.page == page_links.START:
            own = scenario_parameters.read_scenario(example.parameters)
            if own.scenario.key == scenario.key:
                return example
    return None


def _draw_opener(example: Example, label: str) -> None:
    """Draw the button that opens an example. label: on the button."""
    settings: dict[str, Any] = {
        "icon": ":material/arrow_forward:",
        "type": "tertiary",
        "key": f"example_{example.name}",
        "help": f"{example.kind}: {example.about}",
    }
    if example.page == page_links.START:
        st.button(label, on_click=_open_example, args=(example,), **settings)
    elif page_links.exists(example.page) and was_clicked(label, **settings):
        found = state.before_switching(lambda: state.set_url_values(example.parameters), list(example.parameters))
        st.switch_page(page_links.target(example.page), query_params=found)


def _open_example(example: Example) -> None:
    state.open_scenario(scenario_parameters.read_scenario(example.parameters).scenario, {})


def _draw_dismiss_button(label: str) -> None:
    """Draws the button. label: words, or an icon."""

    def dismissed() -> None:
        st.session_state[_DISMISSED] = True

    words = "Dismiss the examples"
    st.button(
        label, type="tertiary", key="examples_dismiss", on_click=dismissed, help=None if label == words else words
    )
