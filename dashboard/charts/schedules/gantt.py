"""The pipeline schedule: what every stage does from the start of a step to its end, idle time hatched."""

from __future__ import annotations

from functools import cache, partial
from typing import Any, Final

import numpy as np
import pandas as pd

from dashboard.charts.elements.drawing import Drawing
from dashboard.charts.elements.palette import MEMORY_KINDS, TIME_KINDS, Kind, Palette, palette
from dashboard.charts.elements.template import Chart, base, nice_steps, note
from dashboard.words.numbers import Scale, format_value, percent, scale_for
from engine.simulate.schedule import Schedule

MOST_STAGES: Final = 16
MOST_BARS: Final = 1500
LEFT: Final = 84
"""Room for the names of rows where charts below one another share their time axis [px]."""
MOST_NUMBERED: Final = 400
"""Bars of a kind up to which their microbatches are numbered."""
NARROWEST: Final = {False: 0.012, True: 0.05}
"""Share of the time axis below which a bar has no room for its number, in a window 1,280 wide and on a phone."""
_UNIT: Final = "total_time"
_ROW: Final = 21
_KINDS: Final = {kind.key: kind for kind in TIME_KINDS}
_SLATE: Final = next(kind for kind in MEMORY_KINDS if kind.key == "weights")
WEIGHTS: Final = Kind("weight gradient", "Weight gradient", (), _SLATE.light, _SLATE.dark)
"""Gradients of weights where a schedule does them apart, in the colour of weights."""
_TASKS: Final = (
    ("forward", "Forward", _KINDS["forward"]),
    ("backward", "Backward", _KINDS["backward"]),
    ("input gradient", "Input gradient", _KINDS["backward"]),
    ("weight gradient", "Weight gradient", WEIGHTS),
    ("exchange", "Gradient exchange", _KINDS["data"]),
    ("optimizer", "Optimizer step", _KINDS["optimizer"]),
)


CAUSES: Final = {
    "fill": "the pipeline fills",
    "forward": "waits for a forward of rank {}",
    "gradient": "waits for a gradient of rank {}",
    "latency": "a result of rank {} is on its way",
    "send": "sends",
    "drain": "the pipeline drains",
    "empty": "a slot of the last group has no microbatch",
}
"""Causes of idle ranks, in words."""


def gantt(
    schedule: Schedule,
    mode: str = "light",
    *,
    until: float | None = None,
    critical: pd.DataFrame | None = None,
    row: str = "stage",
    zoom: bool = False,
    narrow: bool = False,
) -> Chart:
    """Draws a schedule, one row per stage, the first on top; at most `MOST_STAGES` of them, evenly chosen.

    Later chunks of an interleaved pipeline are fainter. Beyond `MOST_BARS` bars, neighbours of the same kind are
    joined. A schedule that leaves out repetitions has a break mark there, and ticks in true time. Overlapped pairs are
    boxes split in two, the forward above the backward.

    Args:
        schedule: the schedule to draw.
        mode: the theme.
        until: end of a later time axis, to compare with another schedule [s].
        critical: tasks that are framed, with `stage`, `start`, `end` [s].
        row: the word for a row, "stage" or "rank".
        zoom: whether a stretch of time can be drawn larger by dragging.
        narrow: whether the window is that of a phone, where fewer bars have room for a number.
    """
    colours = palette(mode)
    stages = shown_stages(schedule.stages)
    place = {stage: len(stages) - 1 - row for row, stage in enumerate(stages)}
    tasks = schedule.tasks[schedule.tasks["stage"].isin(place)]
    joined_up = len(tasks) > MOST_BARS
    if joined_up:
        tasks = joined(tasks)
    idle = schedule.idle() if schedule.causes is None else schedule.causes.rename(columns={"rank": "stage"})
    idle = idle[idle["stage"].isin(place)]
    scale = scale_for(_UNIT, [schedule.step_time])
    figure = base(colours, 60 + _ROW * len(stages))
    _draw_idle_times(figure, idle, place, scale, colours)
    for kind, name, look in _TASKS:
        chosen = tasks[tasks["kind"] == kind]
        if len(chosen):
            _draw_bars(figure, schedule, chosen, place, scale, name, look, colours, row, NARROWEST[narrow])
    if critical is not None:
        _draw_critical_path(figure, critical, place, scale, colours)
    _set_time_axis(figure, schedule, scale, colours, until)
    figure.update_yaxes(
        range=[-0.55, len(stages) - 0.45],
        tickvals=list(place.values()),
        ticktext=[f"{row} {s}" for s in stages],
        tickfont={"color": colours.text},
    )
    figure.update_layout(barmode="overlay", bargap=0, margin={"t": 20 if schedule.skipped else 6, "r": 8})
    if zoom:
        figure.update_xaxes(fixedrange=False)
        figure.update_yaxes(automargin=False)
        figure.update_layout(dragmode="zoom", margin={"l": LEFT})
    return Chart(figure, _summarize_schedule(schedule, stages, row))


