"""Ranges among the filters: as many fields and results at once as one likes, a row for each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import streamlit as st

from dashboard.queries.explorations import span_of, varying
from dashboard.queries.filters import FILTERABLE, Filter, derived_of
from dashboard.widgets.controls import given, key_for
from dashboard.widgets.filters.in_force import InForce
from dashboard.widgets.needed_statistics import ABOUT, names_of, offer
from dashboard.words.markdown import literal
from dashboard.words.numbers import plain, scale_for
from engine import Exploration
from engine.columns import MFU_OF, SHARES, headline_of

__all__ = ["ranges"]

_OPEN: Final = "_explore_ranges_open"
"""Names of the rows that are shown, in order."""


def ranges(exploration: Exploration, filters: Sequence[Filter], within: InForce) -> None:
    """Draws the chooser of what gets a range, and a row with the lowest and highest value for each.

    within: what the filters are of.
    """
    offered = _offered_ranges(exploration)
    inside = {one.column.name: one for one in filters if not one.values and one.column.name in offered}
    # Rows that are shown before any was chosen.
    first = ("proc_mem_tier1_cap_req", MFU_OF[exploration.scenario.flop_convention])
    opened = [name for name in st.session_state.get(_OPEN, () if inside else first) if name in offered]
    shown = list(dict.fromkeys([*opened, *inside]))
    key = key_for("_explore_ranges", shown)

    def picked() -> None:
        wanted = list(given(key))
        st.session_state[_OPEN] = wanted
        within.put([one for one in within.parse() if one.values or one.column.name in wanted])

    figures = {name: one.metric for name, one in offered.items() if one.metric is not None}
    words = {name: one.column.label for name, one in offered.items()} | names_of(exploration, figures)
    st.multiselect(
        "Ranges of fields and results",
        list(offered),
        shown,
        key=key,
        on_change=picked,
        format_func=lambda name: words[name],
        placeholder="Choose a field or result",
        help=f"Accepted ranges of results and of fields with numbers. {ABOUT}",
    )
    for name in shown:
        _draw_range(exploration, shown, inside.get(name, offered[name]), within)


def _offered_ranges(exploration: Exploration) -> dict[str, Filter]:
    """Return the columns that can have a range, as filters that are open at both ends; results first."""
    results = (*SHARES, *headline_of(exploration.scenario.cost_model))
    found = {column.name: Filter(column) for column in reversed(results)}
    for name, metric in derived_of(exploration.scenario).items():
        found[name] = Filter(metric.column, metric=metric)
    fields = {name: FILTERABLE[name] for name in varying(exploration, exploration.key)}
    return {**found, **{name: Filter(column) for name, column in fields.items() if column.dtype == "int64"}}


def _draw_range(exploration: Exploration, shown: Sequence[str], now: Filter, within: InForce) -> None:
    """One range, in the unit that suits it; an end that is left empty is open.

    shown: names of all rows, which stay when one of them becomes a filter.
    """
    column = now.column
    if not offer(exploration, now.stored):
        return
    span = span_of(exploration, exploration.key, now.stored)
    label, least, most = st.columns([1.5, 1, 1], vertical_alignment="center")
    if span is None:
        label.markdown(f"{literal(column.label)} :gray[has no finite value here]")
        return
    bounds = now.figures(*span)
    scale = scale_for(column, bounds)
    label.markdown(literal(scale.title(column.label)), help=literal(column.description))
    limits = [None if end is None else end / scale.factor for end in (now.low, now.high)]
    named = zip((f"_explore_{end}_{column.name}" for end in ("low", "high")), limits, strict=True)
    keys = [key_for(name, value, clearable=True) for name, value in named]

    def changed() -> None:
        ends = [given(key) for key in keys]
        low, high = (None if e is None or not math.isfinite(e) else float(e) * scale.factor for e in ends)
        st.session_state[_OPEN] = list(shown)
        open_ended = low is None and high is None
        within.put_one(column.name, None if open_ended else replace(now, low=low, high=high, values=()))

    for place, word, hint, key, bound in zip(
        (least, most), ("at least", "at most"), ("from", "to"), keys, bounds, strict=True
    ):
        place.number_input(
            f"{column.label} {word}{scale.suffix and f' [{scale.unit}]'}",
            value=None,
            format="%.6g",
            key=key,
            placeholder=f"{hint} {plain(bound / scale.factor)}",
            on_change=changed,
            label_visibility="collapsed",
        )
