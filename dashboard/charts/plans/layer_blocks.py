"""Layers as segments: which layers are alike, and the strategies that the plan chose for the blocks of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any, Final

import pandas as pd

from dashboard.charts.elements.palette import TIME_KINDS, palette
from dashboard.charts.elements.template import Chart, base, name_rows
from dashboard.words.numbers import counted
from dashboard.words.strategies import vector_text

__all__ = ["segment_map"]

_ACROSS: Final = 8
_MOST_ROWS: Final = 16
_FILLS: Final = ("forward", "backward", "optimizer", "recompute")
_KINDS: Final = {kind.key: kind for kind in TIME_KINDS}


def segment_map(segments: pd.DataFrame, vectors: Sequence[Sequence[Any]] | None, mode: str = "light") -> Chart:
    """Draws every layer as a cell in the colour of its segment, with the strategies of its blocks.

    Args:
        segments: one row per layer, as `engine.planners.intra_operator.segments` has them.
        vectors: strategies of every layer; None where nothing fits.
        mode: the theme.
    """
    colours = palette(mode)
    names = list(segments["layer"])
    kinds = list(dict.fromkeys(names))
    fills = {
        name: _KINDS[key].colour(colours) or colours.muted for name, key in zip(kinds, cycle(_FILLS), strict=False)
    }
    rows_of = segments.to_dict("records")
    rows = min(-(-len(names) // _ACROSS), _MOST_ROWS)
    figure = base(colours, 16 + 34 * rows)
    for name in kinds:
        cells = [at for at, each in enumerate(names[: rows * _ACROSS]) if each == name]
        figure.draw(
            "bar",
            x=[0.94] * len(cells),
            base=[at % _ACROSS + 0.03 for at in cells],
            y=[at // _ACROSS for at in cells],
            orientation="h",
            width=0.84,
            marker={"color": fills[name], "line": {"width": 0}},
            text=["" if vectors is None else vector_text(vectors[at]) for at in cells],
            textposition="inside",
            insidetextanchor="middle",
            textangle=0,
            textfont={"size": 11, "color": colours.ink_on(fills[name])},
            hovertext=[_layer_hover_text(rows_of[at]) for at in cells],
            hovertemplate="%{hovertext}<extra></extra>",
        )
    figure.update_xaxes(visible=False, range=[0, min(_ACROSS, len(names))])
    name_rows(figure, [f"layer {row * _ACROSS + 1}" for row in range(rows)], colours)
    figure.update_layout(barmode="overlay", bargap=0, uniformtext={"minsize": 8, "mode": "hide"})
    told = ", ".join(f"{names.count(name)} {name}" for name in kinds)
    return Chart(figure, f"{counted(len(names), 'layer')} of {counted(len(kinds), 'kind')}: {told}.")


def _layer_hover_text(row: Mapping[Any, Any]) -> str:
    """Return a layer's contractions and segment as hover text; intervals in CFP's notation."""
    (start, stop), (first, last) = row["printed"], row["printed_as"]
    return (
        f"<b>layer {row['segment'] + 1}, {row['layer']}</b><br>contractions {row['start']} to {row['stop'] - 1}<br>"
        f"({start}, {stop}) mapped to ({first}, {last}); {row['vectors']:,} vectors"
    )
