"""Comparison of the recommended execution with the fastest: choices, causes of the difference, and why others lose."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import streamlit as st

from dashboard.charts.elements.advice import ExecutionSide, rows_table, sides
from dashboard.charts.elements.markup import head
from dashboard.compat.types import Place
from dashboard.link import state
from dashboard.link.figures import PARAMETER, FiguresView
from dashboard.link.shared import SharedView
from dashboard.queries.explorations import Where
from dashboard.queries.figures import WORKING, Cell, begin_choosing, is_ready, wait_for_advice
from dashboard.queries.recommendation import Advice, memory_error
from dashboard.widgets import launch
from dashboard.widgets.controls import given, key_for
from dashboard.widgets.figures import patience_s, watch_figures
from dashboard.widgets.link_fields import draw_segments, draw_switch
from dashboard.widgets.menus import filled
from dashboard.widgets.window import is_narrow
from dashboard.words.markdown import literal
from dashboard.words.numbers import counted, format_value, gibibytes, percent, scale_for
from engine import Exploration, Scenario
from engine.executions.execution_names import execution_name
from hardware import GIB

__all__ = ["band", "require_figures", "room", "waiting_band"]

_HBM: Final = "proc_mem_tier1_cap_req"


def band(
    exploration: Exploration,
    key: str,
    asked: FiguresView,
    selection: SharedView,
    shown: int | None,
    where: Where = (),
    again: Callable[[], None] = lambda: None,
    parts: tuple[str, ...] = (),
    *,
    launches: bool = False,
) -> None:
    """Draws the recommended execution next to the fastest; a click chooses whose figures are shown.

    While the recommendation takes longer than a page waits, only the choice is there.

    key: of its widgets. asked: the choice and the terms. selection: cell and execution. shown: id of the execution
    whose figures the page shows. where: conditions that executions must meet. again: called last in a callback that
    changes the choice or the terms. parts: keys of the fragments that show the band; the whole page if empty. launches:
    the band has the configuration that starts the recommended execution, or the fastest without one.
    """
    found = wait_for_advice(exploration, asked.question, where, patience_s=patience_s())
    if found is None:  # the page shows the fastest meanwhile
        waiting_band(key, asked, selection, again)
        advised = asked.question.model_copy(update={"figures_of": "recommended"})
        watch_figures(exploration, advised, where, None, parts, f"{key}_band_figures")
        return
    if found.fastest is None:
        return
    scenario = exploration.scenario
    if is_narrow():  # one line: what the page is about comes first
        place: Place = st.expander(_recommendation_line(found), key=f"{key}_band_line")
    else:
        place = st.container(border=True, gap="xsmall", key=f"{key}_band")
    with place:
        left, right = st.columns([3.0, 1.2], gap="medium") if not is_narrow() else (place, place)
        left.html(sides(_make_sides(scenario, found, shown)))
        _draw_choice(right, asked, selection, key, again)
        with right.container(horizontal=True, gap="small", vertical_alignment="center"):
            if launches and (execution := found.execution or found.fastest) is not None:
                launch.popover(scenario, execution, f"{key}_band_launch", plain=True, is_current=True)
            with st.popover(
                "Why not the others",
                icon=":material/format_list_numbered:",
                type="tertiary",
                key=f"{key}_why",
                help="The ten best, and why each is not recommended.",
            ):
                if filled(f"{key}_why"):
                    _draw_contenders(scenario, found, key, asked, again)


def waiting_band(
    key: str, asked: FiguresView, selection: SharedView, again: Callable[[], None], note: str = WORKING
) -> None:
    """Draw the choice of figures in the place of the band while the recommendation is worked out. See `band`.

    note: sentence next to the choice; empty where the page says it elsewhere.
    """
    _draw_choice(st.container(), asked, selection, key, again)
    if note:
        st.caption(note)


def require_figures(
    explorations: Sequence[Exploration], key: str, asked: FiguresView, cell: Cell | None = None
) -> None:
    """Show that the recommendation is worked out, with a button for the fastest, and stop the page until it is there.

    A page whose every figure is that execution's calls it first; it draws nothing for a known one.

    Args:
        explorations: of the scenarios whose execution the page shows.
        key: of its widgets.
        asked: the choice and the terms.
        cell: tensor and pipeline parallel degrees of the execution; None for that of all cells.
    """
    for each in explorations:  # all at once, in the background
        begin_choosing(each, asked.question)
    for each in explorations:
        if not is_ready(each, asked.question, cell=cell, patience_s=patience_s()):
            with st.container(horizontal=True, gap="small", vertical_alignment="center"):
                st.caption(WORKING, width="content")
                st.button(
                    "Show the fastest",
                    icon=":material/bolt:",
                    type="tertiary",
                    key=f"{key}_show_fastest",
                    on_click=state.set_url_value,
                    args=(PARAMETER, "fastest"),
                    help="All pages then show the figures of the fastest execution.",
                )
            watch_figures(each, asked.question, (), cell, (), f"{key}_figures")
            st.stop()


def _draw_choice(place: Place, asked: FiguresView, selection: SharedView, key: str, again: Callable[[], None]) -> None:
    """Draw the choice of the execution whose figures all pages show, and the way back to that of all cells."""
    with place.container(horizontal=True, gap="small", vertical_alignment="center"):
        st.markdown(":small[:gray[Figures of]]", width="content")
        draw_segments(asked.choice, resets=("id",), then=again)
        if selection.cell is not None or selection.id is not None:
            st.button(
                ":material/close:",
                type="tertiary",
                key=f"{key}_unselect",
                on_click=_clear_selection,
                args=(again,),
                help="Clear selection: back to the execution of all cells.",
            )


def _clear_selection(again: Callable[[], None]) -> None:
    """Select neither a cell nor an execution."""
    state.reset_selection()
    again()


def room() -> Place:
    """Return the slot of the band, with its height from the start, so that nothing below moves when it is drawn."""
    found = st.container(gap=None, key="band_line_room" if is_narrow() else "band_room")
    found.html('<i class="ss-room"></i>')  # a place with nothing in it would not be there at all
    return found


def _recommendation_line(found: Advice) -> str:
    """Return the recommendation as one line for a narrow window: "Recommended TP 8 × PP 2 × DP 32 · 147 samples/s"."""
    shown = found.fastest if found.execution is None else found.execution
    assert shown is not None
    name = "Fastest" if found.execution is None else "Recommended"
    rate = format_value("sample_rate", shown["sample_rate"])
    return f":small[{name} **{literal(execution_name(shown))}** · {literal(rate)}]"


def _make_sides(scenario: Scenario, found: Advice, selected: int | None) -> list[ExecutionSide]:
    own, fastest = found.execution, found.fastest
    assert fastest is not None
    if own is None:
        note = "Nothing to recommend: every feasible execution offloads, may not fit, or was never measured."
        return [_make_side(scenario, "Fastest", fastest, note, selected)]
    error = percent(found.terms.error)
    if not found.difference:
        alike = f"simplest of {counted(found.close, 'execution')} inside the error of {error}"
        return [_make_side(scenario, "Recommended, and fastest", own, alike, selected)]
    behind = f"{percent(1.0 - 1.0 / (1.0 + found.difference))} slower on paper"
    within = found.difference <= found.terms.error
    close = f", inside the error of {error}" if within else ""
    if found.close > 1:
        close += f"; simplest of {found.close:,}"
    further = tuple(words for words in found.takes if "offload" not in words)
    takes = f"; needs {_list_briefly(further)}" if further and "needs" not in found.why else ""
    return [
        _make_side(scenario, "Recommended", own, f"{behind}{close}", selected),
        _make_side(scenario, "Fastest", fastest, found.why + takes, selected),
    ]


def _make_side(scenario: Scenario, name: str, row: Mapping[str, Any], note: str, selected: int | None) -> ExecutionSide:
    error, needed = memory_error(scenario), float(row[_HBM])
    span = "" if error is None else f" ({needed * error.low / GIB:.0f} to {needed * error.high / GIB:.0f})"
    memory = f"{gibibytes(needed)}{span} of {gibibytes(scenario.system.mem1.capacity_gib * GIB)} HBM"
    shown = " · shown" if selected == int(row["id"]) else ""
    return ExecutionSide(
        f"{name}{shown}", execution_name(row), format_value("sample_rate", row["sample_rate"]), memory, note
    )


def _draw_contenders(
    scenario: Scenario, found: Advice, key: str, asked: FiguresView, again: Callable[[], None]
) -> None:
    """The ten best with their reasons, and the terms, which can be changed."""
    terms = found.terms
    st.html(head("Why not the others", "the best of different layouts, fastest first"))
    rates = scale_for("sample_rate", [one.execution["sample_rate"] for one in found.contenders])
    headers = ("Layout", rates.unit, "HBM [GiB]", "Why not")
    st.html(
        rows_table(
            headers,
            [
                (
                    execution_name(one.execution),
                    rates.number(one.execution["sample_rate"]),
                    f"{float(one.execution[_HBM]) / GIB:.1f}",
                    one.reason or "recommended",
                )
                for one in found.contenders
            ],
            texts=(0, 3),
        )
    )
    if found.advice:
        st.markdown(literal(found.advice))
    st.html(head("Terms"))
    basis = "assumed, because no measured run shows it"
    if terms.time is not None:
        basis = f"half the width of the interval of {terms.time.rests_on}"
    st.markdown(literal(f"Error of a comparison: {percent(terms.error)}, {basis}."))
    if terms.memory is not None:
        st.markdown(
            literal(
                f"Memory: {percent(terms.memory.share, 0)} of {terms.memory.rests_on} took {terms.memory.low:.2f} to "
                f"{terms.memory.high:.2f} times the prediction."
            )
        )
    if found.waived:
        st.markdown(literal(f"Never measured, whatever the execution: {_list_briefly(found.waived)}."))
    value = round(100.0 * terms.headroom, 1)
    field = key_for(f"_{key}_headroom", value)

    def changed() -> None:
        new = given(field)
        state.set_url_value("recommended_headroom", None if new is None else f"{new:g}")
        again()

    st.number_input(
        "Memory kept free, % of what is predicted",
        0.0,
        200.0,
        value,
        1.0,
        format="%.1f",
        key=field,
        on_change=changed,
        width=280,
    )
    draw_switch(asked.offload, then=again)
    draw_switch(asked.unmeasured, then=again)


def _list_briefly(words: tuple[str, ...]) -> str:
    return ", ".join(words[:3]) + (f" and {len(words) - 3} more" if len(words) > 3 else "")
