"""Adding a scenario to the comparison: a variant of A, the what-if, or one that was saved or explored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import streamlit as st

from dashboard.jobs.explored_scenarios import entries
from dashboard.jobs.server import explorations
from dashboard.link.catalogue import model_of, system_of, systems, usable_models
from dashboard.link.user_files import user_files
from dashboard.queries.nearest_fit import fits, remedies, runs
from dashboard.queries.scenario_edits import altered, datatypes_of
from dashboard.widgets.compared_scenarios import SLOTS, Slots, add, add_changes
from dashboard.widgets.controls import menu_key, shut, whole, whole_field
from dashboard.widgets.hardware_changes import parse_changes
from dashboard.words.changes import described
from dashboard.words.markdown import literal
from dashboard.words.scenarios import name_of, sentence_of, system_name
from engine import Scenario, whatif
from engine.columns import choice_label
from engine.cost_models.registry import COST_MODELS, cost_model_of
from hardware import System

__all__ = ["adder", "opener", "parse_whatif", "suggestions"]

_MOST: Final = 200
_MENU: Final = "compare_add"


def parse_whatif(first: Scenario) -> Mapping[str, float]:
    """Parse the changes of the What-if page, which are offered as a scenario. first: scenario A."""
    return parse_changes(first)[0]


def opener(first: Scenario, changes: Mapping[str, float]) -> None:
    """Draws the button and the menu that it opens. changes: of the What-if page."""
    with st.popover("Add a scenario", icon=":material/add:", width="stretch", key=menu_key(_MENU)):
        adder(first, changes)


def adder(first: Scenario, changes: Mapping[str, float], slots: Slots = SLOTS) -> None:
    """Draws the ways to add a scenario.

    changes: of the What-if page. slots: parameters of the link that hold the scenarios.
    """
    _draw_whatif(first, slots, changes)
    _draw_variant(first, slots)
    _draw_kept_scenarios(first, slots)


def suggestions(first: Scenario, slots: Slots = SLOTS) -> None:
    """Draws the most usual comparisons as buttons, one click each; if nothing runs, the changes that would help."""
    if not runs(first, first.key):
        _draw_remedies(first, slots)
        return
    now = {which.name: which for which in whatif.parameters(first)}
    doubled = [
        (f"{2 * first.num_procs:,} GPUs", "procs"),
        ("Twice the HBM bandwidth", "hbm_bandwidth"),
        ("Half the batch", "batch"),
    ]
    with st.container(horizontal=True, gap="small", vertical_alignment="center", key="compare_suggestions"):
        st.markdown(":gray[Compare A with]", width="content")
        for words, name in doubled:
            value = now[name].value * (0.5 if name == "batch" else 2)
            if now[name].lowest <= value <= now[name].highest and float(value).is_integer():
                st.button(
                    words,
                    icon=":material/add:",
                    key=f"compare_suggest_{name}",
                    on_click=add_changes,
                    args=({name: float(value)}, slots),
                )
        others = (each for each in COST_MODELS.values() if each is not cost_model_of(first))
        other = next((each for each in others if not each.unsupported(first.model)), None)
        if other is not None:
            st.button(
                f"{other.reference.split()[0]}'s cost model" if other.reference else f"The {other.name} cost model",
                icon=":material/add:",
                key="compare_suggest_cost_model",
                on_click=_add_variant,
                args=(first, "cost_model", "_compare_suggested", slots, other.name),
            )


def _draw_remedies(first: Scenario, slots: Slots) -> None:
    """Draw the changes after which something runs as buttons."""
    with st.container(horizontal=True, gap="small", vertical_alignment="center", key="compare_suggestions"):
        found = remedies(first, first.key)
        if found:
            st.markdown(":gray[Something would run with]", width="content")
        for name, value, words in found:
            st.button(
                words,
                icon=":material/add:",
                key=f"compare_suggest_{name}",
                on_click=add_changes,
                args=({name: value}, slots),
            )
        if first.field_limits and fits(first, limits={}):
            st.button(
                "No limits",
                icon=":material/add:",
                key="compare_suggest_limits",
                on_click=add,
                args=(altered(first, limits={}), slots),
            )


def _draw_whatif(first: Scenario, slots: Slots, changes: Mapping[str, float]) -> None:
    if not changes:
        return
    st.button(
        "The what-if",
        key="compare_add_whatif",
        icon=":material/tune:",
        width="stretch",
        help=", ".join(described(first, changes)),
        on_click=_add_and_close,
        args=(add_changes, changes, slots),
    )


def _draw_variant(first: Scenario, slots: Slots) -> None:
    """A with one thing changed."""
    every = {which.name: which for which in whatif.parameters(first)}
    named = {"system": "System", "model": "Model", "datatype": "Datatype", "cost_model": "Cost model"}
    labels = {**named, **{name: which.label for name, which in every.items()}}
    what = st.selectbox("Copy A, changing", list(labels), format_func=lambda name: labels[name], key="compare_what")
    key = "compare_value"
    if what == "system":
        others = [name for name in systems() if name != first.system.name]
        st.selectbox(
            "System",
            others,
            format_func=lambda name: system_name(system_of(name)),
            key=f"{key}_system",
            label_visibility="collapsed",
        )
    elif what == "model":
        others = [name for name in usable_models() if name != first.model.name]
        st.selectbox(
            "Model",
            others,
            format_func=lambda name: model_of(name).title or name,
            key=f"{key}_model",
            label_visibility="collapsed",
        )
    elif what == "datatype":
        st.selectbox(
            "Datatype",
            [name for name in datatypes_of(first) if name != first.datatype],
            key=f"{key}_datatype",
            format_func=lambda name: choice_label("datatype", name),
            label_visibility="collapsed",
        )
    elif what == "cost_model":
        st.selectbox(
            "Cost model",
            [name for name in COST_MODELS if name != first.cost_model],
            key=f"{key}_cost_model",
            format_func=str.capitalize,
            label_visibility="collapsed",
        )
    else:
        which = every[what]
        label, low = f"{which.label} [{which.unit}]", 0.0 if which.can_be_off else which.lowest
        start, shown = min(which.value * 2, which.highest), f"{key}_{what}"
        if which.discrete:
            whole_field(label, int(low), int(which.highest), start, shown, label_visibility="collapsed")
        else:
            st.number_input(label, low, which.highest, start, key=shown, label_visibility="collapsed")
    st.button(
        "Add",
        key="compare_add_variant",
        type="primary",
        width="stretch",
        on_click=_add_variant,
        args=(first, what, f"{key}_{what}", slots),
    )


def _add_and_close(how: Callable[[Any, Slots], None], what: Any, slots: Slots) -> None:
    how(what, slots)
    shut(_MENU)  # it would cover the comparison


def _add_variant(first: Scenario, what: str, key: str, slots: Slots, given: str | None = None) -> None:
    """Add A with another value of `what`: the one given, else that of the widget `key`."""
    value = st.session_state.get(key) if given is None else given
    if value is None:
        return
    makers: dict[str, Callable[[], Scenario]] = {
        "system": lambda: _scenario_on(first, system_of(str(value))),
        "model": lambda: altered(first, model=model_of(str(value))),
        "datatype": lambda: altered(first, datatype=str(value)),
        "cost_model": lambda: altered(first, cost_model=str(value)),
    }
    try:
        if what in makers:
            made = makers[what]()
            _ = made.space
            add(made, slots)
        else:
            changes = {what: float(whole(float(value)) if whatif.parameter(first, what).discrete else value)}
            _ = whatif.changed(first, changes).space
            add_changes(changes, slots)
        shut(_MENU)
    except ValueError as problem:  # every refusal of models, hardware and engine is one
        st.toast(literal(str(problem)), icon=":material/error:")


def _scenario_on(first: Scenario, system: System) -> Scenario:
    """The scenario on another system, without limits on networks it may not have."""
    limits = {name: limit for name, limit in first.field_limits.items() if not name.endswith("_net")}
    datatype = first.datatype if system.has_rate(first.datatype) else next(iter(system.matrix))
    return altered(first, system=system, datatype=datatype, limits=limits)


def _draw_kept_scenarios(first: Scenario, slots: Slots) -> None:
    """Saved and explored scenarios."""
    found = {
        entry.ident: entry
        for entry in entries(user_files(), explorations())[:_MOST]
        if entry.scenario is not None and entry.key != first.key and not entry.problem
    }
    if not found:
        return

    def shown(ident: str) -> str:
        entry = found[ident]
        if entry.saved is not None or entry.scenario is None:
            return entry.title
        # What tells it from others first: the list is not wide.
        return f"{sentence_of(entry.scenario)} · {name_of(entry.scenario)}"

    st.selectbox(
        "Saved or explored before",
        list(found),
        format_func=shown,
        key="compare_entry",
        index=None,
        placeholder="Choose one",
    )
    chosen = st.session_state.get("compare_entry")
    scenario = found[chosen].scenario if chosen in found else None
    if scenario is not None:
        st.button(
            "Add this one",
            key="compare_add_entry",
            width="stretch",
            on_click=_add_and_close,
            args=(add, scenario, slots),
        )
