"""What leans on the inside of Plotly: figures that are not checked, and the library as text.

Checked with Plotly 7.1.0, whose JavaScript is plotly.js 4.1.1; `plotly_bundle` has the part of it that charts take.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Any, Final, cast

import plotly
import plotly.graph_objects as go
import plotly.offline

__all__ = ["BUNDLED", "VERSION", "address", "bundle", "library", "name", "unchecked"]

VERSION: Final[str] = plotly.__version__
"""Of Plotly, with which its JavaScript comes."""
BUNDLED: Final = frozenset({"bar", "heatmap", "scatter"})
"""Kinds of traces that the bundle draws; what has any other kind takes the whole library."""


def unchecked(**parts: Any) -> go.Figure:
    """Returns a figure whose parts are taken as they are: to check them takes longer than to compute them.

    The tests of charts have every figure checked. parts: `data` and `layout` of `plotly.graph_objects.Figure`.
    """
    return go.Figure(**parts, _validate=False)


def library() -> str:
    """Returns Plotly's JavaScript, which makes `Plotly` known to the page that it is written into."""
    return cast(str, plotly.offline.get_plotlyjs())


@cache
def bundle() -> str:
    """Returns the part of Plotly's JavaScript that draws `BUNDLED`, and makes `Plotly` known likewise.

    A browser compiles and runs all of what it reads before it draws: for the whole library that takes a second.
    """
    return (Path(__file__).parent / "plotly_bundle" / "plotly.min.js").read_text(encoding="utf-8")


@cache
def name(*, whole: bool = False) -> str:
    """Returns what this server calls the bundle, or the whole library: another name where the text is another."""
    mark = VERSION if whole else f"charts-{hashlib.sha256(bundle().encode()).hexdigest()[:12]}"
    return f"plotly/{mark}.js"


def address(figure: go.Figure | None = None) -> str:
    """Returns where this server has the JavaScript for a figure, relative to the front end's first script.

    figure: whose traces are drawn, of `BUNDLED` where None.
    """
    return f"../../{name(whole=figure is not None and any(trace.type not in BUNDLED for trace in figure.data))}"
