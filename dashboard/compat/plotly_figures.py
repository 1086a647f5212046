"""Figures as JSON, and the JavaScript that draws them.

Checked with Plotly 7.1.0, whose JavaScript is plotly.js 4.1.1. Arrays of numbers are sent as plotly.js' typed arrays:
code of the type, bytes in base64, and shape.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt
import pandas as pd
import plotly.io
import plotly.offline

from dashboard.settings import STATIC

__all__ = ["CARTESIAN", "VERSION", "address", "as_json", "file_name", "javascript"]

VERSION: Final = "4.1.1"
"""Version of plotly.js, of the installed Plotly and of the vendored build; a test keeps them equal."""
_PLANE: Final = ("bar", "box", "contour", "heatmap", "histogram", "histogram2d", "histogram2dcontour", "violin")
CARTESIAN: Final = frozenset((*_PLANE, "image", "pie", "scatter", "scatterternary"))
"""Kinds of traces in plotly.js-cartesian-dist-min, a third of the size of the full library (npm, MIT licence).

Parallel coordinates are not among them.
"""
_CODES: Final = frozenset(("|i1", "|u1", "<i2", "<u2", "<i4", "<u4", "<f4", "<f8"))
"""Types of numbers, by byte order, kind and size, that plotly.js takes as bytes."""
_LISTS: Final = frozenset(("geojson", "layer", "layers", "range"))
"""Properties that plotly.js reads as lists only."""
_CARTESIAN: Final = STATIC / f"plotly-cartesian-{VERSION}.min.js"


def as_json(traces: Iterable[Mapping[str, Any]], layout: Mapping[str, Any]) -> str:
    """Return a figure as JSON, as `plotly.graph_objects.Figure.to_json` does, with arrays as bytes and without
    validation, which takes longer than most figures take to compute."""
    return cast(str, plotly.io.to_json(_pack_arrays({"data": list(traces), "layout": layout}), validate=False))


def _pack_arrays(part: Any, name: str = "") -> Any:
    """Return a part of a figure with its arrays as bytes.

    The elements of a list are assumed to be of one kind, so that lists of numbers or texts are not searched.

    Args:
        part: of the figure.
        name: of the property that it is, in its parent.
    """
    if isinstance(part, Mapping):
        return {each: _pack_arrays(value, each) for each, value in part.items()}
    if isinstance(part, list | tuple) and part and isinstance(part[0], Mapping | list | tuple):
        return [_pack_arrays(each) for each in part]
    if isinstance(part, np.ndarray | pd.Series | pd.Index | pd.DataFrame):
        values = np.asarray(part)
        return values if name in _LISTS else _typed_array(values)
    return part


def _typed_array(values: npt.NDArray[Any]) -> Any:
    """Return an array as plotly.js reads typed arrays; unchanged if it is empty or not of numbers."""
    if values.dtype.kind in "iu" and values.itemsize == 8 and values.size:
        # JavaScript has no typed arrays of 64-bit integers.
        lowest, highest = values.min(), values.max()
        for size in (1, 2, 4):
            narrower = np.dtype(f"{values.dtype.kind}{size}")
            bounds = np.iinfo(narrower)
            if bounds.min <= lowest and highest <= bounds.max:
                values = values.astype(narrower)
                break
    if values.dtype.str not in _CODES or not values.size:
        return values
    typed = {"dtype": values.dtype.str[1:], "bdata": base64.b64encode(values.tobytes()).decode("ascii")}
    return typed if values.ndim == 1 else {**typed, "shape": str(values.shape)[1:-1]}


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
