"""What leans on the inside of Plotly: figures that are not checked, and the library as text.

Checked with Plotly 7.1.0.
"""

from __future__ import annotations

from typing import Any, Final, cast

import plotly
import plotly.graph_objects as go
import plotly.offline

__all__ = ["VERSION", "address", "library", "unchecked"]

VERSION: Final[str] = plotly.__version__
"""Of Plotly, with which its JavaScript comes."""


def unchecked(**parts: Any) -> go.Figure:
    """Returns a figure whose parts are taken as they are: to check them takes longer than to compute them.

    The tests of charts have every figure checked. parts: `data` and `layout` of `plotly.graph_objects.Figure`.
    """
    return go.Figure(**parts, _validate=False)


def library() -> str:
    """Returns Plotly's JavaScript, which makes `Plotly` known to the page that it is written into."""
    return cast(str, plotly.offline.get_plotlyjs())


def address() -> str:
    """Returns where this server has Plotly's JavaScript, relative to the front end's first script."""
    return f"../../plotly/{VERSION}.js"
