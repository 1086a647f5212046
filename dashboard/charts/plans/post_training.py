"""Step of reinforcement learning against the split of GPUs, a line per mode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from dashboard.charts.elements.palette import palette
from dashboard.charts.elements.template import Chart, base, empty, note
from dashboard.words.numbers import plain

__all__ = ["MeasuredMark", "step_by_split"]

HEIGHT: Final = 340
DASHES: Final = ("solid", "dash", "dot")


class MeasuredMark(NamedTuple):
    """Measured run with the same GPUs in all: GPUs that train, step [s], and its name."""

    gpus_train: float
    seconds: float
    words: str


def step_by_split(
    curve: Sequence[Mapping[str, Any]],
    num_procs: int,
    words: Mapping[str, str],
    measured: Sequence[MeasuredMark] = (),
    *,
    mode: str = "light",
) -> Chart:
    """Draw the step over the GPUs that train; shared GPUs are a level line.

    Args:
        curve: rows with mode, gpus_train, gpus_rollout and step_s, None where nothing trains.
        num_procs: GPUs of both sides.
        words: modes on screen by name.
        measured: runs to mark.
        mode: the theme.
    """
    colours = palette(mode)
    rows = sorted((row for row in curve if row["step_s"] is not None), key=lambda row: row["gpus_train"])
    if not rows:
        return empty(colours, HEIGHT, "Nothing runs in any mode.")
    drawing = base(colours, HEIGHT)
    names = list(dict.fromkeys(row["mode"] for row in rows))
    told = []
    for place, name in enumerate(each for each in words if each in names):
        own = [row for row in rows if row["mode"] == name]
        least = min(own, key=lambda row: row["step_s"])
        is_shared = name == "colocated"
        shade = colours.ramp(0.9 - 0.5 * place / max(1, len(names) - 1))
        points = [(0, least["step_s"]), (num_procs, least["step_s"])]
        if not is_shared:
            points = [(row["gpus_train"], row["step_s"]) for row in own]
        label = words[name]
        drawing.draw(
            "scatter",
            x=[x for x, _ in points],
            y=[y for _, y in points],
            mode="lines" if is_shared else "lines+markers",
            name=label,
            line={"color": shade, "width": 1.8, "dash": DASHES[place % len(DASHES)]},
            marker={"color": shade, "size": [11 if not is_shared and row is least else 5 for row in own]},
            hovertext=[
                f"<b>{label}</b><br>{plain(least['step_s'])} s on all GPUs"
                if is_shared
                else f"<b>{label}</b><br>{x:,} train, {num_procs - x:,} generate<br>{plain(y)} s"
                for x, y in points
            ],
            hovertemplate="%{hovertext}<extra></extra>",
        )
        where = "shared" if is_shared else f"{least['gpus_train']:,} training"
        told.append(f"{label} {plain(least['step_s'])} s with {where}")
    if measured:
        drawing.draw(
            "scatter",
            x=[each.gpus_train for each in measured],
            y=[each.seconds for each in measured],
            mode="markers",
            name="measured, any model",
            marker={"symbol": "x", "size": 9, "color": colours.text},
            hovertext=[f"<b>{each.words}</b><br>measured {plain(each.seconds)} s" for each in measured],
            hovertemplate="%{hovertext}<extra></extra>",
        )
        last = measured[0]
        note(drawing, "measured", colours, x=last.gpus_train, y=last.seconds, yanchor="bottom", yshift=7)
    # Slow splits may leave the chart, but the best one of each mode is on it.
    bests = [min(row["step_s"] for row in rows if row["mode"] == name) for name in names]
    highest = max([*bests, *(row["step_s"] for row in rows if row["step_s"] < 4 * min(bests))])
    drawing.update_xaxes(title="GPUs that train", range=[0, num_procs])
    drawing.update_yaxes(title="Step, s", range=[0, 1.12 * highest], showgrid=True)
    drawing.update_layout(showlegend=True, margin={"t": 34, "r": 18})
    return Chart(drawing, f"Step against the split of {num_procs:,} GPUs: {'; '.join(told)}.")
