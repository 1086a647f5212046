"""The What-if page's card of sliders: the system's numbers around the base, the model's, and saving the result."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import streamlit as st

import hardware
from dashboard.charts.elements.markup import head
from dashboard.compat.session import in_browser
from dashboard.jobs.server import questions
from dashboard.link import state
from dashboard.link.catalogue import called
from dashboard.link.document_validation import Refused
from dashboard.link.figures import parse_figures
from dashboard.link.user_files import LONGEST_TITLE, user_files
from dashboard.pages.whatif.inputs import WhatIfView
from dashboard.widgets.controls import given, key_for, whole, whole_field
from dashboard.widgets.hardware_changes import moved, parse_changes, put, reset
from dashboard.widgets.link_fields import draw_segments
from dashboard.words.changes import in_words, options, slider_label
from dashboard.words.markdown import literal
from engine import Scenario, whatif
from engine.questions.changes import change_question
from engine.whatif import Parameter
from hardware import System

__all__ = ["PARTS", "card", "search_ahead"]

PARTS: Final = ("whatif_answer", "whatif_hardware", "whatif_studies")
"""Fragments of the page, in the order in which a change redraws them."""
_NEXT: Final = "_whatif_next"
"""Session key: the parameter that was moved last, and the next value in the same direction."""
_QUICK: Final = 0.25
"""Longest search after which the next step is searched in advance [s]."""


def card(view: WhatIfView, again: Callable[[], None]) -> None:
    """Draws the card. again: called in a widget's callback to redraw the page's parts."""
    scenario, changes = view.scenario, view.changes
    every = whatif.parameters(scenario)
    with st.container(border=True, gap="xsmall", key="whatif_card"):
        title, button = st.columns([2, 1], vertical_alignment="center")
        of_system = [which for which in every if which.about == "system"]
        changed = sum(which.name in changes for which in of_system)
        title.html(head("Hardware", f"{changed} changed" if changed else ""))
        button.button(
            "Reset",
            icon=":material/restart_alt:",
            type="tertiary",
            key="whatif_reset",
            disabled=not changes,
            on_click=_reset_changes,
            args=(again,),
            width="stretch",
            help="Undo all changes.",
        )
        for problem in view.problems:
            st.warning(literal(problem), icon=":material/link_off:")
        draw_segments(view.fields["input"], label="Input")
        way = view.link.input
        parts = [which for which in of_system if which.part_of]
        for which in of_system:
            if which in parts[:1]:
                alone = sum(one.name in changes for one in parts)
                label = "Peak or power alone" + (f" · {alone} changed" if alone else "")
                with st.expander(label, expanded=bool(alone), key="whatif_alone"):
                    for part in parts:
                        _draw_field(scenario, part, changes, way, again)
            elif which not in parts:
                _draw_field(scenario, which, changes, way, again)
        others = [which for which in every if which.about != "system"]
        count = sum(which.name in changes for which in others)
        label = "Model and machine" + (f" · {count} changed" if count else "")
        with st.expander(label, expanded=bool(count), key="whatif_model"):
            for which in others:
                _draw_field(scenario, which, changes, way, again)
        _draw_save_menu(scenario, changes)


def _reset_changes(again: Callable[[], None]) -> None:
    reset()
    again()


def _draw_field(
    scenario: Scenario, which: Parameter, changes: Mapping[str, float], way: str, again: Callable[[], None]
) -> None:
    """Draw one parameter, as a slider or as a number to type."""
    value = changes.get(which.name, whatif.otherwise(scenario, changes, which.name))
    key = key_for(f"_whatif_{way}_{which.name}", float(value))

    def changed() -> None:
        new = float(whole(given(key)) if which.discrete else given(key))
        put(scenario, which.name, new)
        st.session_state[_NEXT] = which.name, _following_value(options(which, value), value, new)
        # In parallel with the rerun of the page.
        questions().begin(
            change_question(scenario, parse_changes(scenario)[0], parse_figures().question), state.watcher()
        )
        again()

    if way == "amounts":
        _draw_amount(scenario, which, value, again)
        return
    if way == "sliders":
        st.select_slider(
            slider_label(which, value),
            options(which, value),
            value,
            key=key,
            format_func=lambda number: literal(in_words(which, number)),
            on_change=changed,
            help=which.description,
        )
        return
    # Typed in one unit, so no prefix is chosen by value.
    name = f"**{which.label}**" if value != which.value else which.label
    label = f"{name}{'' if which.unit == which.label else f', {which.unit}'} · base {which.value:,.6g}"
    low = 0.0 if which.can_be_off else which.lowest
    inside = float(min(max(value, low), which.highest))  # a rounded bound may be just outside
    if which.discrete:
        whole_field(label, int(low), int(which.highest), inside, key, on_change=changed, help=which.description)
        return
    st.number_input(
        label,
        low,
        which.highest,
        inside,
        key=key,
        on_change=changed,
        help=which.description,
        step=_field_step(which),
        format="%.6g",
    )


def _draw_amount(scenario: Scenario, which: Parameter, value: float, again: Callable[[], None]) -> None:
    """Draw a parameter as text: the amount on top of the base, a share, a factor, or a new value."""
    text = "" if value == which.value else f"{value - which.value:+.6g} {which.unit}"
    key = key_for(f"_whatif_amounts_{which.name}", text)

    def changed() -> None:
        written = str(given(key)).strip()
        try:
            new = whatif.parse_amount(which, written) if written else which.value
        except whatif.ChangeError as problem:
            st.toast(literal(str(problem)), icon=":material/error:")
            return
        put(scenario, which.name, new)
        questions().begin(
            change_question(scenario, parse_changes(scenario)[0], parse_figures().question), state.watcher()
        )
        again()

    st.text_input(
        slider_label(which, value),
        text,
        key=key,
        on_change=changed,
        placeholder=whatif.unit_example(which),
        help=f"{which.description} An amount such as {whatif.unit_example(which)}, +10 %, x2, or a new value.",
        max_chars=40,
    )


def _following_value(values: Sequence[float], before: float, now: float) -> float | None:
    """Return the next value of a slider in the direction of its last move; None at its end."""
    further = [value for value in values if (value > now if now > before else value < now)]
    return None if not further or now == before else min(further) if now > before else max(further)


def search_ahead(view: WhatIfView) -> None:
    """Searches one step on from the slider's last move, in the same direction: users tend to move it again.

    Call it when the page is complete.
    """
    name, value = st.session_state.pop(_NEXT, ("", None))
    if value is None or not in_browser():
        return
    scenario = view.scenario
    now = questions().ask(view.question, state.watcher())
    with contextlib.suppress(ValueError):  # the change may be impossible
        following = moved(scenario, name, value)
        if now.seconds < _QUICK:
            questions().ahead(change_question(scenario, following, view.figures.question), state.watcher())


def _field_step(which: Parameter) -> float:
    """Return a round number near a twentieth of the base."""
    return float(f"{which.value / 20:.1g}") if which.value else 1.0


def _draw_save_menu(scenario: Scenario, changes: Mapping[str, float]) -> None:
    """Draw the menu that keeps the changed system under a name, or makes the changes the scenario."""
    to_system = whatif.system_changes(scenario, changes)
    with st.popover("Save as system", icon=":material/bookmark:", disabled=not changes, width="stretch"):
        key = "_whatif_name"
        origin = called(scenario.system.derived_from or scenario.system.name, System)
        st.text_input("Name", _suggest_name(scenario), key=key, max_chars=LONGEST_TITLE)
        st.caption(
            f"A copy of {literal(origin)} with its changes recorded."
            if to_system
            else "The system is unchanged; the model or the machine is not."
        )
        if to_system and user_files().folder is not None:
            st.button(
                "Save to the library",
                key="whatif_save",
                icon=":material/bookmark_add:",
                on_click=_keep_system,
                args=(scenario, dict(changes), key),
                width="stretch",
            )
        st.button(
            "Make this the scenario",
            key="whatif_adopt",
            icon=":material/check:",
            on_click=_adopt_changes,
            args=(scenario, dict(changes), key),
            width="stretch",
            help="All pages then use the changed scenario.",
        )
        if to_system:
            system = _changed_system(scenario, changes, key)
            st.download_button(
                "System file",
                # At hand, not made at the click: the page redraws itself, which drops a file made for one click.
                _system_file(system),
                "system.json",
                "application/json",
                key="whatif_download",
                on_click="ignore",
                icon=":material/download:",
                width="stretch",
            )


def _suggest_name(scenario: Scenario) -> str:
    """Return a suggested name for the changed system: the original's without its remark in brackets."""
    origin = called(scenario.system.derived_from or scenario.system.name, System).partition(" (")[0]
    return f"{origin} (what-if)"[:LONGEST_TITLE]


def _changed_system(scenario: Scenario, changes: Mapping[str, float], key: str) -> System:
    name = str(st.session_state.get(key) or _suggest_name(scenario))
    return hardware.edited(scenario.system, whatif.system_changes(scenario, changes), name=name, title=name)


def _system_file(system: System) -> bytes:
    return (json.dumps(hardware.to_document(system), indent=2, ensure_ascii=False) + "\n").encode()


def _keep_system(scenario: Scenario, changes: Mapping[str, float], key: str) -> None:
    try:
        system = _changed_system(scenario, changes, key)
        user_files().keep_system(system)
    except (Refused, ValueError) as problem:
        st.toast(literal(str(problem)), icon=":material/error:")
        return
    st.toast(f"Kept as {literal(system.name)}. The Library has it.", icon=":material/bookmark_added:")


def _adopt_changes(scenario: Scenario, changes: Mapping[str, float], key: str) -> None:
    try:
        after = whatif.changed(scenario, changes)
        if whatif.system_changes(scenario, changes):
            after = replace(after, system=_changed_system(scenario, changes, key))
    except ValueError as problem:
        st.toast(literal(str(problem)), icon=":material/error:")
        return
    with state.one_step():
        reset()
        state.set_scenario(after)
    st.rerun()
