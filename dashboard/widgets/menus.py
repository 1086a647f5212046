"""Menus whose content is drawn when they are opened.

The content of a closed menu costs a message per element with every click, unseen. The browser has the content of a menu
only while that is open, so that a component in it reports the opening.
"""

from __future__ import annotations

from typing import Final

import streamlit as st

from dashboard.compat.session import in_browser

__all__ = ["OPENED", "filled", "forget"]

OPENED: Final = "_menu_opened_"
"""Prefix of the keys of menus whose content is drawn."""
_SIGNAL: Final = st.components.v2.component(
    "shardscape_menu",
    js="""
const told = new WeakSet();
export default function ({ parentElement, setTriggerValue }) {
  if (!told.has(parentElement)) {
    told.add(parentElement);
    setTriggerValue('opened', true);
  }
}
""",
)


def filled(name: str) -> bool:
    """Returns whether to draw the content of a menu, asked within it: where it was opened, as the browser then has the
    page, or the fragment, run again. What reads pages without drawing them, a test or a program, gets it at once.

    name: of the menu, unlike all others of the page.
    """
    key = OPENED + name
    if st.session_state.get(key) or not in_browser():
        return True

    def opened() -> None:
        st.session_state[key] = True

    _SIGNAL(key=f"{key}_signal", height=96, on_opened_change=opened)
    return False


def forget() -> bool:
    """Takes all menus for shut; for callbacks of what shuts them, such as a click elsewhere on the page.

    Returns whether the content of any was drawn, which is of what was before.
    """
    every = [key for key in st.session_state if str(key).startswith(OPENED) and not str(key).endswith("_signal")]
    drawn = any(st.session_state[key] for key in every)
    for key in every:
        st.session_state[key] = False
    return drawn