def shown_stages(stages: int) -> list[int]:
    """Returns the stages that are drawn: all, or the first, the last and some evenly between.

    Args:
        stages: number of stages.
    """
    if stages <= MOST_STAGES:
        return list(range(stages))
    return [int(value) for value in np.unique(np.linspace(0, stages - 1, MOST_STAGES).round())]


def joined(tasks: pd.DataFrame) -> pd.DataFrame:
    """Returns tasks with neighbours of the same kind and chunk on the same stage made one.

    `microbatch` is the first's.

    Args:
        tasks: tasks of a schedule, one row each, with `start` and `end` [s].
    """
    tasks = tasks.sort_values(["stage", "start"], kind="stable")
    before = tasks.shift()
    apart = (tasks["start"] - before["end"]).abs() > 1e-9 * tasks["end"].max()
    new = apart | (tasks[["stage", "kind", "chunk"]] != before[["stage", "kind", "chunk"]]).any(axis=1)
    if "pair" in tasks:
        new |= tasks["pair"] >= 0
    grouped = tasks.groupby(new.cumsum())
    result: pd.DataFrame = grouped.agg(
        stage=("stage", "first"),
        kind=("kind", "first"),
        chunk=("chunk", "first"),
        microbatch=("microbatch", "first"),
        start=("start", "first"),
        end=("end", "last"),
        count=("stage", "size"),
        **({"pair": ("pair", "first")} if "pair" in tasks else {}),
    ).reset_index(drop=True)
    return result


def true_time(schedule: Schedule, value: float) -> float:
    """Returns the time of the step at a place of the shortened axis [s].

    Args:
        schedule: the schedule that is drawn.
        value: place on the axis [s].
    """
    return value + schedule.skipped if value > schedule.cut else value


def _draw_bars(
    figure: Drawing,
    schedule: Schedule,
    tasks: pd.DataFrame,
    place: dict[int, int],
    scale: Scale,
    name: str,
    look: Kind,
    colours: Palette,
    word: str,
    least: float,
) -> None:
    colour = look.colour(colours) or colours.muted
    paired = (tasks["pair"] >= 0).to_numpy() if "pair" in tasks else np.zeros(len(tasks), bool)
    half = np.where(paired, 0.2 if name == "Forward" else -0.2, 0.0)
    start, end = tasks["start"].to_numpy(), tasks["end"].to_numpy()
    chunk = tasks["chunk"].to_numpy()
    step = min(0.16, 0.64 / max(1, schedule.chunks - 1))
    counts = tasks["count"].to_numpy() if "count" in tasks else np.ones(len(tasks), int)
    hovers = []
    words = cache(partial(format_value, _UNIT))  # most tasks begin when another ends
    told = tasks[["stage", "microbatch", "chunk", "start", "end"]].to_dict("records")
    for row, times in zip(told, counts, strict=True):
        head = f"<b>{word} {row['stage']} · {name.lower()}</b>"
        first = int(row["microbatch"])
        late = schedule.skipped and row["start"] > schedule.cut
        first += schedule.skipped_microbatches if late else 0
        what = f"microbatch {first + 1}" if times == 1 else f"{times} microbatches from {first + 1}"
        lines = [head] + ([what + (f", chunk {row['chunk'] + 1}" if schedule.chunks > 1 else "")] if first >= 0 else [])
        lines.append(f"{words(true_time(schedule, row['start']))} to {words(true_time(schedule, row['end']))}")
        hovers.append("<br>".join(lines))
    figure.draw(
        "bar",
        x=(end - start) / scale.factor,
        base=(start / scale.factor).tolist(),
        y=[place[int(stage)] + shift for stage, shift in zip(tasks["stage"], half, strict=True)],
        orientation="h",
        width=np.where(paired, 0.4, 0.8).tolist(),
        name=name,
        **_microbatch_numbers(tasks, counts, look, colours, least),
        marker={
            "color": colour,
            "opacity": np.round(np.clip(1.0 - step * np.maximum(chunk, 0), 0.3, 1.0), 3).tolist(),
            "line": {"color": colours.background, "width": 0.6},
        },
        hovertext=hovers,
        hovertemplate="%{hovertext}<extra></extra>",
    )


def _microbatch_numbers(tasks: pd.DataFrame, counts: Any, look: Kind, colours: Palette, least: float) -> dict[str, Any]:
    """Numbers of microbatches in bars that have room for them, where there are few enough.

    least: share of the time axis from which on a bar has room.
    """
    if len(tasks) > MOST_NUMBERED or (counts > 1).any() or (tasks["microbatch"] < 0).any():
        return {}
    room = ((tasks["end"] - tasks["start"]) / tasks["end"].max()).tolist()
    numbers = [
        str(int(each) + 1) if share >= least else "" for each, share in zip(tasks["microbatch"], room, strict=True)
    ]
    return {
        "text": numbers,
        "textposition": "inside",
        "textangle": 0,
        "insidetextanchor": "middle",
        "textfont": {"color": look.label(colours), "size": 11},
        "constraintext": "both",
    }


