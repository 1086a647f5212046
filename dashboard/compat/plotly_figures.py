"""Figures as JSON by Plotly's private encoder, and the JavaScript that draws them.

Checked with Plotly 7.1.0, whose JavaScript is plotly.js 4.1.1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

import numpy as np
import pandas as pd
import plotly.io
import plotly.offline
from plotly.basedatatypes import convert_to_base64

from dashboard.settings import STATIC

__all__ = ["CARTESIAN", "VERSION", "address", "as_json", "file_name", "javascript"]

VERSION: Final = "4.1.1"
"""Version of plotly.js, of the installed Plotly and of the vendored build; a test keeps them equal."""
_PLANE: Final = ("bar", "box", "contour", "heatmap", "histogram", "histogram2d", "histogram2dcontour", "violin")
CARTESIAN: Final = frozenset((*_PLANE, "image", "pie", "scatter", "scatterternary"))
"""Kinds of traces in plotly.js-cartesian-dist-min, a third of the size of the full library (npm, MIT licence).

Parallel coordinates are not among them.
"""
_CARTESIAN: Final = STATIC / f"plotly-cartesian-{VERSION}.min.js"


def as_json(traces: Iterable[Mapping[str, Any]], layout: Mapping[str, Any]) -> str:
    """Return a figure as JSON, as `plotly.graph_objects.Figure.to_json` does, with arrays as bytes and without
    validation, which takes longer than most figures take to compute."""
    return cast(str, plotly.io.to_json(_pack_arrays({"data": list(traces), "layout": layout}), validate=False))


def _pack_arrays(part: Any) -> Any:
    """Returns a part of a figure with its arrays as bytes.

    `convert_to_base64` looks into every element of every list. The elements of a list are taken to be of one kind here,
    so that a list of numbers or texts is left as it is.
    """
    if isinstance(part, Mapping):
        return {
            name: _bytes_of(name, value)
            if isinstance(value, np.ndarray | pd.Series | pd.Index | pd.DataFrame)
            else _pack_arrays(value)
            for name, value in part.items()
        }
    if isinstance(part, list | tuple) and part and isinstance(part[0], Mapping | list | tuple):
        return [_pack_arrays(each) for each in part]
    return part


def _bytes_of(name: str, array: Any) -> Any:
    """Returns an array as Plotly writes the property of that name: some stay lists of numbers."""
    if isinstance(array, pd.DataFrame) or isinstance(array.dtype, np.dtype):
        array = np.asarray(array)  # Plotly takes twice as long to tell the kind of one of pandas
    found = {name: array}
    convert_to_base64(found)
    return found[name]


def javascript(kinds: Iterable[str] | None = None) -> str:
    """Return the JavaScript that draws traces of some kinds and sets `Plotly` on the page it is written into.

    Args:
        kinds: of traces, such as "bar"; None for every kind that Plotly has.
    """
    if _is_cartesian(kinds):
        return _CARTESIAN.read_text(encoding="utf-8")
    return cast(str, plotly.offline.get_plotlyjs())


def file_name(kinds: Iterable[str] | None = None) -> str:
    """Return the name under which this server offers `javascript(kinds)`."""
    return f"plotly/{VERSION}{'-cartesian' if _is_cartesian(kinds) else ''}.js"


def address(kinds: Iterable[str] = ()) -> str:
    """Return the address of `javascript(kinds)` relative to the front end's first script."""
    return f"../../{file_name(kinds)}"


def _is_cartesian(kinds: Iterable[str] | None) -> bool:
    return kinds is not None and CARTESIAN.issuperset(kinds)
