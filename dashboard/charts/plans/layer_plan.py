"""A layer-wise plan as pictures: stages on a grid of devices, what every stage does when, memory, and all batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pandas as pd

from dashboard.charts.elements.drawing import vertical_line
from dashboard.charts.elements.palette import SCENARIOS, TIME_KINDS, Palette, palette
from dashboard.charts.elements.template import Chart, base, empty, name_rows
from dashboard.words.numbers import plain

__all__ = ["device_grid", "plan_curves", "stage_memory_bars", "stage_timeline"]

MOST_COLUMNS: Final = 32
MOST_DRAWN: Final = 24
_KINDS: Final = {kind.key: kind for kind in TIME_KINDS}
_ROW: Final = 26
ALONG: Final = {"global_batch": ("Global batch, samples", "batch"), "devices": ("Devices", "devices")}
"""First column of a sweep -> title of the axis, and what one value is called."""
CURVES: Final = (
    ("best_hybrid", "Best pipeline", "solid"),
    ("data_parallel_overlapped", "Data parallel, overlapped", "dash"),
    ("data_parallel_p3", "Data parallel, P3", "dot"),
    ("data_parallel", "Data parallel", "dashdot"),
)


def device_grid(stages: Sequence[Sequence[int]], machines: Sequence[tuple[str, int]], mode: str = "light") -> Chart:
    """Draws machines as rows of devices, each with the number of its stage; devices without one are hatched.

    Args:
        stages: devices of each stage, numbered through all machines.
        machines: kind and number of devices of each machine; no kind where all are the same.
        mode: the theme.
    """
    colours, size = palette(mode), sum(devices for _, devices in machines)
    stage_of = {device: at for at, devices in enumerate(stages) for device in devices}
    rows = _device_rows(machines, size)
    figure = base(colours, 20 + 34 * min(len(rows), 16))
    shown = rows[:16]
    forward = _KINDS["forward"].colour(colours) or colours.muted
    for row, (_, devices) in enumerate(shown):
        figure.draw(
            "bar",
            x=[0.94] * len(devices),
            base=[column + 0.03 for column in range(len(devices))],
            y=[row] * len(devices),
            orientation="h",
            width=0.86,
            marker={
                "color": [_stage_colour(stage_of.get(device), forward, colours) for device in devices],
                "pattern": {
                    "shape": ["" if device in stage_of else "/" for device in devices],
                    "fgcolor": colours.muted,
                    "size": 6,
                    "solidity": 0.2,
                },
                "line": {"color": colours.background, "width": 1},
            },
            text=[str(stage_of[device] + 1) if device in stage_of else "" for device in devices],
            textposition="inside",
            insidetextanchor="middle",
            textangle=0,
            textfont={
                "color": [colours.ink_on(_stage_colour(stage_of.get(device), forward, colours)) for device in devices]
            },
            customdata=[
                [device, f"stage {stage_of[device] + 1}" if device in stage_of else "idle"] for device in devices
            ],
            hovertemplate="device %{customdata[0]}: %{customdata[1]}<extra></extra>",
        )
    name_rows(figure, [label for label, _ in shown], colours)
    figure.update_xaxes(visible=False, range=[0, max(len(devices) for _, devices in shown)])
    figure.update_layout(barmode="overlay", bargap=0, uniformtext={"mode": False})
    idle = size - len(stage_of)
    told = f"{len(stages)} stages on {len(stage_of)} of {size} devices"
    return Chart(figure, told + (f"; {idle} stay idle." if idle else "."))


def _device_rows(machines: Sequence[tuple[str, int]], size: int) -> list[tuple[str, list[int]]]:
    """Devices row by row with the name of the machine where one begins; machines of one device share rows."""
    if max(devices for _, devices in machines) == 1:
        width = 8 if size <= 64 else MOST_COLUMNS
        return [("", list(range(first, min(first + width, size)))) for first in range(0, size, width)]
    rows: list[tuple[str, list[int]]] = []
    last = 0
    for number, (kind, devices) in enumerate(machines, start=1):
        first, last = last, last + devices
        label = f"machine {number}" + (f", {kind}" if kind else "")
        rows.extend(
            ("" if at > first else label, list(range(at, min(at + MOST_COLUMNS, last))))
            for at in range(first, last, MOST_COLUMNS)
        )
    return rows


def stage_timeline(passes: pd.DataFrame, length: float, mode: str = "light") -> Chart:
    """Draws what stages do when in the first microbatches of a step, transfers left out, all-reduces at the end.

    Args:
        passes: `stage`, `kind` (forward, backward, reduce), `microbatch` (both from 0), `start` and `took` [s].
        length: time of the microbatches with their all-reduces [s].
        mode: the theme.
    """
    colours = palette(mode)
    stages, count = int(passes["stage"].max()) + 1, int(passes["microbatch"].max()) + 1
    figure = base(colours, 50 + _ROW * stages)
    scale, unit = (1e3, "ms") if length < 10 else (1.0, "s")
    for kind in ("forward", "backward"):
        colour = _KINDS[kind].colour(colours) or colours.muted
        rows = passes[passes["kind"] == kind].to_dict("records")
        figure.draw(
            "bar",
            x=[row["took"] * scale for row in rows],
            base=[row["start"] * scale for row in rows],
            y=[row["stage"] for row in rows],
            orientation="h",
            width=0.8,
            hovertext=[
                f"stage {row['stage'] + 1}, {kind} of microbatch {row['microbatch'] + 1}: "
                f"{row['took'] * scale:.4g} {unit}"
                for row in rows
            ],
            hoverinfo="text",
            text=[str(row["microbatch"] + 1) for row in rows],
            textposition="inside",
            insidetextanchor="middle",
            textangle=0,
            textfont={"size": 11, "color": colours.ink_on(colour)},
            marker={"color": colour, "line": {"color": colours.background, "width": 0.6}},
        )
    reduces = passes[passes["kind"] == "reduce"].to_dict("records")
    figure.draw(
        "bar",
        x=[row["took"] * scale for row in reduces],
        base=[row["start"] * scale for row in reduces],
        y=[row["stage"] for row in reduces],
        orientation="h",
        width=0.8,
        hoverinfo="text",
        hovertext=[f"stage {row['stage'] + 1}, all-reduce: {row['took'] * scale:.4g} {unit}" for row in reduces],
        marker={"color": _KINDS["data"].colour(colours)},
    )
    name_rows(figure, [f"stage {at + 1}" for at in range(stages)], colours)
    figure.update_xaxes(title={"text": unit}, ticks="", range=[0, length * scale * 1.01])
    figure.update_layout(barmode="overlay", bargap=0, uniformtext={"minsize": 9, "mode": "hide"})
    return Chart(figure, f"{count} microbatches take {length * scale:.4g} {unit} with their all-reduces.")


def stage_memory_bars(
    states: Sequence[float], needs: Sequence[float], rooms: Sequence[float], mode: str = "light"
) -> Chart:
    """Draws the memory of a device of every stage against its capacity.

    Args:
        states: parameters with their optimizer state [GB] [stages].
        needs: all memory that a device of the stage uses [GB] [stages].
        rooms: memory that it has [GB] [stages].
        mode: the theme.
    """
    colours = palette(mode)
    figure = base(colours, 40 + _ROW * len(needs))
    names = list(range(len(needs)))
    weights = _KINDS["optimizer"].colour(colours)
    over = [need > room for need, room in zip(needs, rooms, strict=True)]
    for title, values, colour, at in (
        ("parameters with optimizer", states, weights, [0.0] * len(names)),
        (
            "activations in flight",
            [n - s for n, s in zip(needs, states, strict=True)],
            _KINDS["forward"].colour(colours),
            states,
        ),
    ):
        figure.draw(
            "bar",
            x=values,
            base=at,
            y=names,
            orientation="h",
            width=0.7,
            marker={"color": colour},
            hovertemplate=f"{title}: %{{x:.3g}} GB<extra></extra>",
        )
    notes = [
        {
            "x": max(need, 0.0),
            "y": at,
            "text": f" {need:.3g} of {room:.3g} GB" + (", too much" if bad else ""),
            "showarrow": False,
            "xanchor": "left",
            "font": {"color": colours.worse if bad else colours.text, "size": 11},
        }
        for at, (need, room, bad) in enumerate(zip(needs, rooms, over, strict=True))
    ]
    figure.update_layout(barmode="overlay", bargap=0, annotations=notes)
    name_rows(figure, [f"stage {at + 1}" for at in names], colours)
    figure.update_xaxes(
        range=[0, max([*needs, *(room for room in rooms if room < 4 * max(needs))], default=1) * 1.45],
        title={"text": "GB per device"},
    )
    fullest = max(range(len(needs)), key=lambda at: needs[at] / rooms[at])
    return Chart(figure, f"Stage {fullest + 1} is the fullest: {needs[fullest]:.3g} of {rooms[fullest]:.3g} GB.")


def plan_curves(rows: pd.DataFrame, here: int, mode: str = "light") -> Chart:
    """Draws speedups over global batches or numbers of devices: the best pipeline and three kinds of data parallelism.

    rows: from `engine.planners.layerwise.sweep`. here: the batch or number of the plan in view.
    """
    colours, key = palette(mode), str(rows.columns[0])
    title_of, value_of = ALONG[key]
    if not rows["best_hybrid"].notna().any():
        return empty(colours, 300, "Nothing runs at any of these points.")
    figure = base(colours, 300)
    for (name, title, dash), colour in zip(CURVES, SCENARIOS[colours.mode], strict=True):
        figure.draw(
            "scatter",
            x=rows[key],
            y=rows[name],
            mode="lines",
            name=title,
            line={"color": colour, "dash": dash, "width": 2},
            hovertemplate=f"{title}, {value_of} %{{x:,}}: %{{y:.4g}}<extra></extra>",
        )
    figure.update_layout(
        showlegend=True,
        margin={"t": 30},
        xaxis={"title": {"text": title_of}},
        yaxis={"title": {"text": "Speedup over one device"}, "rangemode": "tozero"},
        shapes=[vertical_line(here, colours.text, 1, dash="dot")],
    )
    last = rows.iloc[-1]
    told = [f"{title} {plain(float(last[name]))}" for name, title, _ in CURVES if pd.notna(last[name])]
    return Chart(figure, f"At {value_of} {int(last[key]):,}: {', '.join(told)}.")


def _stage_colour(stage: int | None, colour: str, colours: Palette) -> str:
    """The colour of a stage: neighbours differ in lightness, and each has its number on it."""
    if stage is None:
        return colours.panel
    return (colour, _KINDS["backward"].colour(colours) or colour)[stage % 2]
