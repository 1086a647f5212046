"""Sensitivity to each parameter: how far the best work per second moves when the parameter changes either way."""

import math
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from dashboard.charts.elements.palette import Palette, palette
from dashboard.charts.elements.template import Chart, empty, noted, written
from dashboard.words.differences import is_change
from dashboard.words.names import FIXED
from dashboard.words.numbers import ABSENT, signed_percent, signed_quantity

_ROW: Final = 30
_THICK: Final = 0.62
_TICK: Final = 0.74


class Swing(NamedTuple):
    """Effect of one parameter: gains as fractions of the base's best, NaN if nothing runs, None if not tried."""

    name: str
    label: str
    down: float | None
    """Gain with the parameter lowered and the whole space re-optimised."""
    up: float | None
    down_kept: float | None
    """Gain with the base's best execution unchanged."""
    up_kept: float | None
    group: str = ""
    """Subject of the parameter, such as "Hardware"; parameters of a group are drawn together under its name."""

    @property
    def known(self) -> list[float]:
        """Return all gains."""
        every = (self.down, self.up, self.down_kept, self.up_kept)
        return [gain for gain in every if gain is not None and math.isfinite(gain)]


def tornado(swings: Sequence[Swing], steps: tuple[str, str], mode: str = "light") -> Chart:
    """Draw one row per parameter, the widest of its group first; groups in the given order.

    swings: in any order. steps: what was done, as "−10 %" and "+10 %"; either may be empty where it was not tried. Bars
    carry customdata (name of the parameter,).
    """
    colours = palette(mode)
    groups = list(dict.fromkeys(swing.group for swing in swings))
    shown = sorted(swings, key=lambda swing: (groups.index(swing.group), -_swing_width(swing)))
    if not shown:
        return empty(colours, 160, "Nothing has been computed yet.")
    if not any(swing.known for swing in shown):
        return empty(colours, 160, "Nothing runs to begin with, so there are no gains to show.")
    # A row of its own for the name of every group, where there are several.
    names = [
        index
        for index, swing in enumerate(shown)
        if len(groups) > 1 and (not index or swing.group != shown[index - 1].group)
    ]
    rows = len(shown) + len(names)
    places = [rows - 1 - index - sum(first <= index for first in names) for index in range(len(shown))]
    heads = {places[index] + 1: f"<b>{shown[index].group}</b>" for index in names}
    known = [gain for swing in shown for gain in swing.known]
    low, high = min(0.0, *known), max(0.0, *known)
    reach = max(high - low, 0.01)
    # Down below up: where both go the same way, the longer is drawn first so that the shorter stays visible.
    bars = [_bar_trace(shown, places, step, pick, colours) for step, pick in ((steps[0], 2), (steps[1], 3)) if step]
    ticks: list[dict[str, Any]] = []
    notes = [_legend_note(steps, colours)]
    for row, swing in zip(places, shown, strict=True):
        ticks += [
            _vertical_line(100 * kept, row - _TICK / 2, row + _TICK / 2, colours.text, 2)
            for kept in (swing.down_kept, swing.up_kept)
            if kept is not None and math.isfinite(kept)
        ]
        notes += _gain_labels(swing, row, reach, colours)
    ticks.append(_vertical_line(0, -0.6, rows - 0.4, colours.muted, 1))
    # Room for the numbers beyond the bars; where there are two, for both.
    left, right = (
        0.36 if any(" | " in note["text"] and note["xanchor"] == side for note in notes) else 0.2
        for side in ("right", "left")
    )
    figure = written(
        colours,
        60 + _ROW * rows,
        bars,
        {
            "barmode": "overlay",
            "uniformtext": {"mode": False},
            "margin": {"t": 26, "b": 4},
            "shapes": ticks,
            "annotations": notes,
            "xaxis": {
                "range": [100 * (low - left * reach), 100 * (high + right * reach)],
                "ticksuffix": " %",
                "showgrid": True,
                "nticks": 6,
            },
            "yaxis": {
                "tickvals": [*places, *heads],
                "ticktext": [*(swing.label for swing in shown), *heads.values()],
                "range": [-0.6, rows - 0.4],
                "tickfont": {"size": 12, "color": colours.text},
            },
        },
    )
    return Chart(figure, _summarize_swings(shown, steps), rows=True)


