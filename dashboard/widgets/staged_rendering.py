"""Parts of a page that wait until the browser has drawn what a visitor looks at first.

A browser draws all that a run of the page sends in one go: charts further down hold up the one at the top.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import streamlit as st

from dashboard.compat import front_end, plotly_figures
from dashboard.compat.session import in_browser

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
    Stage.PICTURE: (".ss-still i", front_end.DRAWN, front_end.DATA_GRID),
    Stage.CHART: (front_end.DRAWN, front_end.DATA_GRID),
}
"""What has been drawn when the next stage follows: the first of these to appear."""
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
        setTriggerValue('drawn', data.stage);
        const own = document.querySelector(data.script);
        if (own) {
          const ahead = Object.assign(document.createElement('link'), {rel: 'preload', as: 'script'});
          ahead.href = new URL(data.reads, own.src);
          document.head.append(ahead);
        }
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


def stage() -> Stage:
    """Returns how much a fragment may draw, called once in it.

    The first run for a browser is of `PICTURE`, and has the fragment run again as soon as what it draws is on the
    screen; so does the second, of `CHART`. Should a browser not ask for it, the rest comes with the next runs for any
    reason. What reads pages without drawing them, a test or a program, gets everything at once.
    """
    place = st.container(key="first_drawn")  # there every time: what follows would be drawn anew if it moved up by one
    draws = in_browser()
    now = Stage(st.session_state.get(_KNOWN, Stage.PICTURE)) if draws else Stage.WHOLE
    if now is not Stage.WHOLE:
        st.session_state[_KNOWN] = now + 1
        with place:
            # The browser reads Plotly while the server draws what follows the picture; untold, it would do so later.
            told = {
                "longest": LONGEST, "stage": now, "awaited": _AWAITED[now], "page": front_end.MAIN,
                "script": front_end.SCRIPT, "reads": plotly_figures.address(),
            }  # fmt: skip
            _SIGNAL(key=f"{_KNOWN}_signal", data=told, height="content", on_drawn_change=lambda: None)
    return now
