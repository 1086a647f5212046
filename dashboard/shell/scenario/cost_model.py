"""Slot of the scenario sentence for the cost model and its calibration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Final

import streamlit as st

import hardware
from dashboard.link import scenario_parameters, state
from dashboard.link.catalogue import system_of
from dashboard.link.examples import EXAMPLES
from dashboard.link.page_links import START
from dashboard.link.user_files import user_files
from dashboard.queries.scenario_edits import altered, on_same_accelerator, switch_cost_model
from dashboard.widgets.controls import given, key_for
from dashboard.words.markdown import literal
from dashboard.words.numbers import percent
from engine import Scenario
from engine.columns import MFU_OF, TFLOPS_OF
from engine.cost_models.registry import COST_MODELS, cost_model_of
from hardware import Calibration, SystemFileError
from models.token_flops import Convention

__all__ = ["notice", "slot"]

_LIBRARY: Final = ""
_COUNTED: Final[Mapping[Convention, str]] = {"causal": "Causal", "full": "Full"}
"""Conventions of attention on screen."""
_ACCELERATOR: Final = "h100_80g_sxm"
"""Accelerator of the example system from Calculon."""


def notice(scenario: Scenario) -> None:
    """Show a notice on systems taken from a reference, with a switch to realistic figures."""
    cost_model = cost_model_of(scenario)
    if not cost_model.reference or scenario.system.cost_model != cost_model.name:
        return
    if scenario.key not in _example_keys():
        return
    with st.container(horizontal=True, gap="small", vertical_alignment="center", key="cost_notice"):
        st.caption(
            f"Cost model: {cost_model.reference}. For realistic numbers use the calibrated model.", width="content"
        )
        st.button("Switch to the calibrated model", type="tertiary", key="cost_switch", on_click=_use_calibrated_model)


@lru_cache(maxsize=1)
def _example_keys() -> frozenset[str]:
    """The scenarios that visitors are offered to start with."""
    return frozenset(
        scenario_parameters.read_scenario(each.parameters).scenario.key for each in EXAMPLES if each.page == START
    )


def _use_calibrated_model() -> None:
    _set_scenario(lambda now: altered(now, system=system_of(_ACCELERATOR)))


def slot(scenario: Scenario) -> None:
    """Draw the widgets for the cost model and its calibration."""
    key = key_for("sentence_cost", scenario.cost_model)
    st.radio(
        "Cost model",
        list(COST_MODELS),
        list(COST_MODELS).index(scenario.cost_model),
        key=key,
        on_change=_change_cost_model,
        args=(key,),
        format_func=lambda name: f"{name}: {COST_MODELS[name].words.summary}",
        help="\n\n".join(each.words.description for each in COST_MODELS.values() if each.words.description),
    )
    _draw_attention(scenario)
    cost_model = cost_model_of(scenario)
    if not cost_model.takes_calibration:
        if scenario.system.cost_model == cost_model.name and cost_model.reference:
            its = f"{cost_model.reference.split()[0]}'s"
            st.caption(f"This system is {its} own description, whose efficiencies are meant for {its} model.")
        return
    found = _usable_calibrations(scenario)
    now = scenario.calibration.name if scenario.calibration is not None else _LIBRARY
    key = key_for("sentence_calibration", now)
    st.selectbox(
        "Calibration",
        list(found),
        list(found).index(now),
        key=key,
        on_change=_change_calibration,
        args=(key,),
        format_func=lambda name: literal(name) if name else f"{_library_calibration(scenario).name}, the library's",
        help="Parameters of the cost model. The page Calibrate fits them to your own runs.",
    )
    used = scenario.used_calibration
    st.caption(literal(f"{used.title or used.name}, of {used.date}. {_error_sentence(used)}"))


def _draw_attention(scenario: Scenario) -> None:
    """Draw the switch between the conventions in which MFU and TFLOP/s count attention."""
    key = key_for("sentence_attention", scenario.flop_convention)
    st.segmented_control(
        "MFU and TFLOP/s count attention",
        list(_COUNTED),
        default=scenario.flop_convention,
        key=key,
        on_change=_change_attention,
        args=(key, scenario.flop_convention, cost_model_of(scenario).flop_convention),
        required=True,
        format_func=_COUNTED.__getitem__,
        help="Causal leaves out products that the mask discards, as Megatron does. Full counts them, as PaLM does. "
        "Step times do not depend on it.",
    )


def _change_attention(widget: str, now: Convention, plain: Convention) -> None:
    """Write the chosen convention to the link. plain: that of the cost model, which links do not name."""
    chosen = given(widget)
    if chosen not in _COUNTED or chosen == now:
        return
    shown = state.link_parameters().get("metric", "")
    siblings = next((each for each in (MFU_OF, TFLOPS_OF) if shown in each.values()), None)
    metric = {} if siblings is None else {"metric": siblings[chosen]}  # the map follows
    state.set_url_values({"attention": None if chosen == plain else chosen, **metric})


def _library_calibration(scenario: Scenario) -> Calibration:
    """Return the default calibration."""
    return replace(scenario, calibration=None).used_calibration


def _error_sentence(calibration: Calibration) -> str:
    """Return a sentence on the error of a calibration on held-out rows."""
    unseen = [error for error in calibration.errors if error.held_out and not error.accelerator]
    if not unseen:
        return "Its errors are not recorded."
    return f"Mean error on {unseen[0].rows:,} unseen runs: {percent(unseen[0].mean_absolute_percent / 100)}."


def _usable_calibrations(scenario: Scenario) -> dict[str, Calibration | None]:
    """Return the calibrations for the scenario by name; the default one under the empty name."""
    found: dict[str, Calibration | None] = {_LIBRARY: None}
    named = [name for name in hardware.calibration_names() if name != _library_calibration(scenario).name]
    kept = [*(hardware.load_calibration(name) for name in named), *user_files().calibrations().values()]
    found |= {each.name: each for each in kept if _is_applicable(each, scenario)}
    if scenario.calibration is not None:
        found.setdefault(scenario.calibration.name, scenario.calibration)
    return found


def _is_applicable(calibration: Calibration, scenario: Scenario) -> bool:
    """Return whether a calibration is for all systems, or for one with the scenario's accelerator."""
    if calibration.system in ("", scenario.system.name):
        return True
    try:
        return on_same_accelerator(system_of(calibration.system), scenario.system)
    except SystemFileError:
        return False


def _change_cost_model(widget: str) -> None:
    chosen = str(given(widget))
    _set_scenario(lambda now: switch_cost_model(now, chosen))


def _change_calibration(widget: str) -> None:
    chosen = given(widget)

    def made(now: Scenario) -> Scenario:
        return altered(now, calibration=_usable_calibrations(now).get(chosen))

    _set_scenario(made)


def _set_scenario(make: Callable[[Scenario], Scenario]) -> None:
    def changed(now: Scenario) -> Scenario:
        made = make(now)
        _ = made.space
        return now if made.key == now.key else made

    try:
        state.change_scenario(changed)
    except ValueError as problem:  # every refusal of models, hardware and engine is one
        st.toast(literal(str(problem)), icon=":material/error:")