def _draw_critical_path(
    figure: Drawing, critical: pd.DataFrame, place: dict[int, int], scale: Scale, colours: Palette
) -> None:
    """Frames the tasks of the critical path."""
    shown = critical[critical["stage"].isin(place)]
    figure.draw(
        "bar",
        x=(shown["end"] - shown["start"]).to_numpy() / scale.factor,
        base=(shown["start"] / scale.factor).tolist(),
        y=[place[int(stage)] for stage in shown["stage"]],
        orientation="h",
        width=0.84,
        name="Critical path",
        marker={"color": "rgba(0,0,0,0)", "line": {"color": colours.worse, "width": 2}},
        hoverinfo="skip",
    )


def _draw_idle_times(
    figure: Drawing, idle: pd.DataFrame, place: dict[int, int], scale: Scale, colours: Palette
) -> None:
    if not len(idle):
        return
    length = (idle["end"] - idle["start"]).to_numpy()
    figure.draw(
        "bar",
        x=length / scale.factor,
        base=(idle["start"] / scale.factor).tolist(),
        y=[place[int(stage)] for stage in idle["stage"]],
        orientation="h",
        width=0.8,
        name="Idle",
        marker={"color": colours.muted, "line": {"width": 0}, "pattern": colours.hatch_some([True] * len(idle), 5)},
        hovertext=[
            f"<b>stage {stage} · idle</b><br>{format_value(_UNIT, gap)}{why}"
            for stage, gap, why in zip(idle["stage"], length, _cause_lines(idle), strict=True)
        ],
        hovertemplate="%{hovertext}<extra></extra>",
    )


def _cause_lines(idle: pd.DataFrame) -> list[str]:
    """Causes of gaps, as a line of the hover box; nothing where they are not known."""
    if "cause" not in idle:
        return [""] * len(idle)
    return [f"<br>{CAUSES[cause].format(of)}" for cause, of in zip(idle["cause"], idle["of"], strict=True)]


def _set_time_axis(
    figure: Drawing, schedule: Schedule, scale: Scale, colours: Palette, until: float | None = None
) -> None:
    """The time axis, from 0 to exactly the end of the step, in true time on both sides of a break."""
    end = schedule.end / scale.factor
    if not schedule.skipped:
        last = max(end, (until or 0.0) / scale.factor)
        figure.update_xaxes(range=[0, last], nticks=8, ticksuffix=scale.suffix, showticksuffix="last")
        return
    cut, skipped = schedule.cut / scale.factor, schedule.skipped / scale.factor
    before = [value for value in nice_steps(0, cut, 3) if value < 0.93 * cut]
    after = [value for value in nice_steps(cut + skipped, end + skipped, 3) if value > cut + skipped + 0.07 * cut]
    words = [f"{value:,g}" for value in [*before, *after]]
    figure.update_xaxes(
        range=[0, end],
        tickvals=[*before, *(value - skipped for value in after)],
        ticktext=[*words[:-1], *(f"{word}{scale.suffix}" for word in words[-1:])],
    )
    figure.add_shape(
        type="line",
        x0=cut,
        x1=cut,
        y0=0,
        y1=1,
        yref="paper",
        line={"color": colours.text, "width": 1.5, "dash": "dash"},
    )
    note(
        figure,
        f"{schedule.skipped_microbatches:,} microbatches, {format_value(_UNIT, schedule.skipped)} of the same",
        colours,
        x=cut,
        y=1,
        yref="paper",
        yanchor="bottom",
        colour=colours.text,
    )


def _summarize_schedule(schedule: Schedule, stages: list[int], row: str = "stage") -> str:
    idle = schedule.idle()
    first = idle[idle["stage"] == 0]
    waiting = float((first["end"] - first["start"]).sum())
    spelt = {"1F1B": "one-forward-one-backward", "interleaved 1F1B": "interleaved one-forward-one-backward"}
    name = spelt.get(schedule.title, schedule.title)
    some = f", {len(stages)} of them shown" if len(stages) < schedule.stages else ""
    return (
        f"A step of {format_value(_UNIT, schedule.step_time)}: {schedule.microbatches:,} microbatches through "
        f"{schedule.stages} {row}s{some}, {name}. The first {row} idles {format_value(_UNIT, waiting)}, "
        f"{percent(waiting / schedule.step_time)} of the step."
    )


def summary(schedule: Schedule) -> dict[str, Any]:
    """Returns facts for a heading: stages, chunks, microbatches and the share of idle time [dimensionless]."""
    idle = schedule.idle()
    total = float((idle["end"] - idle["start"]).sum())
    share = total / (schedule.step_time * schedule.stages) if schedule.step_time else 0.0
    return {"stages": schedule.stages, "chunks": schedule.chunks, "microbatches": schedule.microbatches, "idle": share}
