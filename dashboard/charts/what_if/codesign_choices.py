"""Designs over their choices: parallel axes, and a map of two choices."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pandas as pd

from dashboard.charts.elements.palette import palette
from dashboard.charts.elements.template import TICK_SIZE, Chart, base, empty
from dashboard.words.numbers import counted, plain
from engine.codesign import Quantity

__all__ = ["HEIGHT", "choices_map", "parallel_choices", "refused_and_allowed", "sample_designs"]

HEIGHT: Final = 400


MOST_DRAWN: Final = 5_000
"""Designs that a picture has at most: the front, and others evenly."""


def parallel_choices(
    designs: pd.DataFrame,
    axes: Mapping[str, str],
    shade: Quantity,
    mode: str = "light",
    words_of: Mapping[str, Sequence[str]] | None = None,
    stretches: Mapping[str, tuple[float, float]] | None = None,
) -> Chart:
    """Draws every allowed design as a line over its choices and figures; a stretch of an axis can be brushed.

    Args:
        designs: rows of `engine.codesign.Results.designs`.
        axes: labels by column, in order.
        shade: quantity that colours the lines.
        mode: the theme.
        words_of: values of columns of words, in the order of the axis; in order of designs if not given.
        stretches: least and most values that are brushed, by columns.
    """
    colours = palette(mode)
    refused, runs = refused_and_allowed(designs[designs["status"] == "ok"])
    runs = sample_designs(runs)
    if not len(runs) or not axes:
        return empty(
            colours, HEIGHT, "No design meets all constraints." if len(refused) else "No design that is there runs."
        )
    dimensions: list[dict[str, Any]] = []
    for name, label in axes.items():
        column = runs[name]
        if column.dtype.kind in "ifub":
            dimensions.append({"label": label, "values": column.to_numpy(float)})
        else:
            words = list((words_of or {}).get(name) or dict.fromkeys(column.astype(str)))
            places = {word: place for place, word in enumerate(words)}
            dimensions.append(
                {
                    "label": label,
                    "values": [places[str(word)] for word in column],
                    "tickvals": list(places.values()),
                    "ticktext": words,
                }
            )
        dimensions[-1] |= {"name": name, "multiselect": False}
        if name in (stretches or {}):
            dimensions[-1]["constraintrange"] = _brush_ends(dimensions[-1]["values"], *(stretches or {})[name])
    figure = base(colours, HEIGHT)
    figure.draw(
        "parcoords",
        dimensions=dimensions,
        labelfont={"size": TICK_SIZE, "color": colours.text},
        tickfont={"size": TICK_SIZE - 1, "color": colours.muted},
        rangefont={"size": 1, "color": "rgba(0,0,0,0)"},
        line={"color": runs[shade.name].to_numpy(float), "colorscale": colours.colorscale(shade.better == "lower")},
    )
    figure.update_layout(margin={"l": 60, "r": 60, "t": 44, "b": 16})
    names = ", ".join(axes.values()).replace("<br>", " ")
    kept_out = f"; {counted(len(refused), 'design')} refused by constraints left out" if len(refused) else ""
    return Chart(figure, f"{counted(len(runs), 'design')} over {names}, coloured by {shade.label}{kept_out}.")


def choices_map(
    designs: pd.DataFrame,
    skipped: pd.DataFrame,
    across: tuple[str, str],
    up: tuple[str, str],
    shown: Quantity,
    mode: str = "light",
    narrow: bool = False,
) -> Chart:
    """Draws the best allowed design at every pair of two choices, and the bound of skipped designs if that is better.
    Cells all of whose designs are refused say so.

    Args:
        designs: rows of `engine.codesign.Results.designs`.
        skipped: the rows of `Results.skipped`, alike.
        across, up: a column and its label.
        shown: quantity that colours the cells; a cell prints its best over all other choices.
        mode: the theme.
        narrow: whether the window is that of a phone, where a cell holds fewer digits.
    """
    colours = palette(mode)
    refused, runs = refused_and_allowed(designs[designs["status"] == "ok"])
    if not len(runs):
        return empty(
            colours, HEIGHT, "No design meets all constraints." if len(refused) else "No design that is there runs."
        )
    higher = shown.better == "higher"
    refused_at = set(zip(refused[up[0]], refused[across[0]], strict=True))

    def best_of(rows: pd.DataFrame) -> pd.DataFrame:
        best = rows.groupby([up[0], across[0]], sort=True)[shown.name].agg("max" if higher else "min")
        return best.unstack()

    found, left = best_of(runs), best_of(skipped) if len(skipped) else pd.DataFrame()
    for row, column in refused_at:  # so that what is refused whole has a cell
        if row not in found.index or column not in found.columns:
            found.loc[row, column] = math.nan
    found, left = found.align(left, join="outer")
    found, left = (table.sort_index(axis=0).sort_index(axis=1) for table in (found, left))
    values, bounds = found.to_numpy(float), left.to_numpy(float)
    # What no skipped design can beat is proven.
    bounds = np.where((bounds <= values) if higher else (bounds >= values), np.nan, bounds)
    most, told = "≤" if higher else "≥", f"at {'most' if higher else 'least'}"
    xs, ys = (
        [plain(each, 4) if isinstance(each, float | int) else str(each) for each in names]
        for names in (found.columns, found.index)
    )
    crowded = values.shape[1] > (4 if narrow else 12) or values.shape[0] > 16

    def text(value: float, bound: float, out: bool) -> str:
        if not math.isnan(value):
            return plain(value, 3)
        return f"{most} {plain(bound, 3)}" if not math.isnan(bound) else "refused" if out and not narrow else ""

    def words(value: float, bound: float, out: bool) -> str:
        none = "all refused by constraints" if out else "none of those searched runs"
        own = none if math.isnan(value) else f"{plain(value, 4)} {shown.unit}"
        return own if math.isnan(bound) else f"{own}<br>skipped designs: {told} {plain(bound, 4)} {shown.unit}"

    outs = [[(row, column) in refused_at for column in found.columns] for row in found.index]
    cells = [list(zip(*three, strict=True)) for three in zip(values.tolist(), bounds.tolist(), outs, strict=True)]
    here = f"{across[1]} %{{x}}<br>{up[1]} %{{y}}<br>{shown.label} "
    figure = base(colours, HEIGHT)
    figure.draw(
        "heatmap",
        x=xs,
        y=ys,
        z=values,
        colorscale=colours.colorscale(shown.better == "lower"),
        xgap=2,
        ygap=2,
        # Cells without a value are written by the trace below, in a legible colour.
        text=None if crowded else [["" if math.isnan(each[0]) else text(*each) for each in row] for row in cells],
        texttemplate="" if crowded else "%{text}",
        textfont={"size": TICK_SIZE},
        hovertext=[[words(*each) for each in row] for row in cells],
        hovertemplate=f"{here}%{{hovertext}}<extra></extra>",
        colorbar={"thickness": 8, "outlinewidth": 0, "title": {"text": shown.unit, "side": "right"}},
    )
    empty_cells = np.argwhere(np.isnan(values) & (np.isfinite(bounds) | np.array(outs)))
    if len(empty_cells) and not crowded:
        figure.draw(
            "scatter",
            mode="text",
            x=[xs[column] for _, column in empty_cells],
            y=[ys[row] for row, _ in empty_cells],
            text=[text(*cells[row][column]) for row, column in empty_cells],
            showlegend=False,
            textfont={"size": TICK_SIZE, "color": colours.muted},
            hovertext=[words(*cells[row][column]) for row, column in empty_cells],
            hovertemplate=f"{here}%{{hovertext}}<extra></extra>",
        )
    figure.update_xaxes(title=across[1], type="category", categoryorder="array", categoryarray=xs)
    figure.update_yaxes(title=up[1], type="category", categoryorder="array", categoryarray=ys)
    open_cells = int(np.isfinite(bounds).sum())
    rest = f"; in {counted(open_cells, 'cell')} skipped designs may be better" if open_cells else ""
    return Chart(
        figure,
        f"Best {shown.label.lower()} of every {across[1]} with every {up[1]}, of {counted(len(runs), 'design')}{rest}.",
    )


def refused_and_allowed(runs: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the designs that constraints refuse, and the others."""
    if "refused" not in runs:
        return runs.iloc[:0], runs
    out = runs["refused"] != ""
    return runs[out], runs[~out]


def sample_designs(table: pd.DataFrame) -> pd.DataFrame:
    """As many designs as are drawn at most, evenly."""
    return table if len(table) <= MOST_DRAWN else table.iloc[np.linspace(0, len(table) - 1, MOST_DRAWN).astype(int)]


def _brush_ends(values: Any, least: float, most: float) -> list[float]:
    """A stretch as a brush: a hair beyond what ends it, which all values are where an end is open."""
    low, high = float(np.min(values)), float(np.max(values))
    more = 1e-6 * (high - low) or 1.0
    return [max(least, low) - more, min(most, high) + more]
