"""A layer-wise plan as pictures: stages on a grid of devices, what every stage does when, memory, and all batches."""

from __future__ import annotations

from typing import Any, Final

import pandas as pd

from dashboard.charts.elements.palette import SCENARIOS, TIME_KINDS, Palette, palette
from dashboard.charts.elements.template import Chart, base, empty, trace
from dashboard.words.numbers import plain
from engine.planners.layerwise import LayerwisePlan
from engine.planners.layerwise.timeline import PipelineTimeline

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


def device_grid(plan: LayerwisePlan, mode: str = "light") -> Chart:
    """Draws machines as rows of devices, each with the number of its stage; devices without one are hatched."""
    colours, cluster = palette(mode), plan.problem.cluster
    stage_of = {device: at for at, stage in enumerate(plan.stages) for device in stage.devices}
    rows = _device_rows(plan)
    figure = base(colours, 20 + 34 * min(len(rows), 16))
    shown = rows[:16]
    forward = _KINDS["forward"].colour(colours) or colours.muted
    for row, (_, devices) in enumerate(shown):
        figure.add_trace(
            trace(
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
                    "color": [
                        colours.ink_on(_stage_colour(stage_of.get(device), forward, colours)) for device in devices
                    ]
                },
                customdata=[
                    [device, f"stage {stage_of[device] + 1}" if device in stage_of else "idle"] for device in devices
                ],
                hovertemplate="device %{customdata[0]}: %{customdata[1]}<extra></extra>",
            )
        )
    figure.update_yaxes(
        autorange="reversed",
        tickvals=list(range(len(shown))),
        ticktext=[label for label, _ in shown],
        tickfont={"color": colours.text},
    )
    figure.update_xaxes(visible=False, range=[0, max(len(devices) for _, devices in shown)])
    figure.update_layout(barmode="overlay", bargap=0, uniformtext={"mode": False})
    idle = cluster.size - len(stage_of)
    told = f"{len(plan.stages)} stages on {len(stage_of)} of {cluster.size} devices"
    return Chart(figure, told + (f"; {idle} stay idle." if idle else "."))


def _device_rows(plan: LayerwisePlan) -> list[tuple[str, list[int]]]:
    """Devices row by row with the name of the machine where one begins; machines of one device share rows."""
    cluster = plan.problem.cluster
    if max(machine.devices for machine in cluster.machines) == 1:
        width = 8 if cluster.size <= 64 else MOST_COLUMNS
        return [("", list(range(first, min(first + width, cluster.size)))) for first in range(0, cluster.size, width)]
    rows: list[tuple[str, list[int]]] = []
    for number, machine in enumerate(cluster.machines):
        first, last = cluster.first[number], cluster.first[number] + machine.devices
        label = f"machine {number + 1}" + (f", {machine.kind}" if machine.kind and not cluster.uniform else "")
        rows.extend(
            ("" if at > first else label, list(range(at, min(at + MOST_COLUMNS, last))))
            for at in range(first, last, MOST_COLUMNS)
        )
    return rows


