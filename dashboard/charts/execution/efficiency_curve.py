"""Share of a peak rate by operation size: the step functions of a system's efficiency tables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from dashboard.charts.elements.palette import TIME_KINDS, palette
from dashboard.charts.elements.template import Chart, base, empty
from dashboard.words.numbers import percent, plain

__all__ = ["Curve", "efficiency_curve"]

Curve = tuple[str, Sequence[tuple[float, float]]]
"""A name, and (threshold, efficiency) pairs: the first listed threshold that a size reaches counts."""

HEIGHT: Final = 226
_DASHES: Final = ("solid", "dash", "dot", "dashdot")
_ORDER: Final = (1, 6, 3, 2, 7, 0)
"""Kinds whose colours differ most as lines."""


def efficiency_curve(curves: Sequence[Curve], unit: str, mode: str = "light", *, height: int = HEIGHT) -> Chart:
    """Draws efficiency over size, on a logarithmic axis; equal tables share one line.

    curves: thresholds in `unit`, efficiencies as shares of 1.
    """
    colours = palette(mode)
    merged: dict[tuple[tuple[float, float], ...], list[str]] = {}
    for name, table in curves:
        merged.setdefault(tuple((float(size), float(share)) for size, share in table), []).append(name)
    if not merged:
        return empty(colours, height, "There is no efficiency table to draw.")
    sizes = sorted({size for table in merged for size, _ in table if size > 0}) or [1.0]
    low, high = math.floor(math.log10(sizes[0])) - 1, math.ceil(math.log10(sizes[-1])) + 1
    figure = base(colours, height)
    kinds = [kind.dark if mode == "dark" else kind.light for kind in TIME_KINDS]
    for index, (table, names) in enumerate(merged.items()):
        x, y = _step_corners(table, 10.0**low, 10.0**high)
        colour = kinds[_ORDER[index % len(_ORDER)]] or colours.text
        label = _without_markup(_join_names(names))
        figure.draw(
            "scatter",
            x=x,
            y=y,
            mode="lines",
            name=label,
            line={"shape": "hv", "width": 2, "color": colour, "dash": _DASHES[index % len(_DASHES)]},
            hovertemplate=f"<b>{label}</b><br>from %{{x:.4~g}} {unit}: %{{y:.1%}}<extra></extra>",
        )
    figure.update_xaxes(type="log", range=[low, high], title=unit, dtick=1, tickformat=",~g")
    figure.update_yaxes(
        range=[-0.03, 1.04],
        showgrid=True,
        tickvals=[0, 0.25, 0.5, 0.75, 1],
        ticktext=["0 %", "25 %", "50 %", "75 %", "100 %"],
    )
    figure.update_layout(showlegend=True, margin={"t": 26})
    return Chart(figure, _summarize_efficiency(merged, unit))


def _join_names(names: Sequence[str]) -> str:
    """Names of equal curves as one: "matrix float8, float16"."""
    kinds: dict[str, list[str]] = {}
    for name in names:
        kind, _, rest = name.partition(" ")
        kinds.setdefault(kind, []).append(rest)
    return " · ".join(f"{kind} {', '.join(filter(None, rest))}".strip() for kind, rest in kinds.items())


def _without_markup(text: str) -> str:
    """A name without what Plotly would take for markup."""
    return text.replace("<", "‹").replace(">", "›").replace("%{", "% {")


def _efficiency_at_size(table: Sequence[tuple[float, float]], size: float) -> float:
    return next((share for threshold, share in table if size >= threshold), 0.0)


def _step_corners(table: Sequence[tuple[float, float]], low: float, high: float) -> tuple[list[float], list[float]]:
    """Corners of a step function from low to high."""
    edges = sorted({low, *(size for size, _ in table if low < size < high), high})
    return edges, [_efficiency_at_size(table, edge) for edge in edges]


def _summarize_efficiency(merged: dict[tuple[tuple[float, float], ...], list[str]], unit: str) -> str:
    sentences = []
    for table, names in merged.items():
        largest = max(size for size, _ in table)
        sentences.append(
            f"{', '.join(names)}: {percent(_efficiency_at_size(table, 0.0), 0)} for the smallest, "
            f"{percent(_efficiency_at_size(table, largest), 0)} from {plain(largest)} {unit} on."
        )
    return "Efficiency by size of the operation. " + " ".join(sentences)
