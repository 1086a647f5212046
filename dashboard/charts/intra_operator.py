"""Strategy vectors of intra-operator plans: against memory and volume, in bars of time, along a parameter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from dashboard.charts.elements.palette import SCENARIOS, TIME_KINDS, Palette, palette
from dashboard.charts.elements.template import Chart, base, empty, noted
from dashboard.words.numbers import counted, percent, plain

__all__ = ["COLLECTIVE_WORDS", "Measured", "rate_bars", "rate_curves", "time_bars", "vector_points"]

HEIGHT: Final = 340
ROW: Final = 26
GIB: Final = 2.0**30
PIXELS: Final = 240
"""Vectors that fall into the same of so many steps of either axis are drawn once."""
_KINDS: Final = {kind.key: kind for kind in TIME_KINDS}
COLLECTIVE_WORDS: Final = {"all_reduce": "all-reduce", "all_gather": "all-gather", "all_to_all": "all-to-all"}
PARTS: Final = (
    ("compute_seconds", "computation", "forward"), ("all_reduce_seconds", "all-reduce", "data"),
    ("all_gather_seconds", "all-gather", "tensor"), ("all_to_all_seconds", "all-to-all", "offload"),
)  # fmt: skip
"""Column, word, and the kind of time whose colour it has."""
LOOKS: Final = (("circle", "solid"), ("square", "dash"), ("diamond", "dot"), ("triangle-up", "dashdot"))
MIXED: Final = "mixed"


class Measured(NamedTuple):
    """A point that was measured: vector as text, volume [bytes], time [s]."""

    vector: str
    volume: float
    seconds: float


def vector_points(
    table: pd.DataFrame, across: str, up: str, mode: str = "light", *, chosen: Mapping[str, float],
    frontier: pd.DataFrame | None = None, limit: float | None = None, measured: Sequence[Measured] = (),
) -> Chart:  # fmt: skip
    """Draws every vector that can be as a point, named solutions with marks of their own, the chosen plan as a ring.

    Args:
        table: one row per vector, as `engine.planners.intra_operator.search` gives it.
        across: "memory" or "volume" [bytes].
        up: "seconds" or "communication_seconds".
        mode: the theme.
        chosen: the same figures of the chosen plan; empty where nothing fits.
        frontier: least seconds for every memory, drawn as steps where given.
        limit: of the memory [bytes], drawn as a line.
        measured: points that were measured, drawn as crosses with the line to what is computed.
    """
    colours = palette(mode)
    shown = table[table["reason"] == ""]
    if shown.empty:
        return empty(colours, HEIGHT, "No vector can be split over these devices.")
    factor, unit, label = (GIB, "GiB", "Memory of a device") if across == "memory" else (1e9, "GB", "Volume of a step")
    title = "step" if up == "seconds" else "collectives"
    scale, ticks = (1.0, "s") if float(shown[up].max()) >= 1 else (1e3, "ms")
    figure = base(colours, HEIGHT)
    named = [name for name in dict.fromkeys(shown["solution"]) if name != MIXED]
    _cloud(figure, _apart(shown[shown["solution"] == MIXED], across, up), across, up, (factor, scale), colours)
    for name, colour, (symbol, _) in zip(named, SCENARIOS[colours.mode], LOOKS, strict=False):
        rows = shown[shown["solution"] == name].sort_values(up).head(1)
        _mark(figure, rows, across, up, (factor, scale), colour, symbol, name, colours)
    if frontier is not None and len(frontier):
        figure.add_trace(go.Scatter(
            x=frontier["memory"] / factor, y=frontier["seconds"] * scale, mode="lines", name="layers may differ",
            line={"shape": "hv", "width": 2, "color": colours.accent}, showlegend=True,
            hovertemplate=f"least step within %{{x:.4g}} GiB: %{{y:.4g}} {ticks}<extra></extra>",
        ))  # fmt: skip
    shapes: list[dict[str, Any]] = []
    if limit is not None:
        shapes.append({"type": "line", "x0": limit / factor, "x1": limit / factor, "y0": 0, "y1": 1, "yref": "paper",
                       "line": {"color": colours.worse, "width": 1.6, "dash": "dot"}})  # fmt: skip
    _measured(figure, shown, measured, (factor, scale), colours)
    if chosen:
        figure.add_trace(go.Scatter(
            x=[chosen[across] / factor], y=[chosen[up] * scale], mode="markers", name="chosen", showlegend=True,
            marker={"size": 16, "color": "rgba(0,0,0,0)", "line": {"width": 2.5, "color": colours.text},
                    "symbol": "circle-open"},
            hovertemplate=f"chosen plan: %{{x:.4g}} {unit}, %{{y:.4g}} {ticks}<extra></extra>",
        ))  # fmt: skip
    figure.update_xaxes(title_text=f"{label}, {unit}", showgrid=True, rangemode="tozero", nticks=7)
    figure.update_yaxes(title_text=f"Time of {title}, {ticks}", showgrid=True, rangemode="tozero", nticks=7)
    figure.update_layout(
        showlegend=True, shapes=shapes, margin={"t": 46},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "itemclick": False,
                "itemdoubleclick": False, "font": {"size": 11, "color": colours.text}},
    )  # fmt: skip
    told = [
        f"{name} {plain(float(rows[up].min()) * scale)} {ticks}, {plain(float(rows[across].iloc[0]) / factor)} {unit}"
        for name in named if len(rows := shown[shown["solution"] == name].sort_values(up))
    ]  # fmt: skip
    return Chart(figure, f"{counted(len(shown), 'vector')}; time of {title}: {'; '.join(told) or 'none has a name'}.")


def _apart(rows: pd.DataFrame, across: str, up: str) -> pd.DataFrame:
    """Rows that fall on points of their own."""
    if len(rows) <= PIXELS:
        return rows
    places = [np.round(rows[name] / float(rows[name].max() or 1.0) * PIXELS) for name in (across, up)]
    return rows[~pd.DataFrame(dict(enumerate(places))).duplicated().to_numpy()]


def _cloud(
    figure: go.Figure, rows: pd.DataFrame, across: str, up: str, scales: tuple[float, float], colours: Palette
) -> None:
    figure.add_trace(go.Scatter(
        x=rows[across] / scales[0], y=rows[up] * scales[1], mode="markers", name=MIXED, showlegend=True,
        marker={"size": 6, "color": colours.muted, "opacity": 0.55, "line": {"width": 0}},
        hovertext=[_vector(each) for each in rows["vector"]],
        hovertemplate="<b>%{hovertext}</b><br>%{x:.4g}, %{y:.4g}<extra></extra>",
    ))  # fmt: skip


def _mark(
    figure: go.Figure, rows: pd.DataFrame, across: str, up: str, scales: tuple[float, float], colour: str,
    symbol: str, name: str, colours: Palette,
) -> None:  # fmt: skip
    figure.add_trace(go.Scatter(
        x=rows[across] / scales[0], y=rows[up] * scales[1], mode="markers", name=name, showlegend=True,
        marker={"size": 11, "color": colour, "symbol": symbol, "line": {"width": 1, "color": colours.background}},
        hovertext=[_vector(each) for each in rows["vector"]],
        hovertemplate=f"<b>{name}, %{{hovertext}}</b><br>%{{x:.4g}}, %{{y:.4g}}<extra></extra>",
    ))  # fmt: skip


def _measured(
    figure: go.Figure, rows: pd.DataFrame, measured: Sequence[Measured], scales: tuple[float, float], colours: Palette
) -> None:
    """Crosses for measured points, each joined to what is computed of the same vector."""
    if not measured:
        return
    computed = {_vector(row["vector"]): row for row in rows.to_dict("records")}
    x: list[float | None] = []
    y: list[float | None] = []
    for one in measured:
        own = computed.get(one.vector)
        if own is not None:
            x += [float(own["volume"]) / scales[0], one.volume / scales[0], None]
            y += [float(own["communication_seconds"]) * scales[1], one.seconds * scales[1], None]
    figure.add_trace(go.Scatter(
        x=x, y=y, mode="lines", hoverinfo="skip", line={"color": colours.muted, "width": 1, "dash": "dot"},
    ))  # fmt: skip
    figure.add_trace(go.Scatter(
        x=[one.volume / scales[0] for one in measured], y=[one.seconds * scales[1] for one in measured],
        mode="markers+text", name="measured", showlegend=True, text=[one.vector for one in measured],
        textposition=["top center" if one.seconds < 1 else "bottom center" for one in measured],
        textfont={"size": 11, "color": colours.text}, cliponaxis=False,
        marker={"symbol": "x", "size": 9, "color": colours.worse},
        hovertemplate="measured %{text}: %{x:.4g} GB, %{y:.4g}<extra></extra>",
    ))  # fmt: skip


def time_bars(rows: pd.DataFrame, mode: str = "light") -> Chart:
    """Draws what a step of each plan is spent on, computation first, then its collectives.

    Args:
        rows: columns label, seconds, those of `PARTS` [s], and why, the reason for which it is not chosen, if any.
        mode: the theme.
    """
    colours = palette(mode)
    if rows.empty:
        return empty(colours, 120, "No vector can be drawn.")
    scale, unit = (1.0, "s") if float(rows["seconds"].max()) >= 1 else (1e3, "ms")
    figure = base(colours, 64 + ROW * len(rows))
    places = list(range(len(rows)))
    for column, word, kind in PARTS:
        colour = _KINDS[kind].colour(colours) or colours.muted
        figure.add_trace(go.Bar(
            x=rows[column] * scale, y=places, orientation="h", width=0.62, name=word, showlegend=True,
            marker={"color": colour, "line": {"color": colours.background, "width": 0.6}},
            hovertext=list(rows["label"]),
            hovertemplate=f"<b>%{{hovertext}}</b><br>{word} %{{x:.4g}} {unit}<extra></extra>",
        ))  # fmt: skip
    longest = float(rows["seconds"].max()) * scale
    notes = [
        noted(f" {plain(float(row['seconds']) * scale)} {unit}", colours, x=float(row["seconds"]) * scale, y=place,
              xanchor="left", colour=colours.text)
        for place, row in enumerate(rows.to_dict("records"))
    ]  # fmt: skip
    figure.update_xaxes(range=[0, longest * 1.16], title_text=f"Time of a step, {unit}", showgrid=True, nticks=6)
    figure.update_yaxes(
        autorange="reversed", tickvals=places, ticktext=list(rows["label"]), tickfont={"color": colours.text},
    )  # fmt: skip
    figure.update_layout(
        barmode="stack", bargap=0, annotations=notes, margin={"t": 30}, showlegend=True, uniformtext=None,
        legend={"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 0, "traceorder": "normal", "itemclick": False,
                "itemdoubleclick": False, "font": {"size": 11, "color": colours.text}},
    )  # fmt: skip
    first = rows.iloc[0]
    share = 1 - float(first["compute_seconds"]) / float(first["seconds"])
    return Chart(figure, f"{first['label']}: {plain(float(first['seconds']) * scale)} {unit}, "
                         f"{percent(share)} of it collectives.")  # fmt: skip


def rate_curves(rows: pd.DataFrame, label: str, here: float, mode: str = "light", *, whole: bool = True) -> Chart:
    """Draws the rate of a device along a parameter: the best plan, and every named solution where it fits.

    Args:
        rows: columns value, name ("best" is the plan, others solutions), solution of the best, rate [TFLOP/s].
        label: of the parameter.
        here: its value now.
        mode: the theme.
        whole: whether values are whole numbers, each with a mark.
    """
    colours = palette(mode)
    best = rows[rows["name"] == "best"]
    if best.empty:
        return empty(colours, 300, "Nothing fits at any of these points.")
    figure = base(colours, 320)
    others = [name for name in dict.fromkeys(rows["name"]) if name != "best"]
    for name, colour, (symbol, dash) in zip(others, SCENARIOS[colours.mode], LOOKS, strict=False):
        own = rows[rows["name"] == name]
        figure.add_trace(go.Scatter(
            x=own["value"], y=own["rate"], mode="lines+markers", name=name, showlegend=True,
            line={"color": colour, "dash": dash, "width": 1.6}, marker={"symbol": symbol, "size": 7},
            hovertemplate=f"{name}, %{{x:.4g}}: %{{y:.4g}} TFLOP/s<extra></extra>",
        ))  # fmt: skip
    figure.add_trace(go.Scatter(
        x=best["value"], y=best["rate"], mode="lines+markers" if whole else "lines", name="best plan", showlegend=True,
        line={"color": colours.accent, "width": 2.4, "shape": "linear" if whole else "hv"},
        marker={"size": 6}, hovertext=list(best["solution"]),
        hovertemplate="<b>%{hovertext}</b><br>%{x:.4g}: %{y:.4g} TFLOP/s<extra></extra>",
    ))  # fmt: skip
    figure.update_xaxes(title_text=label, nticks=8)
    figure.update_yaxes(title_text="TFLOP/s of a device", rangemode="tozero", showgrid=True, nticks=6)
    figure.update_layout(
        showlegend=True, margin={"t": 46},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "itemclick": False,
                "itemdoubleclick": False, "font": {"size": 11, "color": colours.text}},
        shapes=[{"type": "line", "x0": here, "x1": here, "y0": 0, "y1": 1, "yref": "paper",
                 "line": {"color": colours.text, "width": 1, "dash": "dot"}}],
    )  # fmt: skip
    return Chart(figure, _told(best, label))


def _told(best: pd.DataFrame, label: str) -> str:
    """Where the solution changes along a parameter."""
    spans: list[tuple[str, float, float]] = []
    for value, name in zip(best["value"], best["solution"], strict=True):
        if spans and spans[-1][0] == name:
            spans[-1] = (name, spans[-1][1], float(value))
        else:
            spans.append((str(name), float(value), float(value)))
    parts = [f"{name} at {plain(low)}" if low == high else f"{name} from {plain(low)} to {plain(high)}"
             for name, low, high in spans[:6]]  # fmt: skip
    more = f"; {len(spans) - 6} further changes" if len(spans) > 6 else ""
    return f"Best plan by {label[:1].lower()}{label[1:]}: {'; '.join(parts)}{more}."


def rate_bars(rows: pd.DataFrame, here: str, mode: str = "light") -> Chart:
    """Draws the rate of a device of several systems, the highest first, each with its number of devices.

    Args:
        rows: columns label, rate [TFLOP/s of a device], told (text behind the bar); without a rate nothing fits.
        here: label of the system in view.
        mode: the theme.
    """
    colours = palette(mode)
    if rows.empty:
        return empty(colours, 120, "There is no system to compare.")
    shown = rows.sort_values("rate", ascending=False, na_position="last", kind="stable")
    figure = base(colours, 44 + ROW * len(shown))
    places = list(range(len(shown)))
    rates = shown["rate"].fillna(0.0)
    forward = _KINDS["forward"].colour(colours) or colours.muted
    deep = _KINDS["backward"].colour(colours) or colours.muted
    figure.add_trace(go.Bar(
        x=rates, y=places, orientation="h", width=0.62,
        marker={"color": [deep if each == here else forward for each in shown["label"]], "line": {"width": 0}},
        hovertext=[f"<b>{one}</b><br>{told}" for one, told in zip(shown["label"], shown["told"], strict=True)],
        hovertemplate="%{hovertext}<extra></extra>",
    ))  # fmt: skip
    notes = [
        noted(f" {told}", colours, x=rate, y=place, xanchor="left", colour=colours.text)
        for place, (rate, told) in enumerate(zip(rates, shown["told"], strict=True))
    ]  # fmt: skip
    figure.update_xaxes(range=[0, max(float(rates.max()), 1e-9) * 1.9], title_text="TFLOP/s of a device", nticks=6)
    figure.update_yaxes(
        autorange="reversed", tickvals=places, ticktext=list(shown["label"]), tickfont={"color": colours.text},
    )  # fmt: skip
    figure.update_layout(bargap=0, annotations=notes)
    first = shown.iloc[0]
    return Chart(figure, f"{first['label']} comes first with {first['told']}.")


def _vector(vector: Sequence[int]) -> str:
    return ",".join(map(str, vector))
