"""Strategy vectors of intra-operator plans: against memory and volume, in bars of time, along a parameter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd

from dashboard.charts.elements.drawing import Drawing, vertical_line
from dashboard.charts.elements.palette import SCENARIOS, TIME_KINDS, Palette, palette
from dashboard.charts.elements.template import Chart, base, empty, noted, trace
from dashboard.words.numbers import counted, percent, plain
from dashboard.words.strategies import short_solution, vector_text
from hardware import GIB

__all__ = ["Measured", "along_curves", "best_named", "rate_bars", "time_bars", "vector_points"]

HEIGHT: Final = 340
ROW: Final = 26
ROOM: Final = 25
"""Letters of a name that a legend has room for."""
PIXELS: Final = 240
"""Steps of either axis; vectors in the same step of both are drawn once."""
_KINDS: Final = {kind.key: kind for kind in TIME_KINDS}
RESULTS: Final = {"rate": "Rate of a device", "seconds": "Step", "memory": "Memory of a device"}
PARTS: Final = (
    ("compute_seconds", "computation", "forward"),
    ("all_reduce_seconds", "all-reduce", "data"),
    ("all_gather_seconds", "all-gather", "tensor"),
    ("all_to_all_seconds", "all-to-all", "offload"),
    ("reduce_scatter_seconds", "reduce-scatter", "pipeline"),
)
"""Column, word, and the kind of time whose colour it has."""
LOOKS: Final = (("circle", "solid"), ("square", "dash"), ("diamond", "dot"), ("triangle-up", "dashdot"))
MIXED: Final = "mixed"


class Measured(NamedTuple):
    """A point that was measured: vector as text, volume [bytes], time [s]."""

    vector: str
    volume: float
    seconds: float


def vector_points(
    table: pd.DataFrame,
    across: str,
    up: str,
    mode: str = "light",
    *,
    chosen: Mapping[str, float],
    frontier: pd.DataFrame | None = None,
    limit: float | None = None,
    measured: Sequence[Measured] = (),
) -> Chart:
    """Draw every valid vector as a point, named solutions with distinct marks, the chosen plan as a ring.

    Args:
        table: one row per vector, as `engine.planners.intra_operator.search` gives it.
        across: "memory" or "volume" [bytes].
        up: "seconds" or "communication_seconds".
        mode: the theme.
        chosen: the same figures of the chosen plan; empty if nothing fits.
        frontier: least seconds for every memory, drawn as steps if given.
        limit: of the memory [bytes], drawn as a line.
        measured: measured points, drawn as crosses with a line to the computed point.
    """
    colours = palette(mode)
    shown = table[table["reason"] == ""]
    if shown.empty:
        return empty(colours, HEIGHT, "No vector can be split over these devices.")
    factor, unit, label = (GIB, "GiB", "Memory of a device") if across == "memory" else (1e9, "GB", "Volume of a step")
    title = "step" if up == "seconds" else "collectives"
    scale, ticks = _time_unit(shown[up])
    figure = base(colours, HEIGHT)
    named = best_named(shown, up)
    _draw_cloud(
        figure,
        _distinct_points(shown[~shown["solution"].isin(named)], across, up),
        across,
        up,
        (factor, scale),
        colours,
    )
    for name, colour, (symbol, _) in zip(named, SCENARIOS[colours.mode], LOOKS, strict=False):
        rows = shown[shown["solution"] == name].sort_values(up).head(1)
        _draw_solution(figure, rows, across, up, (factor, scale), colour, symbol, name, colours)
    if frontier is not None and len(frontier):
        figure.draw(
            "scatter",
            x=frontier["memory"] / factor,
            y=frontier["seconds"] * scale,
            mode="lines",
            name="layers may differ",
            line={"shape": "hv", "width": 2, "color": colours.accent},
            showlegend=True,
            hovertemplate=f"least step within %{{x:.4g}} GiB: %{{y:.4g}} {ticks}<extra></extra>",
        )
    shapes: list[dict[str, Any]] = []
    if limit is not None:
        shapes.append(vertical_line(limit / factor, colours.worse, 1.6, dash="dot"))
    _draw_measured_points(figure, shown, measured, (factor, scale), colours)
    if chosen:
        figure.draw(
            "scatter",
            x=[chosen[across] / factor],
            y=[chosen[up] * scale],
            mode="markers",
            name="chosen",
            showlegend=True,
            marker={"size": 17, "color": colours.text, "symbol": "circle-open", "line": {"width": 2.5}},
            hovertemplate=f"chosen plan: %{{x:.4g}} {unit}, %{{y:.4g}} {ticks}<extra></extra>",
        )
    figure.update_xaxes(title=f"{label}, {unit}", showgrid=True, nticks=7)
    if across == "volume":
        figure.update_xaxes(rangemode="tozero")
    figure.update_yaxes(title=f"Time of {title}, {ticks}", showgrid=True, rangemode="tozero", nticks=7)
    figure.update_layout(showlegend=True, shapes=shapes, margin={"t": 42}, legend=_legend_layout(colours))
    told = [
        f"{name} {plain(float(rows[up].min()) * scale)} {ticks}, {plain(float(rows[across].iloc[0]) / factor)} {unit}"
        for name in named
        if len(rows := shown[shown["solution"] == name].sort_values(up))
    ]
    return Chart(figure, f"{counted(len(shown), 'vector')}; time of {title}: {'; '.join(told) or 'none has a name'}.")


def best_named(rows: pd.DataFrame, by: str = "seconds") -> list[str]:
    """Return the solutions with distinct marks: the fastest, as many as marks."""
    named = rows[rows["solution"] != MIXED].sort_values(by, kind="stable")
    return list(dict.fromkeys(named["solution"]))[: len(LOOKS)]


def _distinct_points(rows: pd.DataFrame, across: str, up: str) -> pd.DataFrame:
    """Return the rows at distinct points."""
    if len(rows) <= PIXELS:
        return rows
    places = [np.round(rows[name] / float(rows[name].max() or 1.0) * PIXELS) for name in (across, up)]
    return rows[~pd.DataFrame(dict(enumerate(places))).duplicated().to_numpy()]


def _draw_cloud(
    figure: Drawing, rows: pd.DataFrame, across: str, up: str, scales: tuple[float, float], colours: Palette
) -> None:
    many = len(rows) > 200
    name = "other vectors" if (rows["solution"] != MIXED).any() else MIXED
    figure.draw(
        "scatter",
        x=rows[across] / scales[0],
        y=rows[up] * scales[1],
        mode="markers",
        name=name,
        showlegend=True,
        marker={"size": 3 if many else 6, "color": colours.muted, "opacity": 0.5, "line": {"width": 0}},
        hovertext=[vector_text(each) for each in rows["vector"]],
        hovertemplate="<b>%{hovertext}</b><br>%{x:.4g}, %{y:.4g}<extra></extra>",
    )


def _draw_solution(
    figure: Drawing,
    rows: pd.DataFrame,
    across: str,
    up: str,
    scales: tuple[float, float],
    colour: str,
    symbol: str,
    name: str,
    colours: Palette,
) -> None:
    figure.draw(
        "scatter",
        x=rows[across] / scales[0],
        y=rows[up] * scales[1],
        mode="markers",
        name=short_solution(name, ROOM),
        showlegend=True,
        marker={"size": 11, "color": colour, "symbol": symbol, "line": {"width": 1, "color": colours.background}},
        hovertext=[vector_text(each) for each in rows["vector"]],
        hovertemplate=f"<b>{name}, %{{hovertext}}</b><br>%{{x:.4g}}, %{{y:.4g}}<extra></extra>",
    )


def _draw_measured_points(
    figure: Drawing, rows: pd.DataFrame, measured: Sequence[Measured], scales: tuple[float, float], colours: Palette
) -> None:
    """Draw crosses for measured points, each joined to the computed point of the same vector."""
    if not measured:
        return
    computed = {vector_text(row["vector"]): row for row in rows.to_dict("records")}
    x: list[float | None] = []
    y: list[float | None] = []
    for one in measured:
        own = computed.get(one.vector)
        if own is not None:
            x += [float(own["volume"]) / scales[0], one.volume / scales[0], None]
            y += [float(own["communication_seconds"]) * scales[1], one.seconds * scales[1], None]
    figure.draw(
        "scatter",
        x=x,
        y=y,
        mode="lines",
        hoverinfo="skip",
        showlegend=False,
        line={"color": colours.muted, "width": 1, "dash": "dot"},
    )
    figure.draw(
        "scatter",
        x=[one.volume / scales[0] for one in measured],
        y=[one.seconds * scales[1] for one in measured],
        mode="markers+text",
        name="measured",
        showlegend=True,
        text=[one.vector for one in measured],
        textposition=["middle left" if one.volume > 8e9 else "top center" for one in measured],
        textfont={"size": 11, "color": colours.text},
        cliponaxis=False,
        marker={"symbol": "x", "size": 9, "color": colours.worse},
        hovertemplate="measured %{text}: %{x:.4g} GB, %{y:.4g}<extra></extra>",
    )


def time_bars(rows: pd.DataFrame, mode: str = "light") -> Chart:
    """Draws the time of a step of each plan: computation first, then its collectives.

    Args:
        rows: columns label, seconds, and the columns of `PARTS` [s].
        mode: the theme.
    """
    colours = palette(mode)
    if rows.empty:
        return empty(colours, 120, "No vector can be drawn.")
    scale, unit = _time_unit(rows["seconds"])
    places = list(range(len(rows)))[::-1]
    traces = [
        trace(
            "bar",
            x=rows[column] * scale,
            y=places,
            orientation="h",
            width=0.62,
            name=word,
            showlegend=True,
            marker={"color": _KINDS[kind].colour(colours), "line": {"color": colours.background, "width": 0.6}},
            hovertext=list(rows["label"]),
            hovertemplate=f"<b>%{{hovertext}}</b><br>{word} %{{x:.4g}} {unit}<extra></extra>",
        )
        for column, word, kind in PARTS
        if column in rows
    ]
    figures = [f"{plain(float(each) * scale)} {unit}" for each in rows["seconds"]]
    figure = _named_rows(traces, list(rows["label"]), figures, 62, colours)
    figure.update_xaxes(
        range=[0, float(rows["seconds"].max()) * scale * 1.01],
        title=f"Time of a step, {unit}",
        showgrid=True,
        nticks=6,
    )
    figure.update_layout(barmode="stack", showlegend=True, margin={"t": 42}, legend=_legend_layout(colours))
    first = rows.iloc[0]
    label = str(first["label"])
    share = 1 - float(first["compute_seconds"]) / float(first["seconds"])
    told = f"{label[:1].upper()}{label[1:]}: {figures[0]}, {percent(share)} of it collectives."
    return Chart(figure, told, rows=True)


def _named_rows(
    traces: Sequence[dict[str, Any]], names: Sequence[str], figures: Sequence[str], room: int, colours: Palette
) -> Drawing:
    """Bars from the top, each with its name before and its figure behind, as `stacked` takes them.

    room: for the figures [px].
    """
    figure = base(colours, 70 + ROW * len(names))
    places = list(range(len(names)))[::-1]
    notes = [
        noted(text, colours, x=1, xref="paper", xanchor="right", xshift=room, y=place, colour=colours.text)
        for text, place in zip(figures, places, strict=True)
    ]
    figure.add_trace(*traces)
    figure.update_yaxes(
        tickvals=places,
        ticktext=list(names),
        range=[-0.55, len(names) - 0.45],
        tickfont={"size": 12, "color": colours.text},
    )
    figure.update_layout(bargap=0, annotations=notes, uniformtext={"mode": False}, margin={"t": 8, "r": room})
    return figure


def _time_unit(seconds: pd.Series[float]) -> tuple[float, str]:
    """The factor and the unit in which times read best."""
    return (1.0, "s") if float(seconds.max()) >= 1 else (1e3, "ms")


def _legend_layout(colours: Palette) -> dict[str, Any]:
    return {
        "orientation": "h",
        "y": 1.0,
        "yanchor": "bottom",
        "x": 0,
        "xanchor": "left",
        "traceorder": "normal",
        "itemclick": False,
        "itemdoubleclick": False,
        "font": {"size": 11, "color": colours.text},
    }


def along_curves(
    rows: pd.DataFrame, label: str, here: float, shown: str = "rate", mode: str = "light", *, steps: bool = False
) -> Chart:
    """Draws a figure of the plans along a parameter: the best plan, and every named solution where it fits.

    Args:
        rows: columns value, name ("best" is the plan, others solutions), solution of the best, rate [TFLOP/s of a
            device], seconds [s], memory [bytes].
        label: of the parameter.
        here: its value now.
        shown: the column that is drawn.
        mode: the theme.
        steps: whether the best holds until the next value, on a linear axis; else values are in ratios.
    """
    colours = palette(mode)
    best = rows[rows["name"] == "best"]
    if best.empty:
        return empty(colours, HEIGHT, "Nothing fits at any of these points.")
    scale, unit = {"rate": (1.0, "TFLOP/s"), "memory": (1 / GIB, "GiB")}.get(shown) or _time_unit(best["seconds"])
    figure = base(colours, HEIGHT)
    others = [name for name in dict.fromkeys(rows["name"]) if name != "best"][: len(LOOKS)]
    for name, colour, (symbol, dash) in zip(others, SCENARIOS[colours.mode], LOOKS, strict=False):
        own = rows[rows["name"] == name]
        figure.draw(
            "scatter",
            x=own["value"],
            y=own[shown] * scale,
            mode="lines+markers",
            name=short_solution(name, ROOM),
            showlegend=True,
            line={"color": colour, "dash": dash, "width": 1.6},
            marker={"symbol": symbol, "size": 8},
            hovertemplate=f"{name}, %{{x:.4g}}: %{{y:.4g}} {unit}<extra></extra>",
        )
    figure.draw(
        "scatter",
        x=best["value"],
        y=best[shown] * scale,
        mode="lines" if steps else "lines+markers",
        name="best plan",
        showlegend=True,
        line={"color": colours.accent, "width": 2.4, "shape": "hv" if steps else "linear"},
        marker={"size": 5},
        hovertext=list(best["solution"]),
        hovertemplate=f"<b>%{{hovertext}}</b><br>%{{x:.4g}}: %{{y:.4g}} {unit}<extra></extra>",
    )
    values = sorted(set(rows["value"]))
    if steps:
        figure.update_xaxes(title=label, nticks=8)
    else:
        figure.update_xaxes(title=label, type="log", tickvals=values, ticktext=[plain(each) for each in values])
    figure.update_yaxes(title=f"{RESULTS[shown]}, {unit}", rangemode="tozero", showgrid=True, nticks=6)
    figure.update_layout(
        showlegend=True,
        margin={"t": 42},
        legend=_legend_layout(colours),
        shapes=[vertical_line(here, colours.text, 1, dash="dot")],
    )
    return Chart(figure, _summarize_solutions(best, label))


def _summarize_solutions(best: pd.DataFrame, label: str) -> str:
    """Return a sentence with the ranges of a parameter in which each solution is best."""
    spans: list[tuple[str, float, float]] = []
    for value, name in zip(best["value"], best["solution"], strict=True):
        if spans and spans[-1][0] == name:
            spans[-1] = (name, spans[-1][1], float(value))
        else:
            spans.append((str(name), float(value), float(value)))
    parts = [
        f"{name} at {plain(low)}" if low == high else f"{name} from {plain(low)} to {plain(high)}"
        for name, low, high in spans[:6]
    ]
    more = f"; {counted(len(spans) - 6, 'further change')}" if len(spans) > 6 else ""
    return f"Best plan by {label[:1].lower()}{label[1:]}: {'; '.join(parts)}{more}."


def rate_bars(rows: pd.DataFrame, here: str, mode: str = "light") -> Chart:
    """Draws the rate of a device of several systems, the highest first, each with its number of devices.

    Args:
        rows: columns label, rate [TFLOP/s of a device], devices, solution; without a rate nothing fits.
        here: label of the system in view.
        mode: the theme.
    """
    colours = palette(mode)
    if rows.empty:
        return empty(colours, 120, "There is no system to compare.")
    shown = rows.sort_values("rate", ascending=False, na_position="last", kind="stable")
    rates = shown["rate"].astype(float).fillna(0.0)
    deep, forward = (_KINDS[key].colour(colours) for key in ("backward", "forward"))
    names = [
        f"{label} × {devices}" if devices else str(label)
        for label, devices in zip(shown["label"], shown["devices"], strict=True)
    ]
    figures = [
        f"{plain(rate)}, {solution}" if solution else "does not fit"
        for rate, solution in zip(rates, shown["solution"], strict=True)
    ]
    bars = trace(
        "bar",
        x=rates,
        y=list(range(len(shown)))[::-1],
        orientation="h",
        width=0.62,
        marker={"color": [deep if each == here else forward for each in shown["label"]], "line": {"width": 0}},
        hovertext=[f"<b>{name}</b><br>{told}" for name, told in zip(names, figures, strict=True)],
        hovertemplate="%{hovertext}<extra></extra>",
    )
    figure = _named_rows([bars], names, figures, 8 + round(6.2 * max(map(len, figures))), colours)
    figure.update_xaxes(range=[0, max(float(rates.max()), 1e-9) * 1.01], title="TFLOP/s of a device", nticks=5)
    told = f"{names[0]} comes first with {plain(float(rates.iloc[0]))} TFLOP/s of a device"
    return Chart(
        figure,
        f"{told}, {shown['solution'].iloc[0]}."
        if figures[0] != "does not fit"
        else "The model fits none of these systems.",
        rows=True,
    )
