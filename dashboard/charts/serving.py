"""Serving: output per processor against output per user, memory against capacity, parts of a decode step."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import pandas as pd

from dashboard.charts.elements.drawing import Drawing, vertical_band, vertical_line
from dashboard.charts.elements.label_placement import Place, Room, annotation
from dashboard.charts.elements.palette import MEMORY_KINDS, TIME_KINDS, Kind, Palette, palette
from dashboard.charts.elements.template import Chart, base, draw_capacity, empty, log_ticks, note, noted, wrapped
from dashboard.words.numbers import format_value, gibibytes, percent, scale_for
from engine.serving import MEMORY_PARTS, STEP_PARTS, by_name

__all__ = ["MEMORY", "decode_step", "request_time", "serving_frontier", "serving_memory"]

HEIGHT: Final = 460
_PIXELS: Final = (640.0, 400.0)
"""About the size of the plot, to keep names apart [px]."""
_PHONE: Final = (270.0, 400.0)
"""The same in a narrow window."""
_REACH: Final = 4.0
"""Slowest refused deployment that is drawn, against the slowest within the limits."""
_USER, _PROCESSOR = by_name("tokens_per_s_per_user"), by_name("tokens_per_s_per_processor")
_MEMORY: Final = {kind.key: kind for kind in MEMORY_KINDS}
_TIME: Final = {kind.key: kind for kind in TIME_KINDS}

MEMORY: Final[tuple[Kind, ...]] = tuple(
    Kind(name, by_name(name).label, (name,), look.light, look.dark)
    for name, look in zip(
        MEMORY_PARTS,
        (_MEMORY["weights"], _MEMORY["checkpoints"], _MEMORY["activations"], _MEMORY["reserve"]),
        strict=True,
    )
)
"""The parts of a serving processor's memory: kept keys and values look like what training keeps."""

_STEP: Final[Mapping[str, str | None]] = {
    "step_linear": "forward",
    "step_attention": "forward",
    "step_elementwise": "forward",
    "step_tensor": "tensor",
    "step_experts": "expert",
    "step_ends": "forward",
    "step_launch": "forward",
    "step_pipeline": "pipeline",
    "step_host": "overhead",
}
"""Part of a decode step -> the kind of time whose colour it has: the model's own work, communication, the host."""


def _deployment_hover_texts(rows: pd.DataFrame) -> list[str]:
    return [
        f"<b>{row['title']}</b><br>{_PROCESSOR.label} {format_value(_PROCESSOR, row[_PROCESSOR.name])}"
        f"<br>{_USER.label} {format_value(_USER, row[_USER.name])}<br>first token "
        f"{format_value(by_name('time_to_first_token'), row['time_to_first_token'])}, "
        f"HBM {gibibytes(row['memory_total'])}"
        for row in rows.to_dict("records")
    ]


