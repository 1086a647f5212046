"""The menu of filters, the same on every page that has one: the choices as pills, fields and results as ranges, and
what to do when they leave nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import streamlit as st

from dashboard.compat.caches import remembered
from dashboard.queries.explorations import Where, frozen, varying
from dashboard.queries.filters import FILTERABLE, Filter, conditions
from dashboard.widgets.controls import given, key_for
from dashboard.widgets.filters.in_force import OF_LINK, InForce
from dashboard.widgets.filters.ranges import ranges
from dashboard.widgets.menus import filled
from dashboard.words.markdown import literal
from dashboard.words.names import in_sentence
from dashboard.words.numbers import counted
from engine import Exploration
from engine.columns import FIT, FITS, choice_label
from engine.recommendation import fit_bounds_of
from hardware import network_names

__all__ = ["bar", "matching", "relaxations", "where_of"]

_MOST_PILLS: Final = 40


def where_of(filters: Sequence[Filter]) -> Where:
    """Filters as conditions that can be remembered."""
    return frozen(conditions(filters))


@remembered(256)
def matching(_exploration: Exploration, key: str, where: Where) -> int:
    """Returns number of executions that run and meet conditions."""
    return _exploration.rows.count(where)


def bar(exploration: Exploration, filters: Sequence[Filter], within: InForce = OF_LINK) -> None:
    """Draws the button that opens the filters.

    within: source of the filters.
    """
    label = f"Filter · {len(filters)}" if filters else "Filter"
    with st.popover(label, icon=":material/filter_list:", key="explore_filter_open", help="Filter executions"):
        if filled("filter"):
            ranges(exploration, filters, within)
            _draw_fit(exploration, filters, within)
            _draw_choices(exploration, filters, within)


def relaxations(
    exploration: Exploration, filters: Sequence[Filter], fixed: Where = (), within: InForce = OF_LINK
) -> None:
    """Draws remedies if no execution meets the filters: the binding filters, and the nearest value that each would
    need.

    fixed: conditions that are not filters, such as the selected cell. within: source of the filters.
    """
    binding = []
    for one in filters:
        others = (*where_of([other for other in filters if other is not one]), *fixed)
        left = matching(exploration, exploration.key, others)
        if left:
            binding.append((left, one, _nearest_filter(exploration, exploration.key, one, others)))
    if not binding:
        st.markdown("No execution meets these filters, and removing a single one is not enough.")
    else:
        names = " or ".join(literal(in_sentence(one.words)) for _, one, _ in binding)
        several = len(filters) > 1
        st.markdown(f"No execution meets these filters{f'; removing {names} would help' if several else ''}.")
    with st.container(horizontal=True, gap="small"):
        for left, one, nearest in sorted(binding, key=lambda found: -found[0]):
            if nearest is not None:
                st.button(
                    f"Relax to {literal(nearest.words)}",
                    key=f"explore_relax_{one.column.name}",
                    type="primary",
                    on_click=within.put,
                    args=([*(other for other in filters if other is not one), nearest],),
                )
            st.button(
                f"Drop {literal(one.words)}: {counted(left, 'execution')}",
                key=f"explore_without_{one.column.name}",
                on_click=within.drop,
                args=(one.column.name,),
            )
        st.button("Clear all filters", key="explore_clear_all", type="tertiary", on_click=within.clear)


@remembered(128)
def _nearest_filter(_exploration: Exploration, key: str, one: Filter, others: Where) -> Filter | None:
    """Return a range moved just far enough for one execution; None for other filters, or without a finite value."""
    if one.values or (one.low is not None and one.high is not None and one.low > one.high):
        return None
    span = _exploration.rows.value_range(one.stored, where=others)
    if span is None:
        return None
    low, high = one.figures(*span)
    if one.metric is not None:  # it is turned back into the stored figure, which must not cost its last digit
        low, high = low * (1 + 1e-12), high * (1 - 1e-12)
    if one.high is not None and low > one.high:
        return replace(one, high=low)
    if one.low is not None and high < one.low:
        return replace(one, low=high)
    return None  # it lies in a gap between values


def _draw_choices(exploration: Exploration, filters: Sequence[Filter], within: InForce) -> None:
    """Every choice as pills; none chosen means that it does not matter."""
    values = {one.column.name: one.values for one in filters}
    networks = network_names(exploration.scenario.system)
    halves = st.columns(2)  # in one column the list is taller than the window
    offered = {
        name: options for name, options in varying(exploration, exploration.key).items() if len(options) <= _MOST_PILLS
    }
    for number, (name, options) in enumerate(offered.items()):
        column = FILTERABLE[name]
        shown = [value for value in options if value in values.get(name, ())]
        key = key_for(f"_explore_pick_{name}", shown)
        halves[number % 2].pills(
            column.label,
            options,
            default=shown,
            selection_mode="multi",
            key=key,
            help=literal(column.description),
            on_change=_apply_picks,
            args=(name, key, len(options), within),
            wrap=True,
            format_func=partial(choice_label, column, networks=networks),
        )


def _draw_fit(exploration: Exploration, filters: Sequence[Filter], within: InForce) -> None:
    """Draw the choice of fits into memory that executions have, if the error of predicted memory is known."""
    bounds = fit_bounds_of(exploration.scenario)
    if bounds is None:
        return
    now = next((one for one in filters if one.bounds is not None), Filter(FIT, bounds=bounds))
    numbers = {word: matching(exploration, exploration.key, where_of([replace(now, values=(word,))])) for word in FITS}
    options = [word for word, number in numbers.items() if number or word in now.values]
    key = key_for("_explore_pick_fit", list(now.values))

    def picked() -> None:
        words = tuple(given(key) or ())
        within.put_one(FIT.name, replace(now, values=words) if 0 < len(words) < len(options) else None)

    st.pills(
        FIT.label,
        options,
        default=[word for word in options if word in now.values],
        selection_mode="multi",
        key=key,
        help=literal(FIT.description),
        on_change=picked,
        format_func=lambda word: f"{word} · {numbers[word]:,}",
    )


def _apply_picks(name: str, key: str, number: int, within: InForce) -> None:
    picked = tuple(given(key) or ())
    within.put_one(name, Filter(FILTERABLE[name], picked) if 0 < len(picked) < number else None)
