"""The scenario as one sentence whose words open the widgets that change it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

import hardware
import models
from dashboard import limits_editor, share, state
from dashboard.format import count, plain
from dashboard.library import model_of, system_name, system_of, systems, usable_models
from dashboard.server import runner
from dashboard.text import literal
from engine import Scenario
from engine.columns import by_name, choice_label
from engine.execution import LARGEST

__all__ = ["show", "tell_size"]

PROCESSORS: Final = (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
BATCHES: Final = (64, 128, 256, 512, 1024, 1536, 2048, 4096)


def show() -> DeltaGenerator:
    """Draws the sentence; returns the place of its last words, for `tell_size`."""
    scenario = state.current_scenario()
    model, system = scenario.model, scenario.system
    bar = st.container(horizontal=True, gap="xsmall", key="bar", vertical_alignment="center")
    with bar.container(horizontal=True, gap="xxsmall", key="sentence", vertical_alignment="center"):
        _word("Train")
        with _slot(model.title or model.name, "Model: what is trained."):
            _choose("model", "Model", usable_models(), model.name, lambda name: _title(model_of(name)))
            st.caption(f"{model.num_blocks:,} blocks · hidden {model.hidden:,} · {model.attn_heads:,} heads · "
                       f"sequence {model.seq_size:,}")  # fmt: skip
        _word("on")
        with _slot(f"{scenario.num_procs:,}", by_name("num_procs").description):
            _number("procs", "GPUs", PROCESSORS, scenario.num_procs)
        _word("×")
        with _slot(system_name(system), "System: which GPUs, and how they are connected."):
            _choose("system", "System", systems(), system.name, lambda name: system_name(system_of(name)))
            st.caption(_system_line(system))
        _word("in")
        with _slot(choice_label("datatype", scenario.datatype), by_name("datatype").description):
            options = {name: choice_label("datatype", name) for name in system.matrix}
            _choose("type", "Datatype", list(options), scenario.datatype, lambda name: options.get(name, name))
        _word("with a batch of")
        with _slot(f"{scenario.max_batch_size:,} × {model.seq_size:,} tokens", by_name("batch_size").description):
            _number("batch", "Sequences per step, at most", BATCHES, scenario.max_batch_size)
            st.caption("Each data parallel degree uses its largest multiple that is not above this.")
        _word("·")
        limits_editor.opener(limits_editor.describe(scenario.limits))
    with bar.container(horizontal=True, gap="xxsmall", key="bar_end", vertical_alignment="center", width="content",
                       wrap=False):  # fmt: skip
        place = st.container(width="content")
        share.opener()
    return place


def tell_size(place: DeltaGenerator) -> None:
    """Adds, at the end of a run, how many executions were evaluated and how long that took."""
    scenario = state.current_scenario()
    job = runner().find(scenario.key)
    text = f"{count(scenario.space.total)} executions"
    if job is not None and job.exploration is not None:
        seconds = job.exploration.timings.get("explore")
        text += f" · {plain(seconds, 2)} s" if seconds else ""
    place.markdown(f":gray[{literal(text)}]", width="content")


def _word(text: str) -> None:
    st.markdown(text, width="content")


def _slot(text: str, tooltip: str) -> DeltaGenerator:
    return st.popover(f":blue[**{literal(text)}**]", type="tertiary", help=tooltip)


def _title(model: models.Model) -> str:
    return model.title or model.name


def _system_line(system: hardware.System) -> str:
    tiers = " · ".join(f"{net.size:,} at {plain(net.bandwidth_gb_per_s)} GB/s" for net in system.networks)
    host = f", {plain(system.mem2.capacity_gib)} GiB host memory" if system.mem2.capacity_gib else ""
    return literal(f"{plain(system.mem1.capacity_gib)} GiB HBM{host} · networks: {tiers}")


def _choose(name: str, label: str, options: list[str], value: str, shown: Callable[[str], str]) -> None:
    key = f"sentence_{name}"
    here = options if value in options else [value, *options]
    st.session_state[key] = value
    st.selectbox(label, here, key=key, format_func=shown if value in options else str, on_change=_changed, args=(name,))


def _number(name: str, label: str, suggestions: tuple[int, ...], value: int) -> None:
    key = f"sentence_{name}"
    st.session_state[key] = value
    st.number_input(label, 1, LARGEST, key=key, step=1, on_change=_changed, args=(name,))
    st.session_state[f"{key}_pick"] = value if value in suggestions else None
    st.pills(
        "Suggestions", suggestions, key=f"{key}_pick", format_func=lambda number: f"{number:,}",
        on_change=_changed, args=(name, "_pick"), label_visibility="collapsed", width=300,
    )  # fmt: skip


def _changed(name: str, part: str = "") -> None:
    """Takes over one changed slot."""
    value = st.session_state[f"sentence_{name}{part}"]
    if value is None:
        return
    now = state.current_scenario()
    model, system, datatype = now.model, now.system, now.datatype
    limits = now.limits
    procs, batch = now.num_procs, now.max_batch_size
    try:
        if name == "model":
            model = model_of(value)
        elif name == "system":
            system = system_of(value)
            limits = {field: limit for field, limit in limits.items() if not field.endswith("_net")}
            if datatype not in system.matrix:
                datatype = next(iter(system.matrix))
        elif name == "type":
            datatype = str(value)
        elif name == "procs":
            procs = int(value)
        else:
            batch = int(value)
        changed = Scenario.of(
            model, system, num_procs=procs, max_batch_size=batch, datatype=datatype, limits=limits
        )
        _ = changed.space
    except ValueError as problem:  # every refusal of models, hardware and engine is one
        st.toast(literal(str(problem)), icon=":material/error:")
        return
    state.set_scenario(changed)
