"""What leans on the inside of Plotly: figures that are not checked, and the library as text, or what charts take of it.

Checked with Plotly 7.1.0, whose JavaScript is plotly.js 4.1.1.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from itertools import islice
from typing import Any, Final, cast

import plotly
import plotly.graph_objects as go
import plotly.offline
from _plotly_utils.utils import convert_to_base64

__all__ = ["PROMPT", "VERSION", "address", "as_json", "library", "name", "prompt_library", "unchecked"]

VERSION: Final[str] = plotly.__version__
"""Of Plotly, with which its JavaScript comes."""
PROMPT: Final = frozenset({"bar", "heatmap", "scatter"})
"""Kinds of traces that most charts consist of."""
_CALL: Final = r"[\w$]+\(\)"
"""A module of the library, which is run when it is first called."""


def unchecked(**parts: Any) -> go.Figure:
    """Returns a figure whose parts are taken as they are: to check them takes longer than to compute them.

    The tests of charts have every figure checked. parts: `data` and `layout` of `plotly.graph_objects.Figure`.
    """
    return go.Figure(**parts, _validate=False)


def as_json(figure: go.Figure) -> str:
    """Returns a figure that is not needed any more as its `to_json(validate=False)` does, arrays as bytes.

    That one copies the whole figure first, which was an eighth of the server's work for a page with charts.
    """
    parts = {"data": figure._data, "layout": figure._layout}
    convert_to_base64(parts)
    return cast(str, plotly.io.to_json(parts, validate=False))


def library() -> str:
    """Returns Plotly's JavaScript, which makes `Plotly` known to the page that it is written into."""
    return cast(str, plotly.offline.get_plotlyjs())


@cache
def prompt_library() -> str:
    """Returns the library, in which no other kinds of traces than `PROMPT` are made ready to be drawn.

    A browser has some forty kinds ready, maps of the world and solids among them, before it draws the first bar, which
    is half or more of what starting the library takes. Where the list of kinds is not found, this is all of it.
    """
    text = library()
    listed = re.search(rf"\.register\(\[((?:{_CALL},?){{20,}})\]\)", text)
    if listed is None:
        return text
    wanted = (call for call in re.findall(_CALL, listed[1]) if _kind(text, call) in PROMPT)
    kept = list(islice(wanted, len(PROMPT) - 1))  # points and lines come with the core
    if len(kept) < len(PROMPT) - 1:
        return text
    return text[: listed.start(1)] + ",".join(kept) + text[listed.end(1) :]


def _kind(text: str, call: str) -> str | None:
    """Returns the kind of traces that a module makes ready; None of what is no such module."""
    for module in _led_to(text, call):
        if found := re.search(r'moduleType:"trace",name:"(\w+)"', module):
            return found[1]
    return None


def _led_to(text: str, call: str) -> Iterator[str]:
    """Yields the beginning of a module, and of those that it only stands for."""
    for _ in range(3):
        begun = re.search(rf"[,; ]{re.escape(call.removesuffix('()'))}=[\w$]+\(\(", text)
        if begun is None:
            return
        module = text[begun.start() : begun.start() + 4000]
        yield module
        onward = re.match(rf"[^{{]*\{{\"use strict\";[\w$]+\.exports=({_CALL})\}}\)", module)
        if onward is None:
            return
        call = onward[1]


def name(*, whole: bool = False) -> str:
    """Returns what this server calls the library, or all of it where `whole`."""
    return f"plotly/{VERSION}{'' if whole else '-prompt'}.js"


def address(figure: go.Figure | None = None) -> str:
    """Returns where this server has the JavaScript for a figure, relative to the front end's first script.

    figure: whose traces are drawn, of `PROMPT` where None.
    """
    return f"../../{name(whole=figure is not None and any(trace.type not in PROMPT for trace in figure.data))}"
