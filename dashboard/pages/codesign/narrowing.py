"""Filters of designs: intervals of choices and figures, brushed or typed, each with a button that removes it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection
from typing import Final

import pandas as pd
import streamlit as st

from dashboard.files.codesign_report import DesignReportQuestion
from dashboard.link import state
from dashboard.queries import design_stretches as stretches
from dashboard.widgets.chart import brushed
from dashboard.widgets.controls import menu_key, shut
from dashboard.words.markdown import literal
from dashboard.words.numbers import counted
from engine.codesign import QUANTITIES, Results, Study

__all__ = ["line", "menu", "on_brush", "parse_filters"]

LINK: Final = "codesign_kept"
_TEXT: Final = re.compile(r"[-+.:,0-9a-z_]{1,2000}")
_MENU: Final = "codesign_keep_only"


def parse_filters(known: Collection[str]) -> dict[str, tuple[float, float]]:
    """Parse the intervals in the link.

    Args:
        known: names of the choices and quantities of the study.
    """
    text = state.url_value(LINK, "", _TEXT)
    found, problem = stretches.in_link(text, known)
    if problem is not None:
        state.complain(LINK, problem)
    return found


def on_brush(key: str, found: Results, question: DesignReportQuestion, designs: pd.DataFrame) -> Callable[[], None]:
    """Returns a callback that adds a chart's brushed intervals to the filters in force.

    Args:
        key: key of the chart.
        found: the computed points.
        question: the question about them.
        designs: rows of `Results.designs`.
    """

    def kept() -> None:
        now = dict(question.stretches)
        for name, ends in brushed(key).items():
            if name not in designs:
                continue
            _set_interval(
                now,
                name,
                None
                if ends is None
                else stretches.brushed(found.study, designs[name], *ends, choice=name in question.names),
            )
        _write_intervals(now)

    return kept


def _set_interval(now: dict[str, tuple[float, float]], name: str, ends: tuple[float, float] | None) -> None:
    if ends is None or ends == (-math.inf, math.inf):
        now.pop(name, None)
    else:
        now[name] = ends


def _write_intervals(now: stretches.Stretches) -> None:
    state.set_url_value(LINK, stretches.linked(now))


def line(study: Study, question: DesignReportQuestion, designs: pd.DataFrame) -> None:
    """Draws the filters as a sentence with a button to remove each; draws nothing without filters.

    Args:
        study: the study.
        question: the question about it, with its filters.
        designs: rows of `Results.designs`.
    """
    told = question.told(study)
    if not told:
        return
    with st.container(horizontal=True, gap="xsmall", vertical_alignment="center", key="codesign_kept_line"):
        for number, (name, words) in enumerate(told.items()):
            st.markdown("and" if number else "Of designs with", width="content")
            left = {each: ends for each, ends in question.stretches.items() if each != name}
            st.button(
                literal(words),
                key=f"codesign_drop_{name}",
                icon=":material/close:",
                on_click=_write_intervals,
                args=(left,),
                help="Remove this filter",
            )
        st.button(
            "Clear",
            key="codesign_clear",
            type="tertiary",
            on_click=_write_intervals,
            args=({},),
            help="Remove every filter",
        )
        runs = designs[designs["status"] == "ok"]
        text = f"{len(question.kept(study, runs)):,} of {counted(len(runs), 'design')} that run"
        st.markdown(f":gray[{text}]", width="content")


def menu(found: Results, question: DesignReportQuestion, designs: pd.DataFrame) -> None:
    """Draws the menu that sets a filter by keyboard, as a brush does with the pointer.

    Args:
        found: the computed points.
        question: the question about them.
        designs: rows of `Results.designs`.
    """
    figures = {
        name: f"{one.label} [{one.unit}]" if one.unit else one.label
        for name, one in QUANTITIES.items()
        if name in designs
    }
    named = {**figures, **question.names}
    about = "Filters designs by an interval, as does a box drawn over the front or a brushed axis."
    with st.popover("Keep only", icon=":material/filter_alt:", type="tertiary", help=about, key=menu_key(_MENU)):
        first = [name for name in (question.up.name, question.across.name if question.across else "") if name]
        options = list(dict.fromkeys([*first, *question.names, *figures]))
        name = str(st.selectbox("Of", options, format_func=lambda each: named[each], key=f"{_MENU}_of"))
        words = stretches.words_of(found.study).get(name)
        with st.form(f"{_MENU}_form", border=False):
            least, most = question.stretches.get(name, (-math.inf, math.inf))
            key = f"{_MENU}_{name}_{least}_{most}"  # new fields once the filter was set elsewhere
            if words is not None:
                st.selectbox("Only", words, key=f"{key}_word")
            else:
                for end, value in (("At least", least), ("At most", most)):
                    st.number_input(
                        end,
                        value=value if math.isfinite(value) else None,
                        format="%.12g",
                        key=f"{key}_{end[3:]}",
                        placeholder="open",
                    )
            st.form_submit_button(
                "Keep", key=f"{_MENU}_use", type="primary", on_click=_add_filter, args=(question, name, words, key)
            )


def _add_filter(question: DesignReportQuestion, name: str, words: list[str] | None, key: str) -> None:
    now = dict(question.stretches)
    if words is not None:
        place = float(words.index(str(st.session_state[f"{key}_word"])))
        ends = place, place
    else:
        least, most = (st.session_state[f"{key}_{end}"] for end in ("least", "most"))
        ends = (-math.inf if least is None else float(least), math.inf if most is None else float(most))
        if ends[0] > ends[1]:
            st.toast("At least must not exceed at most.", icon=":material/error:")
            return
    _set_interval(now, name, ends)
    _write_intervals(now)
    shut(_MENU)
