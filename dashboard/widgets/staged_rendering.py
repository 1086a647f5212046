"""Parts of a page that wait until the browser has drawn what a visitor looks at first.

A browser draws all that a run of the page sends in one go: charts further down hold up the one at the top.
"""

from __future__ import annotations

from enum import IntEnum
from functools import cache
from pathlib import Path
from typing import Final

import streamlit as st

__all__ = ["Stage", "stage"]

LONGEST: Final = 2.0
"""After how long the next stage follows though nothing of what it waits for has appeared [s]."""


class Stage(IntEnum):
    """How much of a page a run draws."""

    PICTURE = 0
    """What a browser can show at once: no charts, where pictures stand for them."""
    CHART = 1
    """Besides, the chart that is looked at first."""
    WHOLE = 2


_AWAITED: Final = {
    Stage.PICTURE: (".ss-still i", ".js-plotly-plot .main-svg", "[data-testid=stDataFrame] canvas"),
    Stage.CHART: (".js-plotly-plot .main-svg", "[data-testid=stDataFrame] canvas"),
}
"""What has been drawn when the next stage follows: the first of these to appear."""
_KNOWN: Final = "_first_drawn"
_SIGNAL: Final = st.components.v2.component(
    "shardscape_first_drawn",
    js="""
export default function ({ data, setTriggerValue }) {
  const latest = performance.now() + 1000 * data.longest;
  const first = data.awaited.map(what => `[data-testid=stMain] ${what}`).join();
  let timer;
  const look = () => {
    if (document.querySelector(first) || performance.now() > latest) {
      // Not before the frame that shows it is on the screen.
      requestAnimationFrame(() => { timer = setTimeout(() => {
        setTriggerValue('drawn', data.stage);
        const own = document.querySelector('script[type=module][src*="/js/"]');
        if (own && data.reads) { import(new URL(data.reads, own.src)).catch(() => {}); }
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


@cache
def _plotly() -> str:
    """The script of Streamlit that has Plotly in it, beside its main one; empty if it cannot be told.

    The browser reads it while the server draws what follows the picture; were it not told to, it would do so later.
    """
    found = [path.name for path in (Path(st.__file__).parent / "static/static/js").glob("PlotlyChart.*.js")]
    return f"./{found[0]}" if len(found) == 1 else ""


def stage() -> Stage:
    """How much a fragment may draw, called once in it.

    The first run for a browser is of `PICTURE`, and has the fragment run again as soon as what it draws is on the
    screen; so does the second, of `CHART`. Should a browser not ask for it, the rest comes with the next runs for any
    reason. What reads pages without drawing them, a test or a program, gets everything at once.
    """
    place = st.container(key="first_drawn")  # there every time: what follows would be drawn anew if it moved up by one
    draws = "Sec-Websocket-Key" in st.context.headers
    now = Stage(st.session_state.get(_KNOWN, Stage.PICTURE)) if draws else Stage.WHOLE
    if now is not Stage.WHOLE:
        st.session_state[_KNOWN] = now + 1
        with place:
            told = {"longest": LONGEST, "stage": now, "awaited": _AWAITED[now], "reads": _plotly()}
            _SIGNAL(key=f"{_KNOWN}_signal", data=told, height="content", on_drawn_change=lambda: None)
    return now
