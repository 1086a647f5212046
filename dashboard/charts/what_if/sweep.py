"""One parameter swept: the best throughput along it, that of a fixed layout, and where the best changes."""

import math
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from dashboard.charts.elements.label_placement import Place, Room, annotation
from dashboard.charts.elements.palette import Palette, palette
from dashboard.charts.elements.template import Chart, empty, noted, tick_texts, written
from dashboard.words.names import FIXED
from dashboard.words.numbers import format_value, plain, relative, scale_for

HEIGHT: Final = 348
RATE: Final = "sample_rate"
_WIDTH: Final = 360.0
"""Width of the plot on the narrowest screen [px]."""
_TOP: Final = 24
_LINE: Final = 14
"""Height of another line in the names of bands [px]."""
_LETTER: Final = 6.3 / 260.0
"""Width of a letter in the names of bands over that of the plot in a window of 390 px []. Source: measured."""
_BELOW: Final = 46
"""Room for the horizontal axis [px]."""
_RING: Final = 12


class Stop(NamedTuple):
    """One value of the parameter; rates in samples/s, NaN where nothing runs."""

    value: float
    best: float
    kept: float
    name: str
    """The kind of execution that is best, such as "TP 8 × PP 4 × DP 16"; stops of one name share a band."""
    words: str = ""
    """The best execution in words, for the hover box."""


def sweep_line(
    stops: Sequence[Stop],
    label: str,
    unit: str,
    mode: str = "light",
    *,
    at_base: float,
    whatif: tuple[float, float] | None = None,
    logarithmic: bool = True,
) -> Chart:
    """Draws the line.

    at_base: value of the parameter in the base. whatif: (value, rate) to ring. Points carry customdata (value,).
    """
    colours = palette(mode)
    shown = sorted(stops, key=lambda stop: stop.value)
    if not any(math.isfinite(stop.best) for stop in shown):
        sentence = "Nothing runs anywhere along this parameter." if shown else "Nothing has been computed yet."
        return empty(colours, HEIGHT, sentence)
    logarithmic = logarithmic and all(stop.value > 0 for stop in shown)
    rates = [rate for stop in shown for rate in (stop.best, stop.kept) if math.isfinite(rate)]
    rates += [whatif[1]] if whatif is not None and math.isfinite(whatif[1]) else []
    scale = scale_for(RATE, rates)
    place = math.log10 if logarithmic else float
    bands = _execution_bands(shown)
    shapes, notes = _draw_bands(bands, colours, logarithmic)
    traces = [_rate_line(shown, which, scale.factor, colours) for which in ("kept", "best")]
    low, high = min(rates), max(rates)
    pad = 0.08 * (high - low or high)
    bottom = 0.0 if low < 0.25 * high else low - pad
    up = bottom / scale.factor, (high + pad) / scale.factor
    first, last = shown[0].value, shown[-1].value
    # Labels at either end must lie within the chart: Plotly leaves out those that do not, and if none is left it looks
    # in vain for where to put the title of the axis.
    margin = 0.04 * (place(last) - place(first)) or 0.1
    across = place(first) - margin, place(last) + margin
    top = _TOP + _LINE * max((note["text"].count("<br>") for note in notes), default=0)
    room = Room(across, up, _WIDTH, HEIGHT - top - _BELOW)
    for which in ("best", "kept"):
        rated = [(stop.value, float(getattr(stop, which))) for stop in shown]
        room.line([(place(value), rate / scale.factor) for value, rate in rated if math.isfinite(rate)])
    ringed = whatif is not None and math.isfinite(whatif[1]) and first <= whatif[0] <= last
    if whatif is not None and ringed:
        room.mark(place(whatif[0]), whatif[1] / scale.factor, _RING)
    if first <= at_base <= last:
        shapes.append(
            {
                "type": "line",
                "x0": at_base,
                "x1": at_base,
                "y0": 0,
                "y1": 1,
                "yref": "paper",
                "layer": "below",
                "line": {"color": colours.text, "width": 1, "dash": "dot"},
            }
        )
        room.line([(place(at_base), end) for end in up])
        sides = (("right", -3), ("left", 3))
        spots = [
            Place(place(at_base), up[end], anchor, ("bottom", "top")[end], shift)
            for end in (0, 1)
            for anchor, shift in sides
        ]
        notes.append(noted("base", colours, **annotation(room.put("base", spots))))
    if whatif is not None and ringed:
        traces.append(_whatif_ring(whatif, scale.factor, colours))
        notes.append(_ring_name(whatif[1] / scale.factor, place(whatif[0]), room, colours))
    notes += _line_names(shown, scale.factor, place, room, colours)
    figure = written(
        colours,
        HEIGHT,
        traces,
        {
            "margin": {"t": top},
            "shapes": shapes,
            "annotations": notes,
            "xaxis": {
                "type": "log" if logarithmic else "linear",
                "range": list(across),
                "title": {"text": f"{label}, {unit}"},
                **_axis_ticks(shown, logarithmic),
            },
            "yaxis": {"range": list(up), "title": {"text": scale.unit}, "showgrid": True, **tick_texts(*up)},
        },
    )
    return Chart(figure, _summarize_sweep(shown, label, unit, bands))


