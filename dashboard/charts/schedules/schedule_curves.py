"""Schedules along one parameter: how much of a step each spends working, and where the best one changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

import pandas as pd

from dashboard.charts.elements.drawing import vertical_band, vertical_line
from dashboard.charts.elements.palette import SCENARIOS, Palette, palette
from dashboard.charts.elements.template import Chart, base, empty, noted
from dashboard.words.numbers import percent, plain

__all__ = ["best_bands", "schedule_curves"]

HEIGHT: Final = 330
_LETTER: Final = 6.2
"""Width of a letter on top of the plot [px]."""
_ROOM: Final = {False: 440.0, True: 270.0}
"""Width of the plot at least, in a window 1,280 wide and on a phone [px]."""


Band = tuple[float, float, str]
"""A stretch along the parameter, from and to, and the schedule that is the fastest in it."""


def best_bands(curves: pd.DataFrame) -> list[Band]:
    """Returns the stretches along the parameter in which one schedule is the fastest: from, to, name."""
    if not len(curves):
        return []
    ranked = curves.sort_values(["value", "makespan"], kind="stable")
    bands: list[Band] = []
    for at, group in groupby(
        zip(*(ranked[each].tolist() for each in ("value", "makespan", "name")), strict=True), key=itemgetter(0)
    ):
        spans = [(span, str(name)) for _, span, name in group]
        level = {name for span, name in spans if span <= spans[0][0] * (1 + 1e-9)}
        # Of schedules that tie the one that was best before goes on.
        name = bands[-1][2] if bands and bands[-1][2] in level else spans[0][1]
        if bands and bands[-1][2] == name:
            bands[-1] = bands[-1][0], at, name
        else:
            start = (bands[-1][1] + at) / 2 if bands else at
            bands = [*bands[:-1], (bands[-1][0], start, bands[-1][2])] if bands else []
            bands.append((start, at, name))
    return bands


def schedule_curves(
    curves: pd.DataFrame,
    titles: Mapping[str, str],
    chosen: tuple[str, str],
    label: str,
    here: float,
    mode: str = "light",
    *,
    as_percent: bool = True,
    narrow: bool = False,
) -> Chart:
    """Draws the curves.

    Args:
        curves: `name`, `value`, `makespan` [s] and `share` of it that is work.
        titles: of the schedules by name.
        chosen: names of A and B, which are drawn in their colours; all others are faint.
        label: what the parameter is called.
        here: its value now.
        mode: the theme.
        as_percent: whether values are shares.
        narrow: whether the window is that of a phone, where names on top have less room.
    """
    colours = palette(mode)
    if not len(curves):
        return empty(colours, HEIGHT, "No schedule runs anywhere along this parameter.")
    figure = base(colours, HEIGHT)
    factor, unit = (100.0, " %") if as_percent else (1.0, "")
    marks = dict(zip(chosen, SCENARIOS[colours.mode][:2], strict=True))
    first, last = float(curves["value"].min()) * factor, float(curves["value"].max()) * factor
    for name, own in curves.groupby("name", sort=False):
        title = titles[str(name)]
        strong = name in marks
        letter = " and ".join("AB"[place] for place in (0, 1) if chosen[place] == name)
        figure.draw(
            "scatter",
            x=own["value"] * factor,
            y=100 * own["share"],
            mode="lines+markers" if len(own) < 2 else "lines",
            line={
                "color": marks.get(str(name), colours.muted),
                "width": 2.4 if strong else 1,
                "dash": "dash" if strong and name == chosen[1] and chosen[0] != chosen[1] else "solid",
            },
            opacity=1.0 if strong else 0.45,
            name=title,
            hovertemplate=f"<b>{letter + ': ' if letter else ''}{title}</b><br>%{{x:.4g}}{unit}: "
            "work of %{y:.1f} % of the step<extra></extra>",
        )
    bands = best_bands(curves)
    shapes, notes = _band_shapes(bands, curves, titles, factor, colours, _ROOM[narrow])
    shapes.append(vertical_line(here * factor, colours.text, 1, dash="dot"))
    for letter, name in zip("AB", chosen, strict=True):
        own = curves[curves["name"] == name]
        if len(own) and (letter == "A" or chosen[0] != chosen[1]):
            end = own.sort_values("value").iloc[-1]
            notes.append(
                noted(
                    letter,
                    colours,
                    x=float(end["value"]) * factor,
                    y=100 * float(end["share"]),
                    xanchor="left",
                    xshift=4,
                    colour=colours.text,
                )
            )
    low = max(0.0, 100 * float(curves["share"].min()) - 4)
    pad = 0.02 * (last - first) or 1.0
    figure.update_xaxes(range=[first - pad, last + pad], title=label, nticks=8, ticksuffix=" %" if as_percent else "")
    figure.update_yaxes(
        range=[low, 100 * float(curves["share"].max()) + 3],
        ticksuffix=" %",
        showgrid=True,
        title="work per time of a step",
        nticks=6,
    )
    figure.update_layout(margin={"t": 40, "r": 18}, shapes=shapes, annotations=notes)
    return Chart(figure, _summarize_schedules(bands, curves, titles, label, factor, as_percent))


def _band_shapes(
    bands: Sequence[Band], curves: pd.DataFrame, titles: Mapping[str, str], factor: float, colours: Palette, room: float
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Returns the grounds of the stretches and the names on top of them, in the first of two lines that has room.

    room: width of the plot, at least [px].
    """
    shapes: list[dict[str, Any]] = []
    notes: list[dict[str, Any]] = []
    taken = [0.0, 0.0]
    for place, (start, end, name) in enumerate(bands):
        if place % 2 == 0:
            shapes.append(vertical_band(start * factor, end * factor, colours.panel))
        middle = (start + end) / 2 * factor
        if len(bands) > 1 and end - start < 0.08 * (bands[-1][1] - bands[0][0]):
            continue
        whole = (float(curves["value"].max()) - float(curves["value"].min())) * factor or 1.0
        where = (middle - float(curves["value"].min()) * factor) / whole
        anchor = "left" if where < 0.15 else "right" if where > 0.85 else "center"
        at = (start if anchor == "left" else end if anchor == "right" else (start + end) / 2) * factor
        width = _LETTER * len(titles[name])
        left = room * (at - float(curves["value"].min()) * factor) / whole
        left -= {"left": 0.0, "center": width / 2, "right": width}[anchor]
        line = next((each for each in (place % 2, 1 - place % 2) if taken[each] <= left), None)
        if line is None:
            continue  # the sentence below the chart names it
        taken[line] = left + width + 2 * _LETTER
        notes.append(
            noted(titles[name], colours, x=at, y=1, yref="paper", yanchor="bottom", xanchor=anchor, yshift=16 * line)
        )
    return shapes, notes


def _summarize_schedules(
    bands: Sequence[Band], curves: pd.DataFrame, titles: Mapping[str, str], label: str, factor: float, as_percent: bool
) -> str:
    unit = " %" if as_percent else ""
    parts = [
        f"{titles[name]} from {plain(start * factor)}{unit} to {plain(end * factor)}{unit}"
        for start, end, name in bands
    ]
    top = curves.sort_values("share").iloc[-1]
    return (
        f"Fastest schedule by {label.lower()}: {'; '.join(parts)}. The most work per time of a step is "
        f"{percent(float(top['share']))}, with {titles[str(top['name'])]}."
    )
