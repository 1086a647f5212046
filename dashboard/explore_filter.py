"""The filters of the Explore page: the hidden choices as pills, results as ranges, one chip per filter in force.

They are the filters of the Results page, under the same parameter of the link, so that they go from page to page.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import streamlit as st

from dashboard import state
from dashboard.charts.template import in_sentence
from dashboard.explore_data import CHOICES, Where, frozen, options_of
from dashboard.filters import FILTERABLE, PATTERN, Filter, conditions, parse, text
from dashboard.format import count, format_value, scale_for
from dashboard.results_filter import NAME, ignore_cell
from dashboard.text import literal
from engine import Exploration
from engine.columns import HEADLINE, by_name, choice_label

__all__ = ["add_filters", "bar", "chips", "filters_in_link", "matching", "relaxations", "where_of"]

_FIELDS: Final = (*CHOICES, "tensor_par", "pipeline_par", "data_par", "batch_size")
_RANGED: Final = "explore_range"
_MOST_PILLS: Final = 40


def filters_in_link() -> list[Filter]:
    """The filters of the link; says so where one cannot be read."""
    filters, problems = parse(state.url_value(NAME, "", PATTERN))
    for problem in problems:
        st.warning(literal(problem), icon=":material/filter_alt_off:")
    return filters


def where_of(filters: Sequence[Filter]) -> Where:
    """Filters as conditions that can be remembered."""
    return frozen(conditions(filters))


@st.cache_data(show_spinner=False, max_entries=256)
def matching(_exploration: Exploration, key: str, where: Where) -> int:
    """Number of executions that run and meet conditions."""
    return _exploration.rows.count(where)


def bar(exploration: Exploration, filters: Sequence[Filter]) -> None:
    """The button that opens the filters."""
    label = f"Filter · {len(filters)}" if filters else "Filter"
    with st.popover(label, icon=":material/filter_list:", key="explore_filter_open",
                    help="Look at some of the executions only."):  # fmt: skip
        _results(exploration, filters)
        _choices(exploration, filters)


def chips(exploration: Exploration, filters: Sequence[Filter], left: int) -> None:
    """What is in force, in words: a chip per filter that removes it, and how many executions remain."""
    if not filters:
        return
    with st.container(horizontal=True, gap="small", vertical_alignment="center", key="explore_filters"):
        st.markdown("Only", width="content")
        for one in filters:
            st.button(
                literal(one.words), key=f"explore_drop_{one.column.name}", icon=":material/close:", on_click=_drop,
                args=(one.column.name,), help="Remove this filter",
            )  # fmt: skip
        st.button("Clear", key="explore_clear", type="tertiary", on_click=_clear)
        st.markdown(f":gray[{count(left)} of {count(exploration.feasible)} that run]", width="content")


def relaxations(exploration: Exploration, filters: Sequence[Filter], fixed: Where = ()) -> None:
    """What to do when no execution meets the filters: the ones that bind, and the nearest value that they would allow.

    fixed: conditions that are no filters, such as those of a cell.
    """
    binding = []
    for one in filters:
        others = (*where_of([other for other in filters if other is not one]), *fixed)
        left = matching(exploration, exploration.key, others)
        if left:
            binding.append((left, one, _nearest(exploration, exploration.key, one, others)))
    if not binding:
        st.markdown("No execution meets these filters, and dropping a single one is not enough.")
    else:
        names = " and ".join(literal(in_sentence(one.words)) for _, one, _ in binding)
        several = len(filters) > 1
        st.markdown(f"No execution meets these filters{f'; what binds is {names}' if several else ''}.")
    with st.container(horizontal=True, gap="small"):
        for left, one, nearest in sorted(binding, key=lambda found: -found[0]):
            if nearest is not None:
                st.button(
                    f"Relax to {literal(nearest.words)}", key=f"explore_relax_{one.column.name}", type="primary",
                    on_click=_put, args=([*(other for other in filters if other is not one), nearest],),
                )  # fmt: skip
            st.button(
                f"Drop {literal(one.words)}: {count(left)} executions", key=f"explore_without_{one.column.name}",
                on_click=_drop, args=(one.column.name,),
            )  # fmt: skip
        st.button("Clear all filters", key="explore_clear_all", type="tertiary", on_click=_clear)


@st.cache_data(show_spinner=False, max_entries=128)
def _nearest(_exploration: Exploration, key: str, one: Filter, others: Where) -> Filter | None:
    """A range moved just so far that an execution meets it; None for other filters, or where there is no finite value.
    """
    if one.values or (one.low is not None and one.high is not None and one.low > one.high):
        return None
    span = _exploration.rows.value_range(one.column.name, where=others)
    if span is None:
        return None
    low, high = span
    if one.high is not None and low > one.high:
        return Filter(one.column, low=one.low, high=low)
    if one.low is not None and high < one.low:
        return Filter(one.column, low=high, high=one.high)
    return None  # it lies in a gap between values


def _put(filters: Sequence[Filter]) -> None:
    state.set_url_value(NAME, text(filters) or None)


def add_filters(new: Sequence[Filter]) -> None:
    """Adds filters to those in force, in the place of any on the same columns; the selected cell is none of them."""
    names = {one.column.name for one in new}
    _put([*(one for one in _now() if one.column.name not in names), *new])
    ignore_cell()


def _drop(name: str) -> None:
    _put([one for one in _now() if one.column.name != name])


def _clear() -> None:
    _put([])


def _now() -> list[Filter]:
    """The filters of the link, in a callback."""
    return parse(state.url_value(NAME, "", PATTERN))[0]


def _with(name: str, new: Filter | None) -> None:
    """Puts a filter in the place of the one on the same column; None removes it."""
    now = _now()
    if new is None:
        _drop(name)
    elif any(one.column.name == name for one in now):
        _put([new if one.column.name == name else one for one in now])
    else:
        _put([*now, new])


@st.cache_data(show_spinner=False, max_entries=64)
def _options(_exploration: Exploration, key: str) -> dict[str, list[Any]]:
    """The values of every field that has more than one, few enough to be offered one by one."""
    found = {name: options_of(_exploration, name) for name in _FIELDS}
    return {name: options for name, options in found.items() if 1 < len(options) <= _MOST_PILLS}


def _choices(exploration: Exploration, filters: Sequence[Filter]) -> None:
    """Every choice as pills; none chosen means that it does not matter."""
    values = {one.column.name: one.values for one in filters}
    halves = st.columns(2)  # in one column the list is taller than the window
    for number, (name, options) in enumerate(_options(exploration, exploration.key).items()):
        column, key = FILTERABLE[name], f"_explore_pick_{name}"
        st.session_state[key] = [value for value in options if value in values.get(name, ())]
        halves[number % 2].pills(
            column.label, options, selection_mode="multi", key=key, help=literal(column.description), on_change=_picked,
            args=(name, key, len(options)), format_func=partial(choice_label, column), wrap=True,
        )  # fmt: skip


def _picked(name: str, key: str, number: int) -> None:
    picked = tuple(st.session_state[key] or ())
    _with(name, Filter(FILTERABLE[name], picked) if 0 < len(picked) < number else None)


@st.cache_data(show_spinner=False, max_entries=64)
def _span(_exploration: Exploration, key: str, name: str) -> tuple[float, float] | None:
    return _exploration.rows.value_range(name)


def _results(exploration: Exploration, filters: Sequence[Filter]) -> None:
    """One result with its lowest and highest value, in the unit that suits it."""
    ranged = [one for one in filters if not one.values]
    names = list(dict.fromkeys([*(column.name for column in HEADLINE), *(one.column.name for one in ranged)]))
    first = ranged[-1].column.name if ranged else "proc_mem_tier1_cap_req"
    result, least, most = st.columns([2, 1, 1], vertical_alignment="bottom")
    name = result.selectbox(
        "Result", names, index=names.index(first), key=_RANGED, format_func=lambda one: FILTERABLE[one].label,
        help="Results that are stored for every execution.",
    )  # fmt: skip
    column = by_name(name)
    span = _span(exploration, exploration.key, name)
    if span is None:
        st.caption("No execution has a finite value of this.")
        return
    scale = scale_for(column, span)
    now = next((one for one in ranged if one.column.name == name), None)
    keys = [f"_explore_{end}_{name}" for end in ("low", "high")]

    def changed() -> None:
        ends = [st.session_state[key] for key in keys]
        low, high = (None if e is None or not math.isfinite(e) else float(e) * scale.factor for e in ends)
        _with(name, None if low is None and high is None else Filter(column, low=low, high=high))

    known = (None, None) if now is None else (now.low, now.high)
    for place, word, key, end in zip((least, most), ("at least", "at most"), keys, known, strict=True):
        st.session_state[key] = None if end is None else end / scale.factor
        place.number_input(
            f"{word}{scale.suffix and f' [{scale.unit}]'}", value=None, format="%.6g", key=key, placeholder="open",
            on_change=changed,
        )  # fmt: skip
    st.caption(literal(f"From {format_value(column, span[0])} to {format_value(column, span[1])}."))
