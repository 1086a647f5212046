"""Width of the browser's window: on a phone, or magnified, charts put names above their bars.

Streamlit does not give it to a page's script. A component in the browser does, and runs the page again if it differs
from the script's assumption: a phone, by its headers, counts as narrow from the first run on.
"""

from __future__ import annotations

from typing import Final

import streamlit as st

from dashboard.compat.session import in_browser

__all__ = ["NARROW", "is_narrow", "watch"]

NARROW: Final = 800
"""Windows of at most this width are narrow [px]; the style sheets lay out by the same width."""

_KNOWN: Final = "_narrow"
_SIGNAL: Final = "_narrow_signal"
_WATCH: Final = st.components.v2.component(
    "shardscape_window",
    js="""
export default function ({ data, setStateValue }) {
  const query = matchMedia(`(max-width: ${data.narrow}px)`);
  const tell = () => { if (query.matches !== data.known) setStateValue('narrow', query.matches); };
  query.addEventListener('change', tell);
  tell();
  return () => query.removeEventListener('change', tell);
}
""",
)


def watch() -> None:
    """Make the browser report when its window becomes narrow or wide; call it once per run of a page.

    What reads pages without drawing them, a test or a program, is not asked.
    """
    if in_browser():
        told = {"narrow": NARROW, "known": is_narrow()}
        _WATCH(key=_SIGNAL, data=told, height="content", on_narrow_change=_store_narrowness)


def is_narrow() -> bool:
    """Returns whether the window is narrow, as far as that is known."""
    if _KNOWN not in st.session_state:
        st.session_state[_KNOWN] = "Mobi" in st.context.headers.get("User-Agent", "")
    return bool(st.session_state[_KNOWN])


def _store_narrowness() -> None:
    st.session_state[_KNOWN] = bool(st.session_state[_SIGNAL].narrow)
