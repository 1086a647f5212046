"""Small pieces of HTML that native widgets do not offer: figure strip, mini bars, legend, chips, card heads.

Each function returns a string for `streamlit.html`; `stylesheet()` must have been injected once. All text is escaped.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from html import escape
from pathlib import Path
from typing import Final, NamedTuple

from dashboard.charts.elements.palette import DARK, LIGHT, MEMORY_KINDS, TIME_KINDS, Kind
from dashboard.words.executions import name_of_choice
from dashboard.words.numbers import UNLIMITED, Quantity, format_value, gibibytes, percent
from engine.columns import ALL_FIELDS

NOT_FITTING: Final = '<i class="ss-swatch ss-hatch"></i>does not fit; GiB the nearest lacks (T: TiB), HBM + host'
"""Legend item: hatched cells of a map and the number in them."""
MAY_FIT: Final = "? may fit: memory above the capacity, but within the limit"
NOT_NUMBERED: Final = "the cells are too small for numbers: hover one, or choose As table under View"
"""Legend item of a map whose cells are too small for numbers."""

_CSS = Path(__file__).parent / "style.css"


@cache
def stylesheet() -> str:
    """Returns the style element to inject once per page."""
    return f"<style>\n{_CSS.read_text(encoding='utf-8')}</style>"


HEADLINE: Final = "Headline figures"
"""Heading of a row of figures for screen readers, above the heading of each figure."""


class Tile(NamedTuple):
    """One headline figure: label, value with unit ("1.87 s"), one line of context, formula for the tooltip."""

    label: str
    value: str | Quantity
    context: str = ""
    tone: str = ""
    """"better", "worse" or empty: colours the context line of a comparison."""
    formula: str = ""
    origin: str = ""
    """Basis of the figure: "exact", "calibrated", "modelled" or "measured"; empty for plain counts."""
    error: str = ""
    """Error interval of the figure, as a line of its own."""


def figure_strip(tiles: Sequence[Tile], basis: str = "", *, marks: bool = True) -> str:
    """Returns one row of headline figures, the answer of the page first.

    basis: basis of times and memory, written once below the figures instead of a mark on each. marks: whether each
    figure has its mark if there is no basis; False if another strip on the page already has them.
    """
    items = []
    telling = any(tile.error for tile in tiles)
    for tile in tiles:
        number, unit = _number_and_unit(tile.value)
        title = f' title="{escape(tile.formula)}"' if tile.formula else ""
        spoken = escape(", ".join(part for part in _spoken_parts(tile) if part))
        tone = f" ss-{tile.tone}" if tile.tone in ("better", "worse") else ""
        items.append(
            f'<div class="ss-tile" role="listitem" aria-label="{spoken}"{title}>'
            f'<h3 class="ss-tile-label">{escape(tile.label)}'
            f"{'' if basis or not marks else _origin_markup(tile.origin)}</h3>"
            f'<div class="ss-tile-value">{escape(number)}{_unit_markup(unit)}</div>'
            f'<div class="ss-tile-context{tone}">{escape(tile.context) or "&nbsp;"}</div>'
            f"{_error_markup(tile.error) if telling else ''}</div>"
        )
    tall = " ss-strip-tall" if telling else ""
    heading = f'<h2 class="ss-heard">{escape(HEADLINE)}</h2>'
    strip = f'{heading}<div class="ss-strip{tall}" role="list">{"".join(items)}</div>'
    return f'{strip}<div class="ss-basis">{escape(basis)}</div>' if basis else strip


def doubts_line(sentences: Sequence[str]) -> str:
    """Returns what speaks against an execution as a line next to its figures."""
    return f'<div class="ss-basis ss-worse" role="note">{escape(" ".join(sentences))}</div>'


def _number_and_unit(value: str | Quantity) -> tuple[str, str]:
    """Split a tile's value into the part in large type and the part in small type."""
    if isinstance(value, Quantity):
        return value.number, value.unit
    # Words, such as the degrees of an execution, have no unit that would be smaller.
    if value[:1].isalpha():
        return value, ""
    number, *rest = value.split(maxsplit=1)
    return number, "".join(rest)


def _spoken_parts(tile: Tile) -> tuple[str, ...]:
    """Return the full text of a tile for screen readers."""
    return f"{tile.label} {tile.value}", tile.origin, tile.context, tile.error