def serving_frontier(
    curves: pd.DataFrame,
    mode: str = "light",
    *,
    chosen: Mapping[Any, Any] | None = None,
    narrow: bool = False,
    refused: pd.DataFrame | None = None,
    limits: tuple[float | None, float | None] = (None, None),
) -> Chart:
    """Draws the frontier of every tensor-parallel degree, the marks of the one over all, and what the limits refuse.

    curves: one row per deployment on the frontier of its degree: id, title, tensor_par, on_frontier, both figures
    [tokens/s], time_to_first_token [s], memory_total [bytes]. chosen: the deployment to ring, which has the same but
    tensor_par and on_frontier, and may lie off the curves. refused: deployments that a limit keeps from the frontier,
    as `curves` without on_frontier, with reason_text. limits: of the first token and per token [s], None for none; the
    latter is a line, with the slower part shaded. Marks carry customdata (id,), refused ones none.
    """
    colours = palette(mode)
    if not len(curves):
        return empty(colours, HEIGHT, "No deployment runs within the limits.")
    refused = _near_refused(curves, refused)
    figure = base(colours, HEIGHT)
    selected = None if chosen is None else int(chosen["id"])
    aside = chosen if chosen is not None and selected not in set(curves["id"]) else None
    every = {
        column.name: [
            *map(float, curves[column.name]),
            *map(float, refused[column.name]),
            *([] if aside is None else [float(aside[column.name])]),
        ]
        for column in (_USER, _PROCESSOR)
    }
    least_speed = None if limits[1] is None else 1.0 / limits[1]
    if least_speed is not None and len(refused):
        every[_USER.name].append(least_speed)
    x_scale, y_scale = (scale_for(column, every[column.name]) for column in (_USER, _PROCESSOR))
    degrees = sorted(int(value) for value in curves["tensor_par"].unique())
    lines: dict[int, list[tuple[float, float]]] = {}
    for place, degree in enumerate(degrees):
        tone = colours.ramp(1.0 if len(degrees) == 1 else 0.35 + 0.65 * place / (len(degrees) - 1))
        part = curves[curves["tensor_par"] == degree].sort_values(_USER.name, kind="stable")
        x, y = part[_USER.name] / x_scale.factor, part[_PROCESSOR.name] / y_scale.factor
        best = part["on_frontier"].to_numpy(bool)
        ring = (part["id"] == selected).to_numpy(bool)
        figure.draw(
            "scatter",
            x=x.tolist(),
            y=y.tolist(),
            mode="lines+markers",
            line={"color": tone, "width": 1.4},
            marker={
                "size": [14 if r else 9 if b else 4 for r, b in zip(ring, best, strict=True)],
                "color": tone,
                "opacity": 1,
                "line": {
                    "width": [2.5 if r else 1 for r in ring],
                    "color": [colours.text if r else colours.background for r in ring],
                },
            },
            customdata=[[int(value)] for value in part["id"]],
            hovertext=_deployment_hover_texts(part),
            hovertemplate="%{hovertext}<extra></extra>",
            name=f"TP {degree}",
        )
        lines[degree] = [(math.log10(a), math.log10(b)) for a, b in zip(x, y, strict=True)]
    if aside is not None:
        figure.draw(
            "scatter",
            x=[float(aside[_USER.name]) / x_scale.factor],
            y=[float(aside[_PROCESSOR.name]) / y_scale.factor],
            mode="markers",
            customdata=[[selected]],
            hovertext=_deployment_hover_texts(pd.DataFrame([dict(aside)])),
            hovertemplate="%{hovertext}<extra></extra>",
            name="chosen",
            marker={"size": 14, "color": colours.background, "line": {"width": 2.5, "color": colours.text}},
        )
    ranges: list[tuple[float, float]] = []
    for update, column, scale in ((figure.update_xaxes, _USER, x_scale), (figure.update_yaxes, _PROCESSOR, y_scale)):
        low, high = (math.log10(edge / scale.factor) for edge in (min(every[column.name]), max(every[column.name])))
        air = 0.05 * (high - low) or 0.1
        ranges.append((low - air, high + 2 * air))
        update(
            title=scale.title(f"{column.label}, modelled"),
            showgrid=True,
            fixedrange=False,
            type="log",
            range=ranges[-1],
            **log_ticks(10 ** ranges[-1][0], 10 ** ranges[-1][1]),
        )
    if len(refused):
        speeds, outputs = (
            [float(value) / scale.factor for value in refused[column.name]]
            for column, scale in ((_USER, x_scale), (_PROCESSOR, y_scale))
        )
        figure.draw(
            "scatter",
            x=speeds,
            y=outputs,
            mode="lines+markers",
            line={"color": colours.muted, "width": 1.2, "dash": "dot"},
            marker={"size": 6, "color": colours.background, "line": {"width": 1.2, "color": colours.muted}},
            hovertext=[
                f"{text}<br>{wrapped(str(why))}"
                for text, why in zip(_deployment_hover_texts(refused), refused["reason_text"], strict=True)
            ],
            hovertemplate="%{hovertext}<extra></extra>",
            name="refused",
        )
        lines[-1] = [(math.log10(a), math.log10(b)) for a, b in zip(speeds, outputs, strict=True)]
    if least_speed is not None:
        _draw_limit(figure, least_speed / x_scale.factor, ranges[0], limits, colours)
    for degree, spot in _curve_name_places(lines, ranges, narrow).items():
        note(figure, f"TP {degree}", colours, colour=colours.text, **annotation(spot))
    summary = _summarize_curves(curves)
    if len(refused):
        summary += f" {len(refused)} more would be on the frontier, but miss a limit."
    return Chart(figure, summary)


def _near_refused(curves: pd.DataFrame, refused: pd.DataFrame | None) -> pd.DataFrame:
    """Return the refused deployments that are near enough to the others to be drawn."""
    if refused is None or not len(refused):
        return curves.head(0)
    within = refused[_USER.name] >= float(curves[_USER.name].min()) / _REACH
    return refused[within].sort_values(_USER.name, kind="stable")