def _rate_line(shown: Sequence[Stop], which: str, factor: float, colours: Palette) -> dict[str, Any]:
    best = which == "best"
    rates = [float(getattr(stop, which)) for stop in shown]
    told = {"hovertext": [_stop_hover_text(stop) for stop in shown], "hovertemplate": "%{hovertext}<extra></extra>"}
    return {
        "type": "scatter",
        "x": [stop.value for stop in shown],
        "y": [rate / factor if math.isfinite(rate) else None for rate in rates],
        "mode": "lines+markers" if best else "lines",
        "line": {
            "color": colours.accent if best else colours.muted,
            "width": 2.2 if best else 1.6,
            "dash": "solid" if best else "dash",
        },
        "marker": {"size": 6, "color": colours.accent},
        "customdata": [[stop.value] for stop in shown],
        **(told if best else {"hoverinfo": "skip"}),
    }


def _stop_hover_text(stop: Stop) -> str:
    if not math.isfinite(stop.best):
        return f"<b>{plain(stop.value)}</b><br>nothing runs"
    kept = f"the {FIXED} does not run"
    if math.isfinite(stop.kept):
        kept = f"{format_value(RATE, stop.kept)} with a {FIXED} ({relative(stop.best, stop.kept)} by changing)"
    words = f"<br>{stop.words}" if stop.words else ""
    return f"<b>{plain(stop.value)}</b><br>{format_value(RATE, stop.best)} re-optimised<br>{kept}{words}"


def _execution_bands(shown: Sequence[Stop]) -> list[tuple[float, float, str]]:
    """(from, to, name) of the stretches in which the same kind of execution is best."""
    known = [stop for stop in shown if math.isfinite(stop.best)]
    bands: list[tuple[float, float, str]] = []
    for index, stop in enumerate(known):
        if bands and bands[-1][2] == stop.name:
            bands[-1] = (bands[-1][0], stop.value, stop.name)
            continue
        # Somewhere between two stops the best changes; the middle stands for it.
        start = stop.value
        if bands:
            before = known[index - 1].value
            start = math.sqrt(before * stop.value) if before > 0 else (before + stop.value) / 2
            bands[-1] = (bands[-1][0], start, bands[-1][2])
        bands.append((start, stop.value, stop.name))
    return bands


