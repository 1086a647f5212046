"""Time of a fine-tuning run over GPUs, a line per method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from dashboard.charts.elements.palette import palette
from dashboard.charts.elements.template import Chart, base, empty, log_ticks
from dashboard.words.amounts import format_duration, format_large
from dashboard.words.numbers import plain

__all__ = ["time_over_gpus"]

HEIGHT: Final = 320
DASHES: Final = ("solid", "dash", "dot")
HOUR: Final = 3600.0
"""Seconds of an hour [s]."""


def time_over_gpus(rows: Sequence[Mapping[str, Any]], words: Mapping[str, str], *, mode: str = "light") -> Chart:
    """Draw the time over the GPUs, both on logarithmic axes.

    Args:
        rows: with method, num_procs, hours and usd (each value, low and high), and layout.
        words: methods on screen by name.
        mode: the theme.
    """
    colours = palette(mode)
    if not rows:
        return empty(colours, HEIGHT, "No method with a time fits.")
    drawing = base(colours, HEIGHT)
    names = [name for name in words if any(row["method"] == name for row in rows)]
    told = []
    for place, name in enumerate(names):
        own = sorted((row for row in rows if row["method"] == name), key=lambda row: row["num_procs"])
        shade = colours.ramp(0.9 - 0.5 * place / max(1, len(names) - 1))
        drawing.draw(
            "scatter",
            x=[row["num_procs"] for row in own],
            y=[row["hours"]["value"] for row in own],
            mode="lines+markers",
            name=words[name],
            line={"color": shade, "width": 1.8, "dash": DASHES[place % len(DASHES)]},
            marker={"color": shade, "size": 6},
            hovertext=[_describe(words[name], row) for row in own],
            hovertemplate="%{hovertext}<extra></extra>",
        )
        told.append(
            f"{words[name]} from {_duration(own[0])} on {own[0]['num_procs']:,} GPUs to {_duration(own[-1])} on "
            f"{own[-1]['num_procs']:,}"
        )
    gpus = sorted({row["num_procs"] for row in rows})
    times = [row["hours"]["value"] for row in rows]
    ticks = {"tickvals": gpus, "ticktext": [f"{each:,}" for each in gpus]} if len(gpus) <= 12 else {}
    drawing.update_xaxes(title="GPUs", type="log", **(ticks or log_ticks(gpus[0], gpus[-1])))
    drawing.update_yaxes(title="Time, h", type="log", showgrid=True, **log_ticks(min(times), max(times)))
    drawing.update_layout(showlegend=True, margin={"t": 34, "r": 18})
    return Chart(drawing, f"Time of the run over GPUs: {'; '.join(told)}.")


def _duration(row: Mapping[str, Any]) -> str:
    return format_duration(row["hours"]["value"] * HOUR)


def _describe(words: str, row: Mapping[str, Any]) -> str:
    hours, usd = row["hours"], row["usd"]
    lines = [f"<b>{words} on {row['num_procs']:,} GPUs</b>", _duration(row)]
    if hours["low"] is not None:
        lines[1] += f" ({format_duration(hours['low'] * HOUR)} to {format_duration(hours['high'] * HOUR)})"
    if usd is not None:
        lines.append(f"{format_large(usd['value'])} USD ({format_large(usd['low'])} to {format_large(usd['high'])})")
    return "<br>".join([*lines, f"{plain(row['tokens_per_s'])} tokens/s", row["layout"]])
