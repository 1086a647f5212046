"""GPUs of a fleet over the hours: jobs and services on top of each other, below a line without the spares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from dashboard.charts.elements.palette import palette
from dashboard.charts.elements.template import Chart, base
from dashboard.words.numbers import counted

__all__ = ["gpus_by_hour"]

HEIGHT: Final = 300
DAY: Final = 24


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
    days = hours // DAY
    ticks = [DAY * each for each in range(days + 1)] if days > 1 else list(range(0, hours + 1, 6))
    drawing.update_xaxes(
        title="Day" if days > 1 else "Hour of the day",
        range=[0, hours],
        tickvals=ticks,
        ticktext=[f"{each // DAY}" if days > 1 else f"{each}:00" for each in ticks],
    )
    drawing.update_yaxes(title="GPUs", range=[0, 1.08 * gpus], showgrid=True)
    drawing.update_layout(showlegend=True, margin={"t": 30, "r": 18})
    words = "; ".join(
        f"{name} {min(values):,} to {max(values):,}" if min(values) != max(values) else f"{name} {max(values):,}"
        for name, values in shown.items()
    )
    return Chart(drawing, f"GPUs of {title} by hour: {words or 'none in use'}; {gpus - spares:,} can be used.")
