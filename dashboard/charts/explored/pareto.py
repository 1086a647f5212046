"""Trade-off of metrics: the frontier of two metrics, over the density of every feasible execution.

Only the frontier is drawn mark by mark; everything else arrives as counts per bin, so the cost of the chart does not
depend on how many executions there are.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd

from dashboard.charts.elements.colour_scale import colour_bar, ramp_for
from dashboard.charts.elements.palette import SCENARIOS, Palette, palette
from dashboard.charts.elements.template import Chart, base, empty, log_ticks, note, trace
from dashboard.words.names import CALLED_BY, in_sentence, name_or_id
from dashboard.words.numbers import Scale, column_of, count, counted, format_value, scale_for
from engine.columns import Column

HEIGHT: Final = 520
MAX_MARKS: Final = 2000
_DENSITY_OPACITY: Final = 0.5


class Density(NamedTuple):
    """Executions per bin: counts[i][j] lie between y_edges[i], y_edges[i + 1] and x_edges[j], x_edges[j + 1]."""

    counts: Sequence[Sequence[int]] | np.ndarray[Any, Any]
    x_edges: Sequence[float]
    y_edges: Sequence[float]


class Named(NamedTuple):
    """Frontier of another scenario: its letter, its name, its executions in the form that `pareto` takes."""

    letter: str
    name: str
    frontier: pd.DataFrame


class Marked(NamedTuple):
    """Execution that has a mark of its own, on the frontier or not: its role, its degrees, its figures by name."""

    role: str
    name: str
    values: Mapping[str, float]


_LOOKS: Final = (("circle", "solid"), ("square", "dash"), ("diamond", "dot"), ("triangle-up", "dashdot"))
"""Mark and dash of scenarios A to D: colour is never the only distinction."""


def pareto(
    frontier: pd.DataFrame,
    x: Column | str,
    y: Column | str,
    mode: str = "light",
    *,
    z: Column | str | None = None,
    density: Density | None = None,
    selected: int | None = None,
    logarithmic: tuple[bool, bool] = (False, False),
    others: Sequence[Named] = (),
    marked: Marked | None = None,
    name: str = "",
    height: int = HEIGHT,
) -> Chart:
    """Draws the frontier and the density behind it.

    frontier: the executions that no other beats, with columns id and those named by x, y and z [each in its unit]; the
    degrees tensor_par, pipeline_par and data_par are named in hovers if present. With z the marks are coloured by it
    and not joined, because the frontier of three metrics is no line. density in the units of x and y.
    selected: id to ring. logarithmic: for the x and the y axis. others: frontiers of scenarios B to D on the same axes;
    name is then that of the first, for the legend. marked: execution with a star.
    Marks carry customdata (id,).
    """
    x_column, y_column, colours = column_of(x), column_of(y), palette(mode)
    z_column = None if z is None else column_of(z)
    used = [column.name for column in (x_column, y_column, z_column) if column is not None]
    if not len(frontier) and any(logarithmic):
        return empty(colours, height, "All of the frontier is at 0, which a logarithmic axis does not have.")
    known = np.isfinite(frontier[used].to_numpy(dtype=float)).all(axis=1) if len(frontier) else np.zeros(0, bool)
    shown = thinned(frontier[known].sort_values(x_column.name, kind="stable"))
    if not len(shown):
        return empty(colours, height, "No execution fits, so there is no frontier.")
    named = [one for one in others if len(one.frontier)]
    extents = tuple(
        [
            *(edges if edges is not None else shown[column.name]),
            *(float(value) for one in named for value in one.frontier[column.name] if math.isfinite(value)),
        ]
        for column, edges in (
            (x_column, density.x_edges if density else None),
            (y_column, density.y_edges if density else None),
        )
    )
    scales = scale_for(x_column, extents[0]), scale_for(y_column, extents[1])
    figure = base(colours, height)
    if density is not None:
        figure.add_trace(_density_trace(density, x_column, y_column, scales, colours))
    for one in named:
        figure.add_trace(_other_frontier_trace(one, x_column, y_column, z_column, scales, colours))
    figure.add_trace(_frontier_trace(shown, x_column, y_column, z_column, scales, colours, selected))
    own = figure.traces[-1]
    if marked is not None:
        figure.add_trace(_mark_trace(marked, x_column, y_column, scales, colours))
    if others:
        own.update(name=f"A · {name}", showlegend=True, legendrank=1)
        figure.update_layout(showlegend=True, legend={"itemclick": False, "itemdoubleclick": False}, margin={"t": 28})
    for update, column, scale, extent, log in zip(
        (figure.update_xaxes, figure.update_yaxes), (x_column, y_column), scales, extents, logarithmic, strict=True
    ):
        update(title=scale.title(column.label), showgrid=True, fixedrange=False, **_metric_axis(extent, scale, log))
    if z_column is not None and shown[z_column.name].nunique() == 1:
        same = f"All marks: {in_sentence(z_column.label)} {format_value(z_column, shown[z_column.name].iloc[0])}"
        note(figure, same, colours, x=1, y=1, xref="paper", yref="paper", xanchor="right", yanchor="bottom")
        figure.update_layout(margin={"t": 28})
    alt = _summarize_frontier(frontier, shown, x_column, y_column)
    if marked is not None:
        alt += f" A star marks the execution called {marked.role.lower()}, {marked.name}."
    if others:
        told = ", ".join(f"{one.letter} {one.name} with {count(len(one.frontier))}" for one in others)
        alt += f" With the frontiers of {told}."
    return Chart(figure, alt)


def _mark_trace(
    marked: Marked, x_column: Column, y_column: Column, scales: tuple[Scale, Scale], colours: Palette
) -> dict[str, Any]:
    """Return the star of an execution."""
    told = [f"{column.label} {format_value(column, marked.values[column.name])}" for column in (x_column, y_column)]
    return trace(
        "scatter",
        x=[marked.values[x_column.name] / scales[0].factor],
        y=[marked.values[y_column.name] / scales[1].factor],
        mode="markers",
        name=marked.role,
        showlegend=False,
        marker={
            "color": colours.text,
            "symbol": "star",
            "size": 14,
            "opacity": 1,
            "line": {"width": 1.2, "color": colours.background},
        },
        hovertext=["<br>".join([f"<b>{marked.role}: {marked.name}</b>", *told])],
        hovertemplate="%{hovertext}<extra></extra>",
    )


def _other_frontier_trace(
    one: Named,
    x_column: Column,
    y_column: Column,
    z_column: Column | None,
    scales: tuple[Scale, Scale],
    colours: Palette,
) -> dict[str, Any]:
    """Return the frontier of another scenario, with distinct colour, mark and dash."""
    rows = thinned(one.frontier.sort_values(x_column.name, kind="stable"))
    number = "ABCD".index(one.letter)
    colour = SCENARIOS[colours.mode][number]
    symbol, dash = _LOOKS[number]
    columns = [column for column in (x_column, y_column, z_column) if column is not None]
    hovers = [
        "<br>".join(
            [
                f"<b>{one.letter}: {name_or_id(row)}</b>",
                *(f"{column.label} {format_value(column, row[column.name])}" for column in columns),
            ]
        )
        for row in _named_records(rows, columns)
    ]
    return trace(
        "scatter",
        x=[float(value) / scales[0].factor for value in rows[x_column.name]],
        y=[float(value) / scales[1].factor for value in rows[y_column.name]],
        mode="lines+markers" if z_column is None else "markers",
        name=f"{one.letter} · {one.name}",
        showlegend=True,
        legendrank=1 + number,
        line={"color": colour, "width": 1.6, "dash": dash, "shape": step_shape(x_column)},
        marker={
            "color": colour,
            "symbol": symbol,
            "size": 8 if len(rows) <= 60 else 5,
            "opacity": 1,
            "line": {"width": 1, "color": colours.background},
        },
        hovertext=hovers,
        hovertemplate="%{hovertext}<extra></extra>",
    )


def thinned(rows: pd.DataFrame, most: int = MAX_MARKS) -> pd.DataFrame:
    """Returns at most `most` rows, evenly spaced, the first and the last among them."""
    if len(rows) <= most:
        return rows
    return rows.iloc[np.unique(np.linspace(0, len(rows) - 1, most).round().astype(int))]


def _density_trace(
    density: Density, x_column: Column, y_column: Column, scales: tuple[Scale, Scale], colours: Palette
) -> dict[str, Any]:
    """Return the counts per bin, coloured by their logarithm so that rare regions stay visible."""
    counts = np.asarray(density.counts, dtype=float)
    with np.errstate(divide="ignore"):
        shade = np.where(counts > 0, np.log10(counts), np.nan)
    top = float(np.nanmax(shade)) if (counts > 0).any() else 1.0
    return trace(
        "heatmap",
        x=[edge / scales[0].factor for edge in density.x_edges],
        y=[edge / scales[1].factor for edge in density.y_edges],
        z=np.round(shade, 3),
        # One execution must be visible, so the scale starts a little below it.
        zmin=-0.35 * max(top, 1.0),
        zmax=max(top, 1.0),
        colorscale=colours.colorscale(),
        opacity=_DENSITY_OPACITY,
        showscale=False,
        customdata=counts.astype(int),
        hovertemplate=(
            "%{customdata:,} executions<br>"
            f"{x_column.label} near %{{x:.3~g}}{scales[0].suffix}<br>"
            f"{y_column.label} near %{{y:.3~g}}{scales[1].suffix}<extra></extra>"
        ),
        hoverongaps=False,
    )


def _frontier_trace(
    shown: pd.DataFrame,
    x_column: Column,
    y_column: Column,
    z_column: Column | None,
    scales: tuple[Scale, Scale],
    colours: Palette,
    selected: int | None,
) -> dict[str, Any]:
    """Return the frontier: joined marks for two metrics, marks coloured by the third for three."""
    columns = [column for column in (x_column, y_column, z_column) if column is not None]
    hovers = [
        "<br>".join(
            [
                f"<b>{name_or_id(row)}</b>",
                *(f"{column.label} {format_value(column, row[column.name])}" for column in columns),
            ]
        )
        for row in _named_records(shown, columns)
    ]
    ids = [int(value) for value in shown["id"]]
    ring = [value == selected for value in ids]
    size = 9 if len(shown) <= 60 else 7 if len(shown) <= 400 else 5
    marker: dict[str, Any] = {
        "size": [size + 6 if flag else size for flag in ring],
        "opacity": 1,
        "color": [colours.background if flag else colours.ramp(1.0) for flag in ring],
        "line": {
            "width": [2.5 if flag else 1 for flag in ring],
            "color": [colours.text if flag else colours.background for flag in ring],
        },
    }
    if z_column is not None:
        values = [float(value) for value in shown[z_column.name]]
        ramp = ramp_for(values, lower_is_better=z_column.better == "lower", domain="from zero")
        z_scale = scale_for(z_column, values)
        marker |= {
            "color": [ramp.position(value) for value in values],
            "cmin": 0,
            "cmax": 1,
            "colorscale": colours.colorscale(),
            "showscale": ramp.good != ramp.bad,
            "colorbar": {
                **colour_bar(ramp, z_scale, colours),
                "title": {
                    "text": z_scale.title(z_column.label),
                    "side": "right",
                    "font": {"size": 11, "color": colours.muted},
                },
            },
        }
        marker["line"]["color"] = [colours.text if flag else colours.muted for flag in ring]
    return trace(
        "scatter",
        x=[float(value) / scales[0].factor for value in shown[x_column.name]],
        y=[float(value) / scales[1].factor for value in shown[y_column.name]],
        mode="lines+markers" if z_column is None else "markers",
        line={"color": colours.ramp(1.0), "width": 1.6, "shape": step_shape(x_column)},
        marker=marker,
        customdata=[[value] for value in ids],
        hovertext=hovers,
        hovertemplate="%{hovertext}<extra></extra>",
    )


def _named_records(rows: pd.DataFrame, columns: Sequence[Column]) -> list[dict[Any, Any]]:
    """Return records of the columns that name an execution and some others, a tenth of all columns."""
    return rows.filter(list({*CALLED_BY, *(column.name for column in columns)})).to_dict("records")


def step_shape(x_column: Column) -> str:
    """Returns how the frontier steps from mark to mark, left to right, without promising what no execution reaches.

    Between two marks the reachable side is that of the worse x: if a higher x is worse (lower is better), the value of
    the left mark holds until the right mark (hv); otherwise the right mark's value holds from the left one on (vh).
    """
    return "vh" if x_column.better == "higher" else "hv"


def _metric_axis(extent: Sequence[float], scale: Scale, logarithmic: bool) -> dict[str, Any]:
    """Return type, range and ticks of an axis that shows `extent` with a little air for marks at its ends."""
    low, high = min(extent) / scale.factor, max(extent) / scale.factor
    if logarithmic and low > 0:
        first, last = math.log10(low), math.log10(high)
        air = 0.03 * (last - first) or 0.1
        return {"type": "log", "range": [first - air, last + air], **log_ticks(low, high)}
    air = 0.03 * (high - low) or 0.05 * abs(high) or 1.0
    return {"type": "linear", "range": [low - air, high + air], "nticks": 9, "tickformat": ",~g"}


def _summarize_frontier(frontier: pd.DataFrame, shown: pd.DataFrame, x_column: Column, y_column: Column) -> str:
    sentences = [f"{counted(len(frontier), 'execution')} on the frontier of {x_column.label} and {y_column.label}."]
    for column in (x_column, y_column):
        values = shown[column.name]
        row = shown.iloc[int(values.argmin() if column.better == "lower" else values.argmax())]
        sentences.append(
            f"Best {in_sentence(column.label)} {format_value(column, row[column.name])}, with "
            + ", ".join(
                f"{in_sentence(other.label)} {format_value(other, row[other.name])}"
                for other in (x_column, y_column)
                if other is not column
            )
            + "."
        )
    return " ".join(sentences)


def edges(low: float, high: float, bins: int, logarithmic: bool = False) -> list[float]:
    """Returns `bins` + 1 edges from low to high, evenly spaced or in equal ratios; a single value gets a narrow
    band."""
    if not high > low:
        spread = abs(low) * 0.01 or 1.0
        low, high = low - spread, low + spread
    if logarithmic and low > 0:
        return [float(value) for value in np.geomspace(low, high, bins + 1)]
    return [float(value) for value in np.linspace(low, high, bins + 1)] if math.isfinite(high - low) else [low, high]
