"""The user's own plan, evaluated like the planner's."""

from __future__ import annotations

import json

import streamlit as st

from dashboard.words.markdown import literal
from dashboard.words.numbers import plain, relative
from engine.planners.contract import PlanError
from engine.planners.layerwise import LayerwisePlan
from engine.planners.layerwise.own_stages import valued
from engine.planners.layerwise.strategy import user_stages

__all__ = ["own_plan"]

EXAMPLE = '[{"start": 0, "end": 30, "devices": [0, 1]}, {"start": 30, "end": 55, "devices": [2, 3]}]'
MOST = 200_000


def own_plan(plan: LayerwisePlan) -> None:
    """Draws the field for a plan, and its value next to the planner's."""
    with st.popover("Compare with your plan", icon=":material/compare_arrows:"):
        st.caption("A strategy as Export writes it, or its list of stages with half-open ranges and devices.")
        text = st.text_area("Plan (JSON)", key="layerwise_own", placeholder=EXAMPLE, max_chars=MOST, height=140)
    if not text:
        return
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        st.warning("The plan is not JSON.", icon=":material/error:")
        return
    try:
        assert plan.states is not None
        value = valued(plan, user_stages(document, plan.problem.cluster.size, len(plan.states)))
    except PlanError as problem:
        st.warning(literal(str(problem)), icon=":material/error:")
        return
    change = relative(value, plan.speedup)
    st.markdown(literal(f"Your plan: a speedup of {plain(value, 4)}, {change} against the planner’s."))