def _draw_limit(
    figure: Drawing,
    place: float,
    ends: tuple[float, float],
    limits: tuple[float | None, float | None],
    colours: Palette,
) -> None:
    """Draw the limit per token as a line, and the slower part shaded.

    Args:
        figure: the figure.
        place: speed per user at the limit, in the unit of the axis.
        ends: range of the axis [decades].
        limits: of the first token and per token [s].
        colours: the theme's.
    """
    low, high = (10**end for end in ends)
    if not low < place < high:
        return
    each = by_name("time_per_output_token")
    # The rectangle reaches beyond the axis, so that it stays shaded where one zooms out.
    figure.add_shape(**vertical_band(low / 1e3, place, colours.grid))
    figure.add_shape(**vertical_line(place, colours.worse, 1.6, dash="dash"))
    note(
        figure,
        f"limit {format_value(each, limits[1])} per token",
        colours,
        x=math.log10(place),
        y=0,
        yref="paper",
        xanchor="left",
        yanchor="bottom",
        xshift=4,
        colour=colours.worse,
    )
    note(
        figure,
        "refused",
        colours,
        x=math.log10(place),
        y=1,
        yref="paper",
        xanchor="right",
        yanchor="top",
        xshift=-4,
    )


def _curve_name_places(
    lines: dict[int, list[tuple[float, float]]], ranges: list[tuple[float, float]], narrow: bool
) -> dict[int, Place]:
    """Places of the names of curves near one of their ends, clear of every curve and of each other.

    lines: points of the curves by degree; ranges of the axes [decades].
    """
    room = Room(ranges[0], ranges[1], *(_PHONE if narrow else _PIXELS))
    for line in lines.values():
        room.line(line)
        for point in line:
            room.mark(*point, 9)
    found = {}
    for degree, line in sorted(lines.items(), key=lambda item: item[1][-1][1]):
        x, y = line[-1]
        start, top = line[0]
        if degree < 0:  # the refused part is named in the caption
            continue
        found[degree] = room.put(
            f"TP {degree}",
            [
                Place(x, y, "left", xshift=7.0),
                Place(x, y, yanchor="top", yshift=-7.0),
                Place(x, y, "right", xshift=-8.0),
                Place(x, y, "left", "top", 5.0, -4.0),
                Place(x, y, "right", "top", -5.0, -4.0),
                Place(x, y, "left", "bottom", 5.0, 4.0),
                Place(start, top, "right", xshift=-8.0),
                Place(start, top, "right", "bottom", -2.0, 4.0),
                Place(start, top, "right", "top", -2.0, -4.0),
                Place(x, y, "left", xshift=24.0),
                Place(x, y, "right", xshift=-24.0),
            ],
        )
    return found


def _summarize_curves(curves: pd.DataFrame) -> str:
    most, fastest = (curves.iloc[int(curves[name].to_numpy(float).argmax())] for name in (_PROCESSOR.name, _USER.name))
    return (
        f"{int(curves['on_frontier'].sum())} deployments on the frontier. Most output per GPU: "
        f"{format_value(_PROCESSOR, most[_PROCESSOR.name])} at {format_value(_USER, most[_USER.name])} per user, "
        f"{most['title']}. Fastest for a user: {format_value(_USER, fastest[_USER.name])} at "
        f"{format_value(_PROCESSOR, fastest[_PROCESSOR.name])} per GPU, {fastest['title']}."
    )


def serving_memory(rows: pd.DataFrame, mode: str = "light") -> Chart:
    """Draws the memory of deployments, one stacked bar each, against the capacity.

    rows: id, label, the parts of the memory, memory_total and memory_capacity [bytes]; first on top. Bars carry
    customdata (id,).
    """
    colours = palette(mode)
    if not len(rows):
        return empty(colours, 120, "No deployment to show.")
    capacity = float(rows["memory_capacity"].iloc[0])
    scale = scale_for(by_name("memory_total"), [capacity])
    reach = max(capacity, float(rows["memory_total"].max())) * 1.04
    places = list(range(len(rows) - 1, -1, -1))
    figure = base(colours, 26 + 34 * len(rows) + 24)
    for kind in MEMORY:
        sizes = rows[kind.key].to_numpy(float)
        figure.draw(
            "bar",
            x=(sizes / scale.factor).tolist(),
            y=places,
            orientation="h",
            width=0.62,
            name=kind.name,
            marker={"color": kind.colour(colours), "line": {"color": colours.background, "width": 1}},
            text=[scale.number(size) if size > 0.07 * reach else "" for size in sizes],
            textposition="inside",
            insidetextanchor="middle",
            textangle=0,
            constraintext="none",
            insidetextfont={"color": kind.label(colours), "size": 11},
            hovertext=[
                f"<b>{label}</b><br>{kind.name} {gibibytes(size)}"
                for label, size in zip(rows["label"], sizes, strict=True)
            ],
            hovertemplate="%{hovertext}<extra></extra>",
            customdata=[[int(value)] for value in rows["id"]],
        )
    notes = []
    for place, total in zip(places, rows["memory_total"], strict=True):
        tone = colours.worse if total > capacity else colours.text
        # What hardly does not fit takes more than the capacity in writing, too.
        decimals = 2 if 1.0 < total / capacity < 1.005 else 0
        told = f"<b>{gibibytes(total)}</b> · {percent(total / capacity, decimals)}"
        notes.append(noted(told, colours, x=1, xref="paper", xanchor="right", xshift=112, y=place, colour=tone))
    edge = capacity / scale.factor
    notes.append(draw_capacity(figure, edge, len(rows), f"HBM {gibibytes(capacity)}", colours))
    figure.update_layout(
        barmode="stack", bargap=0, uniformtext={"mode": False}, margin={"t": 24, "r": 116}, annotations=notes
    )
    figure.update_xaxes(range=[0, reach / scale.factor], ticksuffix=scale.suffix, nticks=6, tickformat=",~g")
    figure.update_yaxes(
        range=[-0.5, len(rows) - 0.5],
        tickvals=places,
        ticktext=rows["label"].tolist(),
        tickfont={"size": 12, "color": colours.text},
    )
    over = int((rows["memory_total"] > capacity).sum())
    return Chart(
        figure, f"Memory of {len(rows)} deployments; {over} need more than the {gibibytes(capacity)} of HBM.", rows=True
    )


