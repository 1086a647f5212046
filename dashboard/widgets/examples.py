"""Cards with questions to start from, above the first page until they are dismissed.

The browser remembers the dismissal in a cookie that `dashboard/shell/behaviour.js` sets: the server has no accounts,
and one visitor's dismissal must not hide the cards from others.
"""

from __future__ import annotations

from typing import Final

import streamlit as st

from dashboard.charts.elements.advice import card_text
from dashboard.link import page_links, scenario_parameters, state
from dashboard.link.examples import EXAMPLES, Example
from dashboard.widgets.clicks import was_clicked
from dashboard.widgets.window import is_narrow
from engine import Scenario

__all__ = ["cards"]

COOKIE: Final = "shardscape_examples"
"""The cookie that a browser has once the cards were dismissed."""
_VALUE: Final = "dismissed"
_DISMISSED: Final = "_examples_dismissed"


def cards(scenario: Scenario) -> None:
    """Draws the cards if one of the examples is shown, for visitors who have not dismissed them.

    scenario: of the page.
    """
    if st.session_state.get(_DISMISSED) or st.context.cookies.get(COOKIE) == _VALUE:
        return
    shown = _shown_example(scenario)
    if shown is None:
        return
    if is_narrow():
        with st.popover("Other examples", icon=":material/lightbulb:", type="tertiary", key="examples"):
            for example in EXAMPLES:
                if example is not shown:
                    _draw_card(example, shown=False)
            _draw_dismiss_button()
        return
    with st.container(key="examples"):
        *places, last = st.columns([*(1.0 for _ in EXAMPLES), 0.06], gap="small")
        for place, example in zip(places, EXAMPLES, strict=True):
            with place.container(border=True, gap=None, height="stretch"):
                _draw_card(example, shown=example is shown)
        with last:
            _draw_dismiss_button(bare=True)


def _shown_example(scenario: Scenario) -> Example | None:
    """The example that the page is about; None where it is about something else."""
    for example in EXAMPLES:
        if example.page == page_links.START:
            own = scenario_parameters.read_scenario(example.parameters)
            if own.scenario.key == scenario.key:
                return example
    return None


def _draw_card(example: Example, *, shown: bool) -> None:
    st.html(card_text(example.kind, example.title, example.about))
    if shown:
        st.markdown(":small[Shown below]")
    elif example.page == page_links.START:
        st.button(
            "Open",
            icon=":material/arrow_forward:",
            type="tertiary",
            key=f"example_{example.name}",
            on_click=_open_example,
            args=(example,),
            help=f"{example.kind}: {example.title}",
        )
    elif page_links.exists(example.page) and was_clicked(
        "Open",
        icon=":material/arrow_forward:",
        type="tertiary",
        key=f"example_{example.name}",
        help=f"{example.kind}: {example.title}",
    ):
        found = state.before_switching(lambda: state.set_url_values(example.parameters), list(example.parameters))
        st.switch_page(page_links.target(example.page), query_params=found)


def _open_example(example: Example) -> None:
    state.open_scenario(scenario_parameters.read_scenario(example.parameters).scenario, {})


def _draw_dismiss_button(*, bare: bool = False) -> None:
    """Draws the button. bare: without words on it."""

    def dismissed() -> None:
        st.session_state[_DISMISSED] = True

    words = "Dismiss the examples"
    st.button(
        ":material/close:" if bare else words,
        icon=None if bare else ":material/close:",
        type="tertiary",
        key="examples_dismiss",
        on_click=dismissed,
        help=words if bare else None,
    )