def _bar_trace(shown: Sequence[Swing], places: Sequence[int], step: str, pick: int, colours: Palette) -> dict[str, Any]:
    gains = [swing.down if pick == 2 else swing.up for swing in shown]
    kept = [swing.down_kept if pick == 2 else swing.up_kept for swing in shown]
    return {
        "type": "bar",
        "x": [100 * gain if gain is not None and math.isfinite(gain) else 0.0 for gain in gains],
        "y": list(places),
        "orientation": "h",
        "width": _THICK,
        "marker": {"color": _step_colour(colours, pick), "line": {"width": 0}},
        "hovertext": [
            f"<b>{swing.label} {step}</b><br>"
            + (
                "not computed"
                if gain is None or same is None
                else f"{_describe_gain(gain)} re-optimised<br>{_describe_gain(same)} with a {FIXED}"
            )
            for swing, gain, same in zip(shown, gains, kept, strict=True)
        ],
        "hovertemplate": "%{hovertext}<extra></extra>",
        "customdata": [[swing.name] for swing in shown],
    }


def _step_colour(colours: Palette, pick: int) -> str:
    return colours.diverge(-0.5 if pick == 2 else 0.5)


def _describe_gain(gain: float) -> str:
    return signed_percent(gain) if math.isfinite(gain) else "nothing runs"


def _vertical_line(x: float, low: float, high: float, colour: str, width: int) -> dict[str, Any]:
    return {
        "type": "line",
        "x0": x,
        "x1": x,
        "y0": low,
        "y1": high,
        "layer": "above",
        "line": {"color": colour, "width": width},
    }


def _gain_labels(swing: Swing, row: int, reach: float, colours: Palette) -> list[dict[str, Any]]:
    """Return each bar's gain, to write beyond its end and beyond its tick."""
    ends = swing.known
    left, right = min([0.0, *ends]), max([0.0, *ends])
    gap = 0.015 * reach
    if not any(is_change(value, 1.0) for value in ends):
        return [noted("±0" if ends else ABSENT, colours, x=100 * (right + gap), y=row, xanchor="left")]
    both = [gain for gain in (swing.down, swing.up) if gain is not None and math.isfinite(gain)]
    notes = []
    for gain in both:
        if not is_change(gain, 1.0):
            continue
        worse = gain < 0
        if any(other < gain if worse else other > gain for other in both):
            continue  # the longer bar on this side has the label
        place = left - gap if worse else right + gap
        label = _gain_number(gain)
        kept = swing.down_kept if gain == swing.down else swing.up_kept
        # The line of the fixed layout is between the bar and the number, which would be taken for the line's.
        beyond = kept is not None and math.isfinite(kept) and (kept < gain if worse else kept > gain)
        if kept is not None and beyond and _gain_number(kept) != label:
            label = f"{_gain_number(kept)} | {label}" if worse else f"{label} | {_gain_number(kept)}"
        notes.append(
            noted(label, colours, x=100 * place, y=row, colour=colours.text, xanchor="right" if worse else "left")
        )
    return notes


def _gain_number(gain: float) -> str:
    return signed_quantity(gain).number


def _legend_note(steps: tuple[str, str], colours: Palette) -> dict[str, Any]:
    parts = [
        f'<span style="color:{_step_colour(colours, pick)}">■</span> {step}'
        for step, pick in zip(steps, (2, 3), strict=True)
        if step
    ]
    parts.append(f'<span style="color:{colours.text}"><b>|</b></span> {FIXED}')
    return noted(
        "     ".join(parts), colours, x=0.0, y=1, xref="paper", yref="paper", xanchor="left", yanchor="bottom", yshift=4
    )


def _swing_width(swing: Swing) -> float:
    gains = [abs(gain) for gain in (swing.down, swing.up) if gain is not None and math.isfinite(gain)]
    return sum(gains) if gains else -1.0


def _summarize_swings(shown: Sequence[Swing], steps: tuple[str, str]) -> str:
    first = max(shown, key=_swing_width)
    told = " and ".join(
        f"{signed_percent(gain)} at {step}"
        for gain, step in ((first.down, steps[0]), (first.up, steps[1]))
        if step and gain is not None and math.isfinite(gain)
    )
    quiet = sum(_swing_width(swing) < 1e-3 for swing in shown)
    return (
        f"Best work per second when one parameter changes: {first.label} matters most, "
        f"{told or 'with nothing that runs'}; {quiet} of {len(shown)} parameters change nothing."
    )