def decode_step(row: Mapping[Any, Any], mode: str = "light", narrow: bool = False) -> Chart:
    """Draws what a decode step consists of; row: `decode_step_time` and its parts [s]."""
    bars = [(by_name(name).label, float(row[name]), _STEP[name], by_name(name).description) for name in STEP_PARTS]
    return _draw_time_parts("A decode step", float(row["decode_step_time"]), bars, mode, narrow)


def request_time(
    row: Mapping[Any, Any], mode: str = "light", narrow: bool = False, gained: float = 1.0, factor: float = 1.0
) -> Chart:
    """Draws what a request waits for; row: the figures and lengths of a deployment; gained: tokens of a step; factor:
    measured over predicted time per token, which the figures have and a step has not."""
    later = max(float(row["output"]) - 1.0, 0.0)
    number = later / gained
    steps = factor * number * float(row["decode_step_time"])
    others = later * float(row["time_per_output_token"]) - steps
    bars: list[tuple[str, float, str | None, str]] = [
        ("First token", float(row["time_to_first_token"]), "forward", "Its own prefill."),
        ("Decode steps", steps, "forward", f"{number:,.0f} steps with the whole batch."),
        ("Prefills of others", others, None, "Prompts of other requests that start meanwhile."),
    ]
    return _draw_time_parts("A request", float(row["request_latency"]), bars, mode, narrow)


def _draw_time_parts(
    what: str, total: float, bars: list[tuple[str, float, str | None, str]], mode: str, narrow: bool
) -> Chart:
    """Draw parts of a time, one bar each: name, seconds, kind of colour, description. Parts too short to see are left
    out."""
    colours = palette(mode)
    bars = [bar for bar in bars if bar[1] > 0.0005 * total]
    time = by_name("decode_step_time")
    figure = base(colours, 10 + 21 * len(bars))
    figure.draw(
        "bar",
        x=[seconds for _, seconds, _, _ in bars],
        y=list(range(len(bars))),
        orientation="h",
        width=0.62,
        marker={"color": [_kind_colour(kind, colours) for _, _, kind, _ in bars]},
        hovertext=[told for _, _, _, told in bars],
        hovertemplate="%{hovertext}<extra></extra>",
    )
    labels = [
        noted(
            f"{format_value(time, seconds)} · {percent(seconds / total)}",
            colours,
            x=seconds,
            y=position,
            xanchor="left",
            xshift=4,
            colour=colours.text,
        )
        for position, (_, seconds, _, _) in enumerate(bars)
    ]
    figure.update_layout(annotations=labels)
    figure.update_xaxes(range=[0, (3.6 if narrow else 1.5) * max(seconds for _, seconds, _, _ in bars)], visible=False)
    figure.update_yaxes(
        tickvals=list(range(len(bars))), ticktext=[name for name, _, _, _ in bars], autorange="reversed"
    )
    largest = max(bars, key=lambda bar: bar[1])
    share = percent(largest[1] / total, 0)
    return Chart(figure, f"{what} takes {format_value(time, total)}, modelled; {share} of it: {largest[0]}.")


def _kind_colour(kind: str | None, colours: Palette) -> str:
    return (_TIME[kind].colour(colours) if kind else None) or colours.muted
