"""Parts of a page that wait until the browser has drawn what a visitor looks at first.

A browser draws all that a run of the page sends in one go: charts further down hold up the one at the top.
"""

from __future__ import annotations

from typing import Final

import streamlit as st

__all__ = ["all_at_once"]

LONGEST: Final = 4.0
"""After how long the rest follows though neither chart nor table has appeared [s]."""

_KNOWN: Final = "_first_drawn"
_SIGNAL: Final = st.components.v2.component(
    "shardscape_first_drawn",
    js="""
export default function ({ data, setTriggerValue }) {
  const latest = performance.now() + 1000 * data.longest;
  const first = ['.js-plotly-plot .main-svg', '[data-testid=stDataFrame] canvas']
    .map(what => `[data-testid=stMain] ${what}`).join();
  let timer;
  const look = () => {
    if (document.querySelector(first) || performance.now() > latest) {
      // Not before the frame that shows it is on the screen.
      requestAnimationFrame(() => { timer = setTimeout(() => setTriggerValue('drawn', true)); });
    } else {
      timer = setTimeout(look, 20);
    }
  };
  look();
  return () => clearTimeout(timer);
}
""",
)


def all_at_once() -> bool:
    """Whether a fragment may draw everything, called once in it.

    False once per visit, in the first run for a browser, which then has the fragment run again as soon as its first
    chart or table is drawn. Should a browser not ask for it, the rest comes with the next run for any reason. What
    reads pages without drawing them, a test or a program, gets everything at once.
    """
    place = st.container(key="first_drawn")  # there every time: what follows would be drawn anew if it moved up by one
    draws = "Sec-Websocket-Key" in st.context.headers
    if not draws or st.session_state.get(_KNOWN):
        return True
    st.session_state[_KNOWN] = True
    with place:
        _SIGNAL(key=f"{_KNOWN}_signal", data={"longest": LONGEST}, height="content",
                on_drawn_change=lambda: None)  # fmt: skip
    return False