def _origin_markup(origin: str) -> str:
    return f' <span class="ss-origin">{escape(origin)}</span>' if origin else ""


def _error_markup(error: str) -> str:
    return f'<div class="ss-tile-error">{escape(error) or "&nbsp;"}</div>'


def _unit_markup(unit: str) -> str:
    return f' <span class="ss-unit">{escape(unit)}</span>' if unit else ""


def time_bar(pieces: Mapping[str, float], label: str = "Step time") -> str:
    """Returns a one-line stacked bar of a step; pieces [s] by key of `TIME_KINDS`."""
    total = sum(pieces.values())
    return _mini_bar_markup(label, format_value("total_time", total), pieces, TIME_KINDS, total, None, "total_time")


def memory_bar(pieces: Mapping[str, float], capacity: float, label: str = "Memory, HBM") -> str:
    """Returns a one-line stacked bar of one memory tier; pieces [bytes] by key of `MEMORY_KINDS`, capacity [bytes].

    What exceeds the capacity is drawn beyond a mark at the capacity.
    """
    total = sum(pieces.values())
    if capacity >= UNLIMITED:
        return _mini_bar_markup(label, gibibytes(total), pieces, MEMORY_KINDS, total, None, "proc_mem_tier1_cap_req")
    value = f"{gibibytes(total)} of {gibibytes(capacity)}"
    return _mini_bar_markup(
        label, value, pieces, MEMORY_KINDS, max(total, capacity), capacity, "proc_mem_tier1_cap_req"
    )


def _mini_bar_markup(
    label: str,
    value: str,
    pieces: Mapping[str, float],
    kinds: Iterable[Kind],
    whole: float,
    capacity: float | None,
    column: str,
) -> str:
    parts = []
    for kind in kinds:
        size = pieces.get(kind.key, 0.0)
        if size > 0 and whole > 0:
            title = f"{kind.name} {format_value(column, size)}, {percent(size / sum(pieces.values()))}"
            parts.append(_swatch_markup(kind, f"width:{100 * size / whole:.3f}%", title))
    over = capacity is not None and sum(pieces.values()) > capacity
    mark = f'<b style="left:{100 * capacity / whole:.3f}%"></b>' if over and capacity else ""
    tone = " ss-worse" if over else ""
    return (
        f'<div class="ss-mini" role="img" aria-label="{escape(label)} {escape(value)}">'
        f'<div class="ss-mini-head"><span>{escape(label)}</span>'
        f'<span class="ss-mini-value{tone}">{escape(value)}</span></div>'
        f'<div class="ss-mini-bar">{"".join(parts)}{mark}</div></div>'
    )


def legend(kinds: Iterable[Kind]) -> str:
    """Returns swatches with names."""
    items = "".join(f"<span>{_swatch_markup(kind, klass='ss-swatch')}{escape(kind.name)}</span>" for kind in kinds)
    return f'<div class="ss-legend">{items}</div>'


def memory_legend(tiers: tuple[Mapping[str, float], Mapping[str, float]], kinds: Iterable[Kind], name: str = "") -> str:
    """Returns swatches with names and sizes of what one execution keeps in the GPU's own and in host memory.

    tiers: bytes by key of `MEMORY_KINDS`. name: of the execution, where there are several.
    """

    def size(kind: Kind) -> str:
        own, host = (tier.get(kind.key, 0.0) for tier in tiers)
        there = [gibibytes(own)] if own > 0 or host <= 0 else []
        return " + ".join([*there, f"{gibibytes(host)} in host memory"] if host > 0 else there)

    items = "".join(
        f"<span>{_swatch_markup(kind, klass='ss-swatch')}{escape(kind.name)} <b>{escape(size(kind))}</b></span>"
        for kind in kinds
    )
    first = f"<span><b>{escape(name)}</b></span>" if name else ""
    return f'<div class="ss-legend">{first}{items}</div>'


def ramp(worst: str, best: str, unit: str = "") -> str:
    """Returns a legend item: the "how good" colours between the texts of the worst and the best value."""
    stops = ",".join(
        f"light-dark({light},{dark})" for light, dark in zip(LIGHT.sequential, DARK.sequential, strict=True)
    )
    last = f"{best} {unit}".strip()
    return (
        f'<span role="img" aria-label="Colours from {escape(worst)} to {escape(last)}">{escape(worst)}'
        f'<i class="ss-ramp" style="background:linear-gradient(to right,{stops})"></i>{escape(last)}</span>'
    )