def _draw_bands(
    bands: Sequence[tuple[float, float, str]], colours: Palette, logarithmic: bool
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return shapes of every second stretch, and the names of those wide enough for one."""
    first, last = bands[0][0], bands[-1][1]
    whole = math.log(last / first) if logarithmic and first > 0 else last - first
    shapes: list[dict[str, Any]] = []
    notes: list[dict[str, Any]] = []
    for index, (start, end, name) in enumerate(bands):
        if index % 2 == 0:
            shapes.append(
                {
                    "type": "rect",
                    "x0": start,
                    "x1": end,
                    "y0": 0,
                    "y1": 1,
                    "yref": "paper",
                    "layer": "below",
                    "line": {"width": 0},
                    "fillcolor": colours.panel,
                }
            )
        span = (math.log(end / start) if logarithmic and start > 0 else end - start) / whole if whole else 1.0
        text = name.replace(" × ", "<br>× ")
        if span > _LETTER * max(map(len, text.split("<br>"))) or len(bands) == 1:
            middle = (math.log10(start) + math.log10(end)) / 2 if logarithmic else (start + end) / 2
            notes.append(noted(text, colours, x=middle, y=1, yref="paper", yanchor="bottom", yshift=2))
    return shapes, notes


def _axis_ticks(shown: Sequence[Stop], logarithmic: bool) -> dict[str, Any]:
    """Ticks at values that were computed, not at powers of ten."""
    if not logarithmic:
        return {"nticks": 6}
    most = 7
    values = [stop.value for stop in shown]
    ratio = values[-1] / values[0]
    chosen: list[float] = []
    for value in values:
        if not chosen or math.log(value / chosen[-1]) > math.log(ratio) / most * 0.98:
            chosen.append(value)
    return {"tickvals": chosen, "ticktext": [plain(value) for value in chosen]}


def _whatif_ring(whatif: tuple[float, float], factor: float, colours: Palette) -> dict[str, Any]:
    """Return the ring of the what-if."""
    return {
        "type": "scatter",
        "x": [whatif[0]],
        "y": [whatif[1] / factor],
        "mode": "markers",
        "hoverinfo": "skip",
        "marker": {"size": _RING, "color": colours.background, "line": {"color": colours.text, "width": 2.5}},
    }


def _ring_name(rate: float, place: float, room: Room, colours: Palette) -> dict[str, Any]:
    """Return the name of the ring at a rate, where it covers nothing."""
    spots = [
        Place(place, rate, yanchor="top", yshift=-8),
        Place(place, rate, yanchor="bottom", yshift=8),
        Place(place, rate, "left", "top", 8, -2),
        Place(place, rate, "right", "top", -8, -2),
        Place(place, rate, "left", "bottom", 8, 2),
        Place(place, rate, "right", "bottom", -8, 2),
        Place(place, rate, yanchor="top", yshift=-22),
        Place(place, rate, yanchor="bottom", yshift=22),
    ]
    return noted("what-if", colours, colour=colours.text, **annotation(room.put("what-if", spots)))


def _line_names(shown: Sequence[Stop], factor: float, place: Any, room: Room, colours: Palette) -> list[dict[str, Any]]:
    """Return the names of both lines, where the lines are as far apart as can be without a name covering anything."""
    both = [stop for stop in shown if math.isfinite(stop.best) and math.isfinite(stop.kept)]
    if not both:
        return []
    apart = sorted(both[1:-1] or both, key=lambda stop: stop.kept - stop.best)

    def put(text: str, rate: str, sides: Sequence[str], colour: str) -> dict[str, Any]:
        spots = [
            Place(
                place(stop.value),
                float(getattr(stop, rate)) / factor,
                xanchor,
                yanchor,
                yshift=-away if yanchor == "top" else away,
            )
            for stop in apart
            for away in (5, 12)
            for yanchor in sides
            for xanchor in ("center", "left", "right")
        ]
        return noted(text, colours, colour=colour, **annotation(room.put(text, spots)))

    if apart[0].best - apart[0].kept < 0.03 * apart[0].best:
        return [put(f"re-optimised, {FIXED}", "best", ("top", "bottom"), colours.accent)]
    return [
        put("re-optimised", "best", ("bottom",), colours.accent),
        put(FIXED, "kept", ("top",), colours.muted),
    ]


def _summarize_sweep(shown: Sequence[Stop], label: str, unit: str, bands: Sequence[tuple[float, float, str]]) -> str:
    known = [stop for stop in shown if math.isfinite(stop.best)]
    low, high = known[0], known[-1]
    changes = len(bands) - 1
    return (
        f"{label} from {plain(low.value)} to {plain(high.value)} {unit}: best throughput goes from "
        f"{format_value(RATE, low.best)} to {format_value(RATE, high.best)}; the best execution changes "
        f"{changes} time{'s' if changes != 1 else ''}."
    )