def stage_timeline(plan: LayerwisePlan, found: PipelineTimeline, mode: str = "light") -> Chart:
    """Draws what stages do when in the microbatches of a timeline, transfers left out, all-reduces at the end."""
    colours = palette(mode)
    count = found.forward_end.shape[1]
    figure = base(colours, 50 + _ROW * len(plan.stages))
    scale, unit = (1e3, "ms") if found.step_seconds < 10 else (1.0, "s")
    for name, title, ends in (("forward", "forward", found.forward_end), ("backward", "backward", found.backward_end)):
        colour = _KINDS[name].colour(colours) or colours.muted
        bars: dict[str, list[Any]] = {"x": [], "base": [], "y": [], "text": [], "hover": []}
        for at in range(len(plan.stages)):
            took = getattr(found.works[2 * at], name)
            for number in range(count):
                end = float(ends[2 * at, number])
                bars["x"].append(took * scale)
                bars["base"].append((end - took) * scale)
                bars["y"].append(at)
                bars["text"].append(str(number + 1))
                bars["hover"].append(f"stage {at + 1}, {title} of microbatch {number + 1}: {took * scale:.4g} {unit}")
        figure.add_trace(
            trace(
                "bar",
                x=bars["x"],
                base=bars["base"],
                y=bars["y"],
                orientation="h",
                width=0.8,
                hovertext=bars["hover"],
                hoverinfo="text",
                text=bars["text"],
                textposition="inside",
                insidetextanchor="middle",
                textangle=0,
                textfont={"size": 11, "color": colours.ink_on(colour)},
                marker={"color": colour, "line": {"color": colours.background, "width": 0.6}},
            )
        )
    reduces = [(at, found.works[2 * at].reduce) for at in range(len(plan.stages)) if found.works[2 * at].reduce]
    figure.add_trace(
        trace(
            "bar",
            x=[took * scale for _, took in reduces],
            base=[float(found.backward_end[2 * at, -1]) * scale for at, _ in reduces],
            y=[at for at, _ in reduces],
            orientation="h",
            width=0.8,
            hoverinfo="text",
            hovertext=[f"stage {at + 1}, all-reduce: {took * scale:.4g} {unit}" for at, took in reduces],
            marker={"color": _KINDS["data"].colour(colours)},
        )
    )
    figure.update_yaxes(
        autorange="reversed",
        tickvals=list(range(len(plan.stages))),
        ticktext=[f"stage {at + 1}" for at in range(len(plan.stages))],
        tickfont={"color": colours.text},
    )
    figure.update_xaxes(title={"text": unit}, ticks="", range=[0, found.step_seconds * scale * 1.01])
    figure.update_layout(barmode="overlay", bargap=0, uniformtext={"minsize": 9, "mode": "hide"})
    return Chart(figure, f"{count} microbatches take {found.step_seconds * scale:.4g} {unit} with their all-reduces.")


def stage_memory_bars(plan: LayerwisePlan, mode: str = "light") -> Chart:
    """Draws the memory of a device of every stage against its capacity."""
    colours = palette(mode)
    figures = [{each.name: each.value for each in stage.figures} for stage in plan.stages]
    figure = base(colours, 40 + _ROW * len(figures))
    names = list(range(len(figures)))
    weights = _KINDS["optimizer"].colour(colours)
    states = [plan.problem.optimizer * each["parameters"] / 1e9 for each in figures]
    needs = [each["memory"] / 1e9 for each in figures]
    rooms = [each["memory_room"] / 1e9 for each in figures]
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
        figure.add_trace(
            trace(
                "bar",
                x=values,
                base=at,
                y=names,
                orientation="h",
                width=0.7,
                marker={"color": colour},
                hovertemplate=f"{title}: %{{x:.3g}} GB<extra></extra>",
            )
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
    figure.update_yaxes(
        autorange="reversed",
        tickvals=names,
        ticktext=[f"stage {at + 1}" for at in names],
        tickfont={"color": colours.text},
    )
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
        figure.add_trace(
            trace(
                "scatter",
                x=rows[key],
                y=rows[name],
                mode="lines",
                name=title,
                line={"color": colour, "dash": dash, "width": 2},
                hovertemplate=f"{title}, {value_of} %{{x:,}}: %{{y:.4g}}<extra></extra>",
            )
        )
    figure.update_layout(
        showlegend=True,
        margin={"t": 30},
        xaxis={"title": {"text": title_of}},
        yaxis={"title": {"text": "Speedup over one device"}, "rangemode": "tozero"},
        shapes=[
            {
                "type": "line",
                "x0": here,
                "x1": here,
                "y0": 0,
                "y1": 1,
                "yref": "paper",
                "line": {"color": colours.text, "width": 1, "dash": "dot"},
            }
        ],
    )
    last = rows.iloc[-1]
    told = [f"{title} {plain(float(last[name]))}" for name, title, _ in CURVES if pd.notna(last[name])]
    return Chart(figure, f"At {value_of} {int(last[key]):,}: {', '.join(told)}.")


def _stage_colour(stage: int | None, colour: str, colours: Palette) -> str:
    """The colour of a stage: neighbours differ in lightness, and each has its number on it."""
    if stage is None:
        return colours.panel
    return (colour, _KINDS["backward"].colour(colours) or colour)[stage % 2]