def map_legend(
    num_procs: int,
    unit: str,
    *,
    fastest: bool = False,
    runs: bool = True,
    numbered: bool = True,
    may_fit: bool = False,
    framework: str = "",
) -> str:
    """Returns the caption line under the cell map.

    unit: unit of the cells' values, empty without one. fastest: whether cells show their fastest execution, for any
    metric. runs: whether any cell has a feasible execution. numbered: whether cells print their values.
    may_fit: whether the best of any cell only may fit. framework: name of the one that runs the executions, if any.
    """
    divides = f"TP × PP does not divide {num_procs:,} or the model"
    if framework:
        divides += f", or {escape(framework)} does not run it"
    best, star = ("the fastest", "fastest") if fastest else ("the best", "best")
    shown = f"<span>Each cell: {best} setting with this TP and PP{in_unit(unit)}.</span><span>★ {star} of all</span>"
    return (
        f'<div class="ss-legend">{shown if runs else ""}{f"<span>{MAY_FIT}</span>" if may_fit else ""}'
        f"<span>{NOT_FITTING if numbered else NOT_NUMBERED}</span>"
        f"<span>· no execution: {divides}</span></div>"
    )


def in_unit(unit: str) -> str:
    """Returns a unit for the end of a sentence: ", in GiB"; empty without one."""
    return f", in {escape(unit)}" if unit else ""


def _swatch_markup(kind: Kind, style: str = "", title: str = "", klass: str = "") -> str:
    """Returns an element in the colour of a kind, or hatched where the kind has none."""
    classes = " ".join(part for part in (klass, "ss-hatch" if kind.light is None else "") if part)
    fill = "" if kind.light is None else f"background:light-dark({kind.light},{kind.dark});"
    tooltip = f' title="{escape(title)}"' if title else ""
    return f'<i class="{classes}" style="{fill}{style}"{tooltip}></i>'


_MEANING: Final[Mapping[str, str]] = {
    **{name_of_choice(column): column.description for column in ALL_FIELDS},
    "microbatches": "A replica works through its share of the batch in so many microbatches of so many sequences.",
    "offload": "What lives in host memory and is fetched over the link to it when it is needed.",
}
"""Tooltips of chips, by their keys."""


def chips(facts: Iterable[tuple[str, str]]) -> str:
    """Returns key and value pairs as one line of chips, each with its definition as tooltip."""
    items = "".join(
        f'<span class="ss-chip"{_title_attribute(key)}>{escape(key)} <b>{escape(value)}</b></span>'
        for key, value in facts
    )
    return f'<div class="ss-chips">{items}</div>'


def _title_attribute(key: str) -> str:
    meaning = _MEANING.get(key)
    if meaning is None and key.endswith(" network"):
        meaning = "Which network carries this traffic: how many GPUs it links, and its rate per GPU and direction."
    return f' title="{escape(meaning)}"' if meaning else ""


def page_head(title: str) -> str:
    """Returns the heading of a page for screen readers; the navigation shows the same name."""
    return f'<h1 class="ss-heard">{escape(title)}</h1>'


def head(title: str, scope: str = "") -> str:
    """Returns the head of a card: a question without its mark, and the scope of the answer."""
    return f'<div class="ss-head"><h2>{escape(title)}</h2>{f" <span>{escape(scope)}</span>" if scope else ""}</div>'


def headed(title: str, beside: str) -> str:
    """Returns the head of a card with other markup at its right end."""
    return f'<div class="ss-headed">{head(title)}{beside}</div>'


def meanings(pairs: Iterable[tuple[str, str]]) -> str:
    """Returns terms with their definitions, one below the other."""
    items = "".join(f"<dt>{escape(term)}</dt><dd>{escape(meaning)}</dd>" for term, meaning in pairs)
    return f'<dl class="ss-meanings">{items}</dl>'


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """Returns labels over values, in equal columns."""
    items = "".join(f"<div><span>{escape(key)}</span><b>{escape(value)}</b></div>" for key, value in pairs)
    return f'<div class="ss-facts">{items}</div>'
