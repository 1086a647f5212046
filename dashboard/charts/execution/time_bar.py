"""Time of a step as a waterfall of its parts, optionally next to a second execution."""

from collections.abc import Mapping
from typing import Any, Final

from dashboard.charts.elements.palette import TIME_KINDS, Kind, Palette, common_kinds, palette
from dashboard.charts.elements.template import Chart, noted, written
from dashboard.words.differences import change_text, is_change
from dashboard.words.names import in_sentence
from dashboard.words.numbers import ABSENT, Scale, format_value, percent, scale_for

_TOTAL: Final = "total_time"
_ROW: Final = 30
_THICK: Final = 0.56
_THIN: Final = 0.15

COLUMNS: Final = (_TOTAL, *(name for kind in TIME_KINDS for name in kind.statistics))
"""Statistics [s] that the time charts read from one execution; all of them are headline statistics."""


def time_pieces(execution: Mapping[Any, Any]) -> dict[str, float]:
    """Returns the parts of a step [s] by key of `TIME_KINDS`, in the order of the waterfall; they sum to the step.

    Parts that the execution's cost model does not have are 0.
    """
    return {kind.key: sum(_seconds_of_value(execution.get(name)) for name in kind.statistics) for kind in TIME_KINDS}


def time_kinds(*executions: Mapping[Any, Any] | None) -> tuple[Kind, ...]:
    """Returns the parts of a step to show for these executions: what every cost model has, and what any has beyond.

    Executions without experts or context parallelism lose nothing to those, and rows that can only be empty are left
    out.
    """
    plain = common_kinds(TIME_KINDS)
    taken = [time_pieces(execution) for execution in executions if execution is not None]
    return tuple(kind for kind in TIME_KINDS if kind in plain or any(pieces[kind.key] > 0 for pieces in taken))


_LONGEST_HEAD: Final = 12
"""Letters of the longest head of the third column of numbers; a longer one would run into the second."""


def _seconds_of_value(value: Any) -> float:
    """Return a time of a row; 0 for a missing value or a rounding error below a billionth of a second."""
    found = 0.0 if value is None else float(value)
    return found if found >= 1e-9 else 0.0


def waterfall(
    execution: Mapping[Any, Any],
    mode: str = "light",
    *,
    other: Mapping[Any, Any] | None = None,
    names: tuple[str, str] = ("A", "B"),
) -> Chart:
    """Draws the parts of a step, each bar starting where the one before ends, with values and shares at the right.

    execution, other: rows with the columns `COLUMNS` [s]. The other is the thin bar under each thick one, and a third
    column of numbers says by how much the first takes longer. Parts of no length stay in place, so that charts can be
    compared.
    """
    colours = palette(mode)
    kinds = time_kinds(execution, other)
    rows = [("Step", None), *((kind.name, kind) for kind in kinds)]
    total = float(execution[_TOTAL])
    longest = max(total, float(other[_TOTAL]) if other is not None else 0.0)
    scale = scale_for(_TOTAL, [longest])
    sizes = [total, *_part_sizes(execution, kinds)]
    others = None if other is None else [float(other[_TOTAL]), *_part_sizes(other, kinds)]
    places = [len(rows) - 1 - index for index in range(len(rows))]
    lift = 0.1 if others is not None else 0.0
    bars = [_bar_trace(rows, sizes, [place + lift for place in places], total, scale, colours, names[0], thin=False)]
    if others is not None:
        below = [place - 0.29 for place in places]
        bars.append(_bar_trace(rows, others, below, others[0], scale, colours, names[1], thin=True))
    starts = _bar_starts(sizes)
    steps: list[dict[str, Any]] = []
    for index in range(1, len(rows) - 1):
        end = (starts[index] + sizes[index]) / scale.factor
        steps.append(
            {
                "type": "line",
                "x0": end,
                "x1": end,
                "y0": places[index] + lift,
                "y1": places[index + 1] + lift,
                "layer": "below",
                "line": {"color": colours.muted, "width": 1, "dash": "dot"},
            }
        )
    figure = written(
        colours,
        46 + _ROW * len(rows),
        bars,
        {
            "shapes": steps,
            "annotations": _number_columns(sizes, others, places, colours, names),
            "xaxis": {
                "range": [0, longest * 1.01 / scale.factor],
                "ticksuffix": scale.suffix,
                "nticks": 6,
                "showgrid": True,
            },
            "yaxis": {
                "tickvals": places,
                "ticktext": [label for label, _ in rows],
                "range": [-0.55, len(rows) - 0.45],
                "tickfont": {"size": 12, "color": colours.text},
            },
            "barmode": "overlay",
            "margin": {"t": 26, "r": 216 if others is not None else 138},
            "uniformtext": {"mode": False},
        },
    )
    return Chart(figure, _summarize_step(sizes, others, names, kinds), rows=True)


