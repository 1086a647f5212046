"""A fleet over time: GPUs of jobs and services by hour, demand by hour, and jobs that wait for others by day."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from dashboard.charts.elements.drawing import Drawing
from dashboard.charts.elements.palette import palette
from dashboard.charts.elements.template import Chart, base
from dashboard.words.numbers import counted, plain

__all__ = ["FleetBar", "demand_by_hour", "gpus_by_hour", "jobs_by_day"]

HEIGHT: Final = 300
DEMAND_HEIGHT: Final = 240
BAR: Final = 34
"""Height of a row of a chart with a bar per job [px]."""
DAY: Final = 24


class FleetBar(NamedTuple):
    """Job or service from its start to its end [days]; None if it goes on, or never starts."""

    name: str
    start: float | None
    end: float | None
    deadline: float | None
    is_service: bool
    is_late: bool


def jobs_by_day(bars: Sequence[FleetBar], mode: str = "light") -> Chart:
    """Draw when each job and service runs, with deadlines as marks.

    Args:
        bars: of jobs and services, the first at the top.
        mode: the theme.
    """
    colours = palette(mode)
    drawing = base(colours, 90 + BAR * len(bars))
    ends = [each for bar in bars for each in (bar.start, bar.end, bar.deadline) if each is not None]
    right = 1.08 * max(ends, default=1.0) or 1.0
    drawn = [bar for bar in bars if bar.start is not None]
    for words, shade, some in (
        ("Jobs", colours.ramp(0.7), [bar for bar in drawn if not bar.is_service and not bar.is_late]),
        ("Late", colours.worse, [bar for bar in drawn if bar.is_late]),
        ("Services, go on", colours.ramp(0.3), [bar for bar in drawn if bar.is_service and not bar.is_late]),
    ):
        if some:
            drawing.draw(
                "bar",
                orientation="h",
                y=[bar.name for bar in some],
                base=[bar.start for bar in some],
                x=[(right if bar.end is None else bar.end) - (bar.start or 0.0) for bar in some],
                name=words,
                marker={"color": shade},
                hovertext=[_bar_words(bar) for bar in some],
                hovertemplate="%{hovertext}<extra></extra>",
                textposition="none",
            )
    limits = [bar for bar in bars if bar.deadline is not None]
    if limits:
        drawing.draw(
            "scatter",
            mode="markers",
            x=[bar.deadline for bar in limits],
            y=[bar.name for bar in limits],
            name="Deadline",
            marker={"symbol": "line-ns", "size": 20, "line": {"width": 2.4, "color": colours.text}},
            hovertext=[f"Deadline of {bar.name}: day {plain(bar.deadline or 0.0)}" for bar in limits],
            hovertemplate="%{hovertext}<extra></extra>",
        )
    drawing.update_xaxes(title="Day", range=[0, right], showgrid=True)
    drawing.update_yaxes(
        categoryorder="array", categoryarray=[bar.name for bar in reversed(bars)], automargin=True, title=None
    )
    drawing.update_layout(barmode="overlay", bargap=0.35, showlegend=True, margin={"t": 30, "r": 18})
    return Chart(drawing, "Jobs and services by day: " + "; ".join(map(_bar_words, bars)) + ".")


def _bar_words(bar: FleetBar) -> str:
    if bar.start is None:
        return f"{bar.name} never starts"
    end = "on" if bar.end is None else f"to day {plain(bar.end, 4)}"
    late = f", late for day {plain(bar.deadline or 0.0, 4)}" if bar.is_late else ""
    return f"{bar.name} from day {plain(bar.start, 4)} {end}{late}"


def demand_by_hour(demand: Mapping[str, Sequence[float]], mode: str = "light") -> Chart:
    """Draw the demand of each service by hour as bars.

    Args:
        demand: requests per second of each hour, by service; as many hours each.
        mode: the theme.
    """
    colours = palette(mode)
    drawing = base(colours, DEMAND_HEIGHT)
    hours = len(next(iter(demand.values()), ()))
    for number, (name, values) in enumerate(demand.items()):
        drawing.draw(
            "bar",
            x=[hour + 0.5 for hour in range(hours)],
            y=list(values),
            name=name,
            marker={"color": colours.ramp(0.95 - 0.75 * number / max(len(demand), 2))},
            hovertext=[
                f"<b>{hour % DAY}:00</b><br>{name}: {plain(value)} requests/s" for hour, value in enumerate(values)
            ],
            hovertemplate="%{hovertext}<extra></extra>",
            textposition="none",
        )
    _style_hours(drawing, hours)
    drawing.update_yaxes(title="Requests/s", rangemode="tozero", showgrid=True)
    drawing.update_layout(barmode="group", bargap=0.15, showlegend=len(demand) > 1, margin={"t": 30, "r": 18})
    words = "; ".join(f"{name} {plain(min(each))} to {plain(max(each))}" for name, each in demand.items())
    return Chart(drawing, f"Demand by hour in requests/s: {words or 'none'}.")


def _style_hours(drawing: Drawing, hours: int) -> None:
    days = hours // DAY
    ticks = [DAY * each for each in range(days + 1)] if days > 1 else list(range(0, hours + 1, 6))
    drawing.update_xaxes(
        title="Day" if days > 1 else "Hour of the day",
        range=[0, hours],
        tickvals=ticks,
        ticktext=[f"{each // DAY}" if days > 1 else f"{each}:00" for each in ticks],
    )


def gpus_by_hour(held: Mapping[str, Sequence[int]], gpus: int, spares: int, title: str, mode: str = "light") -> Chart:
    """Draw who holds how many GPUs of a pool in which hour.

    Args:
        held: GPUs by hour of each job and service.
        gpus: of the pool.
        spares: of these, kept free for failures.
        title: of the pool.
        mode: the theme.
    """
    colours = palette(mode)
    drawing = base(colours, HEIGHT)
    hours = len(next(iter(held.values()), ()))
    shown = {name: values for name, values in held.items() if any(values)}
    times = [*range(hours), hours]
    for number, (name, values) in enumerate(shown.items()):
        shade = colours.ramp(0.95 - 0.75 * number / max(len(shown), 2))
        steps = [*values, values[-1]]
        drawing.draw(
            "scatter",
            x=times,
            y=steps,
            mode="lines",
            name=name,
            stackgroup="gpus",
            line={"shape": "hv", "width": 1, "color": colours.background},
            fillcolor=shade,
            hovertext=[
                f"<b>{hour % DAY}:00</b><br>{name}: {counted(value, 'GPU')}" for hour, value in enumerate(steps)
            ],
            hovertemplate="%{hovertext}<extra></extra>",
        )
    drawing.draw(
        "scatter",
        x=[0, hours],
        y=[gpus - spares, gpus - spares],
        mode="lines",
        name="GPUs without spares" if spares else "GPUs",
        line={"color": colours.text, "width": 1.4, "dash": "dash"},
        hoverinfo="skip",
    )
    _style_hours(drawing, hours)
    drawing.update_yaxes(title="GPUs", range=[0, 1.08 * gpus], showgrid=True)
    drawing.update_layout(showlegend=True, margin={"t": 30, "r": 18})
    words = "; ".join(
        f"{name} {min(values):,} to {max(values):,}" if min(values) != max(values) else f"{name} {max(values):,}"
        for name, values in shown.items()
    )
    return Chart(drawing, f"GPUs of {title} by hour: {words or 'none in use'}; {gpus - spares:,} can be used.")
