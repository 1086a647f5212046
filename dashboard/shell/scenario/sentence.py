"""The scenario as one sentence whose words open the widgets that change it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import streamlit as st

import hardware
import models
from dashboard.compat.types import Place
from dashboard.jobs.server import explorations
from dashboard.link import scenario_parameters, state
from dashboard.link.catalogue import model_of, system_of, systems, usable_models
from dashboard.link.document_validation import Refused
from dashboard.link.figures import FiguresView
from dashboard.queries import scenario_edits
from dashboard.queries.scenario_edits import altered, scenario_with
from dashboard.shell.scenario import cost_model, sizes
from dashboard.shell.scenario import limits as limits_editor
from dashboard.widgets import share
from dashboard.widgets.controls import given, key_for
from dashboard.widgets.figures import draw_figures_choice
from dashboard.widgets.model_file import draw_model_field
from dashboard.words import limits, scenarios
from dashboard.words.amounts import format_tokens
from dashboard.words.markdown import literal
from dashboard.words.numbers import capacity_words, counted, plain, with_unit
from dashboard.words.scenarios import system_name
from engine import Scenario
from engine.columns import by_name, choice_label
from engine.executions.frameworks.registry import ANY, FRAMEWORK_RULES, FRAMEWORK_WORDS
from engine.executions.limits import FRAMEWORK, options_of

__all__ = ["choose", "show", "tell_size"]

_OWN: Final = "own models"


def show(scenario: Scenario, figures: FiguresView, *, has_choice: bool = False) -> Place:
    """Draw the sentence of the scenario; return the slot of its last words, for `tell_size`.

    figures: the execution whose figures are shown, and the tokens to train. has_choice: the sentence has the choice of
    that execution, on pages that follow it and have it nowhere else.
    """
    model, system = scenario.model, scenario.system
    bar = st.container(horizontal=True, gap="xsmall", key="bar", vertical_alignment="center")
    with bar.container(horizontal=True, gap="xxsmall", key="sentence", vertical_alignment="center"):
        _draw_word("Train")
        with _draw_slot("Model", model.title or model.name, "What is trained."):
            _draw_choice("model", "Model", _of_family(model), model.name, lambda name: _model_title(model_of(name)))
            st.caption(_model_line(model))
            _draw_own_model()
        _draw_word("on")
        with _draw_slot("GPUs", f"{scenario.num_procs:,}", by_name("num_procs").description):
            sizes.draw_gpus(scenario)
        _draw_word("×")
        with _draw_slot("System", _short_system_name(system), "Which GPUs, and how they are connected."):
            _draw_choice("system", "System", systems(), system.name, lambda name: system_name(system_of(name)))
            st.caption(_system_line(system))
            sizes.draw_node(system)
        _draw_word("in")
        with _draw_slot("Datatype", choice_label("datatype", scenario.datatype), by_name("datatype").description):
            options = {name: choice_label("datatype", name) for name in scenario_edits.datatypes_of(scenario)}
            _draw_choice("type", "Datatype", list(options), scenario.datatype, lambda name: options.get(name, name))
        _draw_word("with a batch of")
        with _draw_slot("Batch", sizes.batch_words(scenario), by_name("batch_size").description):
            sizes.draw_batch(scenario)
        _draw_word("for")
        with _draw_slot("Tokens", format_tokens(figures.tokens_to_train), "How many tokens are trained."):
            sizes.draw_tokens(figures)
        if FRAMEWORK in options_of(scenario.cost_model):
            _draw_word("·")
            with _draw_slot("Framework", _framework_title(scenario.framework), "Which framework runs it."):
                _draw_framework(scenario)
        _draw_word("·")
        limits_editor.opener(scenario, limits.describe(sizes.other_limits(scenario), system))
        _draw_word("·")
        with _draw_slot("Cost model", scenarios.in_words(scenario), "Computes times and memory."):
            cost_model.slot(scenario)
        if has_choice:
            _draw_word("· figures of")
            chosen = figures.choice.options[figures.choice.value]
            with _draw_slot("Figures of", chosen, "Execution whose figures tiles, cells and pages show."):
                draw_figures_choice(figures)
    with bar.container(
        horizontal=True, gap="xxsmall", key="bar_end", vertical_alignment="center", width="content", wrap=False
    ):
        place = st.container(width="content")
        share.opener(scenario)
    cost_model.notice(scenario)
    if left_out := models.unrepresented(model):
        st.caption(literal(f"Not represented: {' '.join(left_out)}"))
    return place


def tell_size(place: Place, scenario: Scenario) -> None:
    """Add the number of evaluated executions and their time at the end of a run."""
    job = explorations().find(scenario.key)
    text = counted(scenario.space.total, "execution")
    if job is not None and job.exploration is not None:
        seconds = job.exploration.timings.get("explore")
        text += f" · {with_unit(plain(seconds, 2), 's')}" if seconds else ""
    place.markdown(f":gray[{literal(text)}]", width="content")


def _draw_word(text: str) -> None:
    st.markdown(text, width="content")


def _draw_slot(name: str, text: str, tooltip: str) -> Place:
    """Draw a slot of the sentence. name: its label for screen readers."""
    return st.popover(f":gray[{name}:] :blue[**{literal(text)}**]", type="tertiary", help=tooltip)


def _short_system_name(system: hardware.System) -> str:
    """Return the name of a system in the sentence: its accelerator, marked if edited."""
    return system_name(system).partition(", ")[0] + (", edited" if system.derived_from else "")


def _of_family(now: models.Model) -> list[str]:
    """Draw the choice of a family; return the names of its models, or all models by family."""
    every = usable_models()
    families = list(dict.fromkeys(model_of(name).family or _OWN for name in every))
    chosen = st.selectbox("Family", families, None, key="sentence_family", placeholder="All families")
    if chosen is None:
        return every
    return [name for name in every if (model_of(name).family or _OWN) == chosen or name == now.name]


def _model_title(model: models.Model) -> str:
    return model.title or model.name


def _model_line(model: models.Model) -> str:
    """Return a line on the size of a model: blocks, and experts if it has any."""
    sizes = models.dimensions(model)
    text = f"{sizes.num_blocks:,} blocks · hidden {sizes.hidden:,} · {sizes.attn_heads:,} heads"
    if sizes.experts > 0:
        text += f" · {sizes.experts:,} experts, {sizes.experts_per_token:,} per token"
    return f"{text} · sequence {model.seq_size:,}"


def _system_line(system: hardware.System) -> str:
    tiers = " · ".join(
        f"{name}, {net.size:,} at {plain(net.bandwidth_gb_per_s)} GB/s"
        for name, net in zip(hardware.network_names(system), system.networks, strict=True)
    )
    host = f", {capacity_words(system.mem2.capacity_gib)} host memory" if system.mem2.capacity_gib else ""
    return literal(f"{capacity_words(system.mem1.capacity_gib)} HBM{host} · networks: {tiers}")


def _draw_choice(name: str, label: str, options: list[str], value: str, shown: Callable[[str], str]) -> None:
    here = options if value in options else [value, *options]
    key = key_for(f"sentence_{name}", value)
    st.selectbox(
        label,
        here,
        here.index(value),
        key=key,
        format_func=shown if value in options else str,
        on_change=_change_slot,
        args=(name, key),
    )


def _framework_title(name: str) -> str:
    return "any framework" if name == ANY else FRAMEWORK_RULES[name].title


def _draw_framework(scenario: Scenario) -> None:
    key = key_for("sentence_framework", scenario.framework)
    st.radio(
        "Framework",
        FRAMEWORK_WORDS,
        FRAMEWORK_WORDS.index(scenario.framework),
        key=key,
        format_func=lambda name: "Any" if name == ANY else FRAMEWORK_RULES[name].title,
        on_change=_change_slot,
        args=("framework", key),
    )
    st.caption("Executions that it does not run are not searched.")


def _draw_own_model() -> None:
    """Draw the field for a model file; a model in it replaces the one of the sentence with one click."""
    found = draw_model_field("sentence_model_file")
    if found is None:
        return
    st.caption(literal(_model_line(found)))

    def use() -> None:
        try:
            state.change_scenario(lambda now: scenario_parameters.carried(scenario_with(now, found)))
        except Refused as problem:
            st.toast(literal(str(problem)), icon=":material/error:")

    st.button(
        f"Train {literal(found.title or found.name)}",
        type="primary",
        icon=":material/play_arrow:",
        key="sentence_model_use",
        on_click=use,
    )


def _change_slot(name: str, widget: str) -> None:
    """Apply a changed slot. widget: key of the widget that changed."""
    value = given(widget)
    if value is not None:
        choose(name, value)


def choose(name: str, value: Any) -> None:
    """Change a part of the scenario as its menu does, or say why that is refused.

    name: of the part, such as "model". value: such as the name of a model.
    """
    try:
        state.change_scenario(lambda now: _with_slot(now, name, value))
    except ValueError as problem:  # every refusal of models, hardware and engine is one
        st.toast(literal(str(problem)), icon=":material/error:")


def _with_slot(now: Scenario, name: str, value: Any) -> Scenario:
    """Return the scenario with another value of a slot; the same if that makes no difference."""
    changes: dict[str, Any] = {}
    if name == "model":
        changes["model"] = model_of(value)
    elif name == "system":
        system = changes["system"] = system_of(value)
        changes["limits"] = {field: limit for field, limit in now.field_limits.items() if not field.endswith("_net")}
        if not system.has_rate(now.datatype):
            changes["datatype"] = system.closest_datatype(now.datatype)
    else:
        changes[{"type": "datatype", "framework": "framework"}[name]] = str(value)
    changed = altered(now, **changes)
    if changed.cost_model != now.cost_model:
        changed = scenario_edits.switch_cost_model(changed, changed.cost_model)
    _ = changed.space
    if changed.key == now.key:  # the selected execution stays
        return now
    if changed.cost_model != now.cost_model:
        st.toast(f"Cost model: {scenarios.in_words(changed)}.", icon=":material/straighten:")
    return changed
