"""Which parameter matters: per parameter, how far the best throughput moves when it is changed either way."""

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

import plotly.graph_objects as go

from dashboard.charts.template import Chart, base, empty, note
from dashboard.format import ABSENT, signed_percent
from dashboard.palette import Palette, palette

_ROW: Final = 30
_THICK: Final = 0.62
_TICK: Final = 0.74


class Swing(NamedTuple):
    """What one parameter does: gains as fractions of the base's best, NaN where it was not tried or nothing runs."""

    name: str
    label: str
    down: float
    """Gain with the parameter lowered and the whole space re-optimised."""
    up: float
    down_kept: float
    """Gain with the base's best execution left as it is."""
    up_kept: float


def tornado(swings: Sequence[Swing], steps: tuple[str, str], mode: str = "light") -> Chart:
    """Draw one row per parameter, the widest first.

    swings: in any order. steps: what was done, as "−10 %" and "+10 %"; either may be empty where it was not tried. Bars
    carry customdata (name of the parameter,).
    """
    colours = palette(mode)
    shown = sorted(swings, key=_span, reverse=True)
    if not shown:
        return empty(colours, 160, "Nothing has been computed yet.")
    figure = base(colours, 60 + _ROW * len(shown))
    places = [len(shown) - 1 - index for index in range(len(shown))]
    known = [gain for swing in shown for gain in swing[2:] if math.isfinite(gain)]
    low, high = min(0.0, *known) if known else 0.0, max(0.0, *known) if known else 0.0
    reach = max(high - low, 0.01)
    # Down below up: where both go the same way, the longer is drawn first so that the shorter stays visible.
    for step, pick in ((steps[0], 2), (steps[1], 3)):
        if step:
            _bars(figure, shown, places, step, pick, colours)
    for row, swing in zip(places, shown, strict=True):
        for kept in (swing.down_kept, swing.up_kept):
            if math.isfinite(kept):
                figure.add_shape(type="line", x0=100 * kept, x1=100 * kept, y0=row - _TICK / 2, y1=row + _TICK / 2,
                                 line={"color": colours.text, "width": 2}, layer="above")  # fmt: skip
        _labels(figure, swing, row, reach, colours)
    figure.add_shape(type="line", x0=0, x1=0, y0=-0.6, y1=len(shown) - 0.4, layer="above",
                     line={"color": colours.muted, "width": 1})  # fmt: skip
    figure.update_layout(barmode="overlay", uniformtext={"mode": False}, margin={"t": 26, "b": 4})
    figure.update_xaxes(
        range=[100 * (low - 0.2 * reach), 100 * (high + 0.2 * reach)], ticksuffix=" %", showgrid=True, nticks=6,
    )  # fmt: skip
    figure.update_yaxes(
        tickvals=places, ticktext=[swing.label for swing in shown], range=[-0.6, len(shown) - 0.4],
        tickfont={"size": 12, "color": colours.text},
    )  # fmt: skip
    _legend(figure, steps, colours)
    return Chart(figure, _finding(shown, steps))


def _bars(
    figure: go.Figure, shown: Sequence[Swing], places: Sequence[int], step: str, pick: int, colours: Palette
) -> None:
    gains = [float(swing[pick]) for swing in shown]
    kept = [float(swing[pick + 2]) for swing in shown]
    figure.add_trace(
        go.Bar(
            x=[100 * gain if math.isfinite(gain) else 0.0 for gain in gains],
            y=list(places),
            orientation="h",
            width=_THICK,
            marker={"color": _colour(colours, pick), "line": {"width": 0}},
            hovertext=[
                f"<b>{swing.label} {step}</b><br>{_told(gain)} re-optimised<br>"
                f"{_told(same)} with the same execution"
                for swing, gain, same in zip(shown, gains, kept, strict=True)
            ],
            hovertemplate="%{hovertext}<extra></extra>",
            customdata=[[swing.name] for swing in shown],
        )
    )


def _colour(colours: Palette, pick: int) -> str:
    return colours.diverge(-0.5 if pick == 2 else 0.5)


def _told(gain: float) -> str:
    return signed_percent(gain) if math.isfinite(gain) else "nothing runs"


def _labels(figure: go.Figure, swing: Swing, row: int, reach: float, colours: Palette) -> None:
    """Write each bar's gain beyond its end and beyond its tick."""
    ends = [value for value in swing[2:] if math.isfinite(value)]
    left, right = min([0.0, *ends]), max([0.0, *ends])
    flat = all(abs(value) < 5e-4 for value in ends)
    if flat:
        note(figure, "±0" if ends else ABSENT, colours, x=100 * (right + 0.015 * reach), y=row, xanchor="left")
        return
    both = [(swing.down, "down"), (swing.up, "up")]
    for gain, _ in both:
        if not math.isfinite(gain) or abs(gain) < 5e-4:
            continue
        worse = gain < 0
        if any(other < gain if worse else other > gain for other, _ in both):
            continue  # the longer bar on this side has the label
        place = left - 0.015 * reach if worse else right + 0.015 * reach
        note(figure, signed_percent(gain).removesuffix(" %"), colours, x=100 * place, y=row, colour=colours.text,
             xanchor="right" if worse else "left")  # fmt: skip


def _legend(figure: go.Figure, steps: tuple[str, str], colours: Palette) -> None:
    parts = [
        f'<span style="color:{_colour(colours, pick)}">■</span> {step}'
        for step, pick in zip(steps, (2, 3), strict=True)
        if step
    ]
    parts.append(f'<span style="color:{colours.text}"><b>|</b></span> same execution kept')
    note(figure, "     ".join(parts), colours, x=0.0, y=1, xref="paper", yref="paper", xanchor="left",
         yanchor="bottom", yshift=4)  # fmt: skip


def _span(swing: Swing) -> float:
    gains = [abs(gain) for gain in (swing.down, swing.up) if math.isfinite(gain)]
    return sum(gains) if gains else -1.0


def _finding(shown: Sequence[Swing], steps: tuple[str, str]) -> str:
    first = shown[0]
    told = " and ".join(
        f"{signed_percent(gain)} at {step}"
        for gain, step in ((first.down, steps[0]), (first.up, steps[1]))
        if step and math.isfinite(gain)
    )
    quiet = sum(_span(swing) < 1e-3 for swing in shown)
    return (
        f"Best throughput when one parameter changes: {first.label} matters most, {told or 'with nothing that runs'}; "
        f"{quiet} of {len(shown)} parameters change nothing."
    )