def _part_sizes(execution: Mapping[Any, Any], kinds: tuple[Kind, ...]) -> list[float]:
    """Return the parts of a step of these kinds [s]."""
    pieces = time_pieces(execution)
    return [pieces[kind.key] for kind in kinds]


def _bar_starts(sizes: list[float]) -> list[float]:
    """Return where each bar begins: the step at zero, every part at the end of the one before."""
    starts = [0.0]
    reached = 0.0
    for size in sizes[1:]:
        starts.append(reached)
        reached += size
    return starts


def _bar_trace(
    rows: list[tuple[str, Kind | None]],
    sizes: list[float],
    places: list[float],
    total: float,
    scale: Scale,
    colours: Palette,
    name: str,
    *,
    thin: bool,
) -> dict[str, Any]:
    """Return one trace with a bar per row."""
    drawn = [colours.text if kind is None else kind.colour(colours) for _, kind in rows]
    hatched = [colour is None and not thin for colour in drawn]
    return {
        "type": "bar",
        "x": [size / scale.factor for size in sizes],
        "base": [start / scale.factor for start in _bar_starts(sizes)],
        "y": places,
        "orientation": "h",
        "width": _THIN if thin else _THICK,
        "name": name,
        "opacity": 0.75 if thin else 1,
        "marker": {
            # Hatched where a colour is missing; see the cell map for why it is the bar's colour that hatches.
            "color": [colour or colours.muted for colour in drawn],
            "line": {
                "color": [colours.muted if flag else colours.background for flag in hatched],
                "width": [1 if flag else 0 for flag in hatched],
            },
            "pattern": colours.hatch_some(hatched, size=5, opacity=0.9),
        },
        "hovertext": [
            f"<b>{label}</b><br>{format_value(_TOTAL, size)}<br>{_format_share(size, total)} of the step"
            for (label, _), size in zip(rows, sizes, strict=True)
        ],
        "hovertemplate": "%{hovertext}<extra>" + name + "</extra>",
    }


def _number_columns(
    sizes: list[float],
    others: list[float] | None,
    places: list[int],
    colours: Palette,
    names: tuple[str, str],
) -> list[dict[str, Any]]:
    """Return the numbers to write right of the plot: value, share of the step, difference to the other execution."""
    offsets = (72, 134, 212)
    heads = [names[0] if others is not None else "time", "share"]
    both = f"{names[0]} − {names[1]}"
    heads += ["difference" if len(both) > _LONGEST_HEAD else both] if others is not None else []
    notes: list[dict[str, Any]] = []
    place: dict[str, Any] = {"xref": "paper", "x": 1, "xanchor": "right"}
    for head, offset in zip(heads, offsets, strict=False):
        notes.append(noted(head, colours, y=1, yref="paper", xshift=offset, yanchor="bottom", **place))
    for index, (size, row) in enumerate(zip(sizes, places, strict=True)):
        value, share = format_value(_TOTAL, size), _format_share(size, sizes[0])
        bold = ("<b>", "</b>") if index == 0 else ("", "")
        notes.append(
            noted(
                f"{bold[0]}{value}{bold[1]}",
                colours,
                y=row,
                xshift=offsets[0],
                colour=colours.text,
                font_size=12,
                **place,
            )
        )
        notes.append(noted(share, colours, y=row, xshift=offsets[1], font_size=12, **place))
        if others is not None:
            change = size - others[index]
            tone = colours.worse if change > 0 else colours.better if change < 0 else colours.muted
            # Differences too small to matter to the step stay quiet.
            tone = tone if is_change(change, sizes[0]) else colours.muted
            text = change_text(_TOTAL, change, sizes[0])
            notes.append(
                noted(
                    f"{bold[0]}{text}{bold[1]}", colours, y=row, colour=tone, xshift=offsets[2], font_size=12, **place
                )
            )
    return notes


def _format_share(size: float, total: float) -> str:
    return percent(size / total) if total else ABSENT


def _summarize_step(
    sizes: list[float], others: list[float] | None, names: tuple[str, str], kinds: tuple[Kind, ...]
) -> str:
    total = sizes[0]
    order = sorted(range(1, len(sizes)), key=lambda index: -sizes[index])[:3]
    named = [(in_sentence(kinds[index - 1].name), sizes[index]) for index in order]
    parts = ", ".join(f"{name} {_format_share(size, total)}" for name, size in named if size > 0)
    sentence = f"A step takes {format_value(_TOTAL, total)}: {parts}."
    if others is not None:
        sentence += f" {names[1]} takes {format_value(_TOTAL, others[0])}."
    return sentence
