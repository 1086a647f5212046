"""The filter bar of the Results page: removable chips, and a form for one more filter."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import streamlit as st

from dashboard.link import state
from dashboard.queries.economics import unstored_metrics
from dashboard.queries.filters import FILTERABLE, PATTERN, Filter, derived_of, parse, text
from dashboard.widgets.needed_statistics import names_of, offer
from dashboard.words.markdown import literal
from dashboard.words.numbers import count, format_value, scale_for
from engine import Exploration
from engine.columns import choice_label, stored_of

__all__ = ["NAME", "PAGE", "active", "bar", "cell_in_force", "chips", "ignore_cell", "in_link", "relax", "words_of"]

NAME: Final = "results_where"
"""Parameter of the link that holds the filters."""
PAGE: Final = "results_page"
"""Parameter of the link that holds the page of the table, which begins again with other filters."""
_IGNORED: Final = "results_cell"
"""Parameter of the link that names a selected cell which does not filter the table."""
_CELL: Final = re.compile(r"(\d{1,9}x\d{1,9})?")
_PICKED: Final = "results_filter_column"
_MOST_CHOICES: Final = 40
"""Distinct values of a field that are offered one by one; above, a range is asked for."""


def in_link() -> list[Filter]:
    """Returns the filters of the link; those that cannot be read are told above the page."""
    filters, problems = parse(state.url_value(NAME, "", PATTERN), derived_of(state.current_scenario()))
    if problems:
        state.complain(NAME, " ".join(problems))
    return filters


def active() -> list[Filter]:
    """Returns the filters of the link, that of the selected cell among them."""
    filters = in_link()
    cell = cell_in_force()
    if cell is not None:
        named = {one.column.name for one in filters}
        for name, degree in zip(("tensor_par", "pipeline_par"), cell, strict=True):
            if name not in named:
                filters.append(Filter(FILTERABLE[name], (degree,)))
    return filters


def cell_in_force() -> tuple[int, int] | None:
    """Returns the selected cell if it filters the table: a cell selected elsewhere does, until its filter is removed
    here."""
    cell = state.selected_cell()
    return None if cell is None or _cell_text(cell) == state.url_value(_IGNORED, "", _CELL) else cell


def ignore_cell() -> None:
    """Keeps the selected cell from filtering the table; another one will again."""
    cell = state.selected_cell()
    state.set_url_value(_IGNORED, None if cell is None else _cell_text(cell))


def _cell_text(cell: tuple[int, int]) -> str:
    return f"{cell[0]}x{cell[1]}"


def bar(exploration: Exploration, filters: Sequence[Filter]) -> None:
    """Draws the button that adds a filter."""
    label = f"Filter · {len(filters)}" if filters else "Filter"
    with st.popover(label, icon=":material/filter_list:", key="results_filter_open"):
        _form(exploration, filters)


def chips(filters: Sequence[Filter]) -> None:
    """Draws what is in force as a sentence; nothing without filters."""
    if not filters:
        return
    with st.container(horizontal=True, gap="xsmall", vertical_alignment="center", key="results_filters"):
        words_of(filters, "Executions with", "results", _drop, _clear)


def words_of(
    filters: Sequence[Filter],
    beginning: str,
    page: str,
    drop: Callable[[str], None],
    clear: Callable[[], None],
    left: tuple[int, int] | None = None,
) -> None:
    """Filters as the end of a sentence whose words are buttons that take them back; nothing without filters.

    beginning: what stands before the first. page: begins the keys of the buttons. drop, clear: take back the filter on
    a column, and all. left: (executions that meet them, executions that run), to be told at the end.
    """
    for number, one in enumerate(filters):
        st.markdown("and" if number else beginning, width="content")
        st.button(
            literal(one.words), key=f"{page}_drop_{one.column.name}", icon=":material/close:", on_click=drop,
            args=(one.column.name,), help="Remove this filter",
        )  # fmt: skip
    if filters:
        st.button("Clear", key=f"{page}_clear", type="tertiary", on_click=clear, help="Remove every filter")
        if left is not None:
            st.markdown(f":gray[{count(left[0])} of {count(left[1])} that run]", width="content")


def relax(exploration: Exploration, filters: Sequence[Filter]) -> None:
    """Draws what to do when no execution meets the filters: how many remain without each of them."""
    st.markdown("**No execution meets all of these filters.** Without one of them there would be:")
    found = []
    for one in filters:
        others = [condition for other in filters if other is not one for condition in other.conditions]
        found.append((_count(exploration, exploration.key, tuple(_frozen(others))), one))
    with st.container(horizontal=True, gap="small"):
        for left, one in sorted(found, key=lambda pair: -pair[0]):
            if left:
                st.button(
                    f"{count(left)} without {literal(one.words)}", key=f"results_relax_{one.column.name}",
                    on_click=_drop, args=(one.column.name,),
                )  # fmt: skip
    if not any(left for left, _ in found):
        st.caption("Dropping a single filter is not enough; clear them to start again.")


@st.cache_data(show_spinner=False, max_entries=256)
def _count(_exploration: Exploration, key: str, where: tuple[Any, ...]) -> int:
    return _exploration.rows.count(list(where))


def _frozen(where: Sequence[Any]) -> list[Any]:
    return [(c.column, c.operator, tuple(c.value) if isinstance(c.value, list) else c.value) for c in where]


def _put(filters: Sequence[Filter]) -> None:
    """Put filters in the link."""
    state.set_url_values({NAME: text(filters) or None, PAGE: None})


def _drop(name: str) -> None:
    filters = active()
    with state.one_step():
        if name in ("tensor_par", "pipeline_par"):
            ignore_cell()
        _put([one for one in filters if one.column.name != name])


def _clear() -> None:
    with state.one_step():
        ignore_cell()
        _put([])


def _form(exploration: Exploration, filters: Sequence[Filter]) -> None:
    """Choose a column, then values or a range."""
    derived = derived_of(exploration.scenario)
    columns = {column.name: column for column in stored_of(exploration.scenario.cost_model)}
    columns |= {name: metric.column for name, metric in derived.items()}
    names = list(columns)
    words = {name: f"{column.label} · {column.group}" for name, column in columns.items()}
    words |= names_of(exploration, unstored_metrics(exploration.scenario))
    name = st.selectbox(
        "Field or result", names, key=_PICKED, index=names.index("tensor_par"),
        format_func=lambda one: words[one],
        help="Every field and result there is. Those with a time behind their group are evaluated for all executions "
        "first, once.",
    )  # fmt: skip
    column, metric = columns[name], derived.get(name)
    st.caption(literal(column.description))
    now = next((one for one in filters if one.column.name == name), None)
    options = _options(exploration, exploration.key, name) if column.dtype != "float64" else ()
    if options and len(options) <= _MOST_CHOICES:
        chosen = st.pills(
            column.label, options, selection_mode="multi", format_func=lambda value: choice_label(column, value),
            default=[value for value in (now.values if now else ()) if value in options],
            key=f"results_pick_{name}", label_visibility="collapsed",
        )  # fmt: skip
        new = Filter(column, tuple(chosen)) if chosen else None
    else:
        new = _range(exploration, now or Filter(column, metric=metric))
    st.button(
        "Apply", key="results_apply", type="primary", disabled=new is None, on_click=_apply, args=(new,),
    )  # fmt: skip


def _range(exploration: Exploration, now: Filter) -> Filter | None:
    """Two number fields in the unit that suits the column."""
    column = now.column
    if not offer(exploration, now.stored):
        return None
    found = exploration.rows.value_range(now.stored)
    if found is None:
        st.caption("No execution has a finite value of this.")
        return None
    span = now.figures(*found)
    scale = scale_for(column, span)
    st.caption(f"From {format_value(column, span[0])} to {format_value(column, span[1])}; leave an end empty for open.")
    ends: list[float | None] = []
    for position, (word, given) in enumerate((("at least", now.low), ("at most", now.high))):
        value = st.number_input(
            f"{word}{scale.suffix and f' [{scale.unit}]'}", value=None if given is None else given / scale.factor,
            format="%.6g" if column.dtype == "float64" else "%.0f", key=f"results_end{position}_{column.name}",
            placeholder="open",
        )  # fmt: skip
        ends.append(None if value is None else float(value) * scale.factor)
    return None if ends == [None, None] else replace(now, low=ends[0], high=ends[1], values=())


def _apply(new: Filter) -> None:
    _put([*(one for one in active() if one.column.name != new.column.name), new])


@st.cache_data(show_spinner=False, max_entries=256)
def _options(_exploration: Exploration, key: str, name: str) -> tuple[Any, ...]:
    """The values that a field has among feasible executions."""
    found = _exploration.rows.best_by([name], "sample_rate")[name].to_pylist()
    column = FILTERABLE[name]
    return tuple(sorted(found, key=column.rank if column.choices else None))
