"""What leans on the inside of Plotly: how it writes arrays, and the library as text, or what charts take of it.

Checked with Plotly 7.1.0, whose JavaScript is plotly.js 4.1.1.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import islice
from typing import Any, Final, cast

import numpy as np
import pandas as pd
import plotly
import plotly.io
import plotly.offline
from plotly.basedatatypes import convert_to_base64

__all__ = ["PROMPT", "VERSION", "address", "as_json", "library", "name", "prompt_library"]

VERSION: Final[str] = plotly.__version__
"""Of Plotly, with which its JavaScript comes."""
PROMPT: Final = frozenset({"bar", "heatmap", "scatter"})
"""Kinds of traces that most charts consist of."""
_CALL: Final = r"[\w$]+\(\)"
"""A module of the library, which is run when it is first called."""


def as_json(traces: Iterable[Mapping[str, Any]], layout: Mapping[str, Any]) -> str:
    """Returns what is drawn as `plotly.graph_objects.Figure.to_json` does, arrays as bytes, without looking at each
    property, which takes longer than to compute most of them."""
    return cast(str, plotly.io.to_json(_packed({"data": list(traces), "layout": layout}), validate=False))


def _packed(part: Any) -> Any:
    """Returns a part of a figure with its arrays as bytes.

    `convert_to_base64` looks into every element of every list. The elements of a list are taken to be of one kind here,
    so that a list of numbers or texts is left as it is.
    """
    if isinstance(part, Mapping):
        return {name: _bytes_of(name, value) if isinstance(value, np.ndarray | pd.Series | pd.Index | pd.DataFrame)
                else _packed(value) for name, value in part.items()}  # fmt: skip
    if isinstance(part, list | tuple) and part and isinstance(part[0], Mapping | list | tuple):
        return [_packed(each) for each in part]
    return part


def _bytes_of(name: str, array: Any) -> Any:
    """Returns an array as Plotly writes the property of that name: some stay lists of numbers."""
    if isinstance(array, pd.DataFrame) or isinstance(array.dtype, np.dtype):
        array = np.asarray(array)  # Plotly takes twice as long to tell the kind of one of pandas
    found = {name: array}
    convert_to_base64(found)
    return found[name]


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


def address(kinds: Iterable[str] = ()) -> str:
    """Returns where this server has the JavaScript for traces of some kinds, such as "bar", relative to the front end's
    first script."""
    return f"../../{name(whole=not PROMPT.issuperset(kinds))}"
