"""The scenario as one sentence whose words open the widgets that change it."""

from __future__ import annotations

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

import hardware
import models
from dashboard import state
from dashboard.text import literal
from engine import Scenario
from engine.columns import choice_label

__all__ = ["show", "tell_size"]


def show() -> None:
    """Draws the sentence."""
    scenario = state.current_scenario()
    with st.container(horizontal=True, gap="xxsmall", key="sentence", vertical_alignment="center"):
        st.markdown("Train", width="content")
        with _slot(scenario.model.title or scenario.model.name):
            _choose("model", models.names(), scenario.model.name, "Model")
        st.markdown("on", width="content")
        with _slot(f"{scenario.num_procs:,}"):
            st.session_state["sentence_procs"] = scenario.num_procs
            st.number_input("GPUs", 1, key="sentence_procs", on_change=_change)
        st.markdown("×", width="content")
        with _slot(scenario.system.title or scenario.system.name):
            _choose("system", hardware.names(), scenario.system.name, "System")
        st.markdown("in", width="content")
        with _slot(choice_label("datatype", scenario.datatype)):
            _choose("type", list(scenario.system.matrix), scenario.datatype, "Datatype")
        st.markdown("with a batch of", width="content")
        with _slot(f"{scenario.max_batch_size:,} × {scenario.model.seq_size:,} tokens"):
            st.session_state["sentence_batch"] = scenario.max_batch_size
            st.number_input("Largest batch", 1, key="sentence_batch", on_change=_change)


def _slot(text: str) -> DeltaGenerator:
    return st.popover(f":blue[**{literal(text)}**]", type="tertiary")


def _choose(name: str, options: list[str], value: str, label: str) -> None:
    st.session_state[f"sentence_{name}"] = value
    st.selectbox(label, options, key=f"sentence_{name}", on_change=_change)


def _change() -> None:
    now, given = state.current_scenario(), st.session_state
    system = hardware.load(given["sentence_system"])
    datatype = given["sentence_type"] if given["sentence_type"] in system.matrix else next(iter(system.matrix))
    state.set_scenario(
        Scenario.of(
            given["sentence_model"], system, num_procs=given["sentence_procs"],
            max_batch_size=given["sentence_batch"], datatype=datatype, limits=now.limits,
        )
    )  # fmt: skip


def tell_size() -> None:
    """Adds, at the end of a run, how many executions were evaluated and how long it took."""
