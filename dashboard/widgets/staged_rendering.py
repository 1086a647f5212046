"""Parts of a page that wait until the browser has drawn what a visitor looks at first.

A browser draws all that a run of the page sends in one go: charts further down hold up the one at the top.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Final

import streamlit as st

from dashboard.compat import front_end
from dashboard.compat.session import in_browser

__all__ = ["Stage", "after_drawing", "stage"]

LONGEST: Final = 2.0
"""Time after which the next stage follows although none of the awaited elements has appeared [s]."""


class Stage(IntEnum):
    """Extent of a page that a run draws."""

    FIRST = 0
    """Main chart of a page, under a preview that a browser can show at once."""
    WHOLE = 1


_AWAITED: Final = (front_end.DRAWN, front_end.DATA_GRID)
"""Elements of which the first to appear starts the drawing of the whole page."""
_KNOWN: Final = "_first_drawn"
_SIGNAL: Final = st.components.v2.component(
    "shardscape_first_drawn",
    js="""
export default function ({ data, setTriggerValue }) {
  const latest = performance.now() + 1000 * data.longest;
  const first = data.awaited.map(what => `${data.page} ${what}`).join();
  let timer;
  const look = () => {
    if (document.querySelector(first) || performance.now() > latest) {
      // Not before the frame that shows it is on the screen.
      requestAnimationFrame(() => { timer = setTimeout(() => {
        setTriggerValue('drawn', true);
      }); });
    } else {
      timer = setTimeout(look, 20);
    }
  };
  look();
  return () => clearTimeout(timer);
}
""",
)


def after_drawing(key: str, then: Callable[[], None]) -> None:
    """Have a browser call back once it has drawn the page's main element.

    key: of this place. then: callback; it may run fragments again.
    """
    if in_browser():
        with st.container(key=key):
            told = {"longest": LONGEST, "awaited": _AWAITED, "page": front_end.MAIN}
            _SIGNAL(key=f"{key}_signal", data=told, height="content", on_drawn_change=then)


def stage() -> Stage:
    """Returns the extent that a fragment may draw; called once in it.

    The first run for a browser is `FIRST`, and has the fragment run again as soon as its content is on the screen.
    Should a browser not ask for it, the rest comes with the next run for any reason. A reader without a browser, such
    as a test or a program, gets everything at once.
    """
    place = st.container(key="first_drawn")  # there every time: what follows would be drawn anew if it moved up by one
    draws = in_browser()
    now = Stage(st.session_state.get(_KNOWN, Stage.FIRST)) if draws else Stage.WHOLE
    if now is not Stage.WHOLE:
        st.session_state[_KNOWN] = Stage.WHOLE
        with place:
            told = {"longest": LONGEST, "awaited": _AWAITED, "page": front_end.MAIN}
            _SIGNAL(key=f"{_KNOWN}_signal", data=told, height="content", on_drawn_change=lambda: None)
    return now
