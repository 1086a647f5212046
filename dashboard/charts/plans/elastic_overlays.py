"""Curves that are compared: losses of the same training under several plans, sensitivities of several jobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pandas as pd

from dashboard.charts.elements.palette import SCENARIOS, palette
from dashboard.charts.elements.template import LEGEND_BELOW, Chart, base, empty
from dashboard.words.numbers import counted, plain

__all__ = ["loss_curves", "overlaid_sensitivities"]

HEIGHT: Final = 360
_DASHES: Final = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")


def loss_curves(table: pd.DataFrame, label: str, mode: str = "light") -> Chart:
    """Draws losses over the minibatches, or differences of losses, a line per run.

    Args:
        table: `minibatch`, and a column per run.
        label: title of the vertical axis.
        mode: the theme.
    """
    colours = palette(mode)
    figure = base(colours, HEIGHT)
    shades = SCENARIOS[colours.mode]
    runs = [str(name) for name in table.columns if name != "minibatch"]
    for place, run in enumerate(runs):
        figure.draw(
            "scatter",
            x=table["minibatch"],
            y=table[run],
            mode="lines",
            name=run.replace("_", ", "),
            line={"color": shades[place % len(shades)], "width": 1.6, "dash": _DASHES[place % len(_DASHES)]},
            hovertemplate=f"<b>{run.replace('_', ', ')}</b><br>minibatch %{{x}}: %{{y:.4g}}<extra></extra>",
        )
    figure.update_xaxes(title="minibatch")
    figure.update_yaxes(title=label, rangemode="tozero", showgrid=True)
    figure.update_layout(showlegend=True, legend=LEGEND_BELOW, margin={"t": 16, "b": 104})
    means = ", ".join(f"{run.replace('_', ', ')} {plain(float(table[run].mean()), 3)}" for run in runs)
    return Chart(figure, f"{label[:1].upper()}{label[1:]}, mean of {counted(len(table), 'point')}: {means}.")


def overlaid_sensitivities(curves: Mapping[str, pd.DataFrame], over: str, label: str, mode: str = "light") -> Chart:
    """Draws how much more several jobs do with more of one resource: best throughput up to there over that at the
    smallest value at which the job runs.

    Args:
        curves: by job, as `engine.planners.elastic.curve` returns them, with plans as people read them.
        over: the column of the resource.
        label: what the resource is called, with its unit.
        mode: the theme.
    """
    colours = palette(mode)
    shades = SCENARIOS[colours.mode]
    figure = base(colours, HEIGHT)
    told = []
    for place, (job, curve) in enumerate(curves.items()):
        rows = curve[curve["stored_best"] > 0]
        if rows.empty:
            told.append(f"{job} runs nowhere")
            continue
        times = rows["stored_best"] / rows["stored_best"].iloc[0]
        figure.draw(
            "scatter",
            x=rows[over],
            y=times,
            mode="lines+markers",
            name=job,
            line={
                "color": shades[place % len(shades)],
                "width": 1.8,
                "dash": _DASHES[place % len(_DASHES)],
                "shape": "hv",
            },
            marker={"size": 5, "symbol": place % 8},
            customdata=rows[["raw_plan", "stored_best", "gain"]].to_numpy(),
            hovertemplate=f"<b>{job}</b><br>{label} %{{x}}: %{{y:.3g}} times, %{{customdata[1]:.4g}} samples/s<br>"
            "plan there %{customdata[0]}; %{customdata[2]:+.3g} by the last<extra></extra>",
        )
        low, high = rows[over].iloc[0], rows[over].iloc[-1]
        told.append(f"{job} {plain(float(times.max()), 3)} times from {low:g} to {high:g}")
    if not figure.traces:
        return empty(colours, HEIGHT, "No job runs anywhere along this resource.")
    figure.update_xaxes(title=label, nticks=10)
    figure.update_yaxes(title="throughput over that at the smallest", rangemode="tozero", showgrid=True)
    figure.update_layout(showlegend=True, legend=LEGEND_BELOW, margin={"t": 16, "b": 104})
    return Chart(figure, f"Best throughput grows: {'; '.join(told)}.")
