"""Jobs that share GPUs: what each way to split them gives, and a cluster over time under several policies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pandas as pd

from dashboard.charts.elements.palette import SCENARIOS, contrast, palette
from dashboard.charts.elements.template import LEGEND_BELOW, Chart, base
from dashboard.words.numbers import plain

__all__ = ["WAYS", "cluster_over_time", "split_bars"]

WAYS: Final = {"equal": "Equal split", "greedy": "Scheduler", "exact": "Best split"}
"""Names of the ways to split GPUs on the page."""
HEIGHT: Final = 300
MOST_POINTS: Final = 240
"""Points of a line over time; more are averaged."""
_DASHES: Final = ("solid", "dash", "dot", "dashdot")


def split_bars(table: pd.DataFrame, mode: str = "light") -> Chart:
    """Draws what each way to split GPUs gives: one bar per way, a piece per job, as long as its normalised throughput.

    Args:
        table: that of `engine.planners.elastic.Split`, with plans as people read them.
        mode: the theme.
    """
    colours = palette(mode)
    figure = base(colours, HEIGHT)
    shades = SCENARIOS[colours.mode]
    for place, (job, own) in enumerate(table.groupby("job", sort=False)):
        shade = shades[place % len(shades)]
        ink = max((colours.text, colours.background), key=lambda each: contrast(each, shade))
        figure.draw(
            "bar",
            x=own["normalised"],
            y=[WAYS[way] for way in own["way"]],
            orientation="h",
            name=str(job),
            width=0.6,
            marker={"color": shade, "line": {"color": colours.background, "width": 1}},
            text=[f"{job}: {int(gpus)}" for gpus in own["gpus"]],
            textposition="inside",
            textangle=0,
            insidetextanchor="middle",
            textfont={"color": ink},
            customdata=own[["gpus", "throughput", "plan"]].to_numpy(),
            hovertemplate=f"<b>{job}</b><br>%{{customdata[0]}} GPUs, plan %{{customdata[2]}}<br>"
            "%{customdata[1]:.4g} samples/s, %{x:.3f} of that alone<extra></extra>",
        )
    figure.update_layout(barmode="stack")
    figure.update_xaxes(title="throughput over that alone on all GPUs, summed", showgrid=True)
    figure.update_yaxes(autorange="reversed")
    totals = table.groupby("way", sort=False)["normalised"].sum()
    told = ", ".join(f"{WAYS[str(way)].lower()} {plain(float(total), 3)}" for way, total in totals.items())
    return Chart(figure, f"Sum of normalised throughputs: {told}. Numbers on the bars are GPUs.")


def cluster_over_time(
    lines: Mapping[str, pd.DataFrame], column: str, label: str, strong: str, most: float | None, mode: str = "light"
) -> Chart:
    """Draws one figure of a cluster over time, a line per policy, as means over equal spans.

    Args:
        lines: by what the policy is called: `time_s` and the column, a row per round.
        column: of the figure.
        label: what the figure is, with its unit.
        strong: the policy that stands out.
        most: a level to mark, None for none.
        mode: the theme.
    """
    colours = palette(mode)
    figure = base(colours, HEIGHT)
    means = []
    for place, (title, rows) in enumerate(lines.items()):
        shown = _average_rows(rows, column)
        figure.draw(
            "scatter",
            x=shown["time_s"] / 3600,
            y=shown[column],
            mode="lines",
            name=title,
            line={
                "color": SCENARIOS[colours.mode][place % 4],
                "width": 2.4 if title == strong else 1.3,
                "dash": _DASHES[place % 4],
            },
            hovertemplate=f"<b>{title}</b><br>%{{x:.1f}} h: %{{y:.1f}}<extra></extra>",
        )
        end = plain(float(rows["time_s"].iloc[-1]) / 3600, 3)
        means.append(f"{title} {plain(float(rows[column].mean()), 3)} over {end} h")
    if most is not None:
        figure.add_hline(y=most, line={"color": colours.muted, "width": 1, "dash": "dot"})
    figure.update_xaxes(title="time [h]")
    figure.update_yaxes(title=label, rangemode="tozero", showgrid=True)
    figure.update_layout(
        showlegend=True,
        margin={"t": 8, "b": 96},
        legend=LEGEND_BELOW,
    )
    return Chart(figure, f"{label}, mean: {'; '.join(means)}.")


def _average_rows(rows: pd.DataFrame, column: str) -> Any:
    """Means over equal spans, where there are more rounds than a line shows."""
    if len(rows) <= MOST_POINTS:
        return rows
    span = -(-len(rows) // MOST_POINTS)
    return rows[["time_s", column]].groupby(rows.index // span).mean()
