"""Page content while its exploration is running, after it failed, and if there is nothing to show."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import streamlit as st

from dashboard.jobs.board import BoardFull
from dashboard.jobs.server import explorations
from dashboard.jobs.turns import turns
from dashboard.link.shared import parse_shared
from dashboard.link.state import watcher
from dashboard.queries.frameworks import framework_cost, model_refusal
from dashboard.widgets.frameworks import draw_nothing_runs_there
from dashboard.widgets.job_card import job_card, watch
from dashboard.words.markdown import literal
from engine import Exploration, Scenario
from engine.cost_models.registry import cost_model_of
from engine.executions.frameworks.registry import ANY
from models import dimensions

__all__ = ["exploration_of", "explorations_of", "require_exploration", "seen_with"]


def exploration_of(scenario: Scenario, watcher: str) -> Exploration:
    """Return the exploration of a scenario; stop the page with the reason if it is missing or not ready."""
    if scenario.framework != ANY and (refused := model_refusal(scenario)):
        draw_nothing_runs_there(refused)
        st.stop()
    server = explorations()
    try:
        job = server.request(scenario, watcher)
    except BoardFull as problem:
        st.warning(literal(str(problem)), icon=":material/hourglass_empty:")
        st.button("Try again", icon=":material/refresh:")
        st.stop()
    with turns.aside():
        job.wait(server.board.patience)
    if not job.ended:
        watch(job, watcher)
        st.stop()
    if not job.shown:
        turns.after_others()
        job.shown = True
    if job.exploration is None:
        job_card(job, watcher)
        st.stop()
    if job.exploration.total == 0:
        _explain_empty_space(scenario)
        st.stop()
    return seen_with(job.exploration, scenario)


def explorations_of(scenarios: Sequence[Scenario], watcher: str) -> list[Exploration]:
    """Returns the explorations of several scenarios; asks for all at once, and waits for one after the other."""
    for scenario in scenarios:
        try:
            explorations().request(scenario, watcher)
        except BoardFull:
            break
    return [exploration_of(scenario, watcher) for scenario in scenarios]


def seen_with(exploration: Exploration, scenario: Scenario) -> Exploration:
    """Return an exploration under the requested scenario, which may differ in names, prices and sources: pages show
    these, and results do not depend on them."""
    if exploration.scenario == scenario:
        return exploration
    rows = exploration.rows  # opened once, for all copies
    found = copy.copy(exploration)
    found.scenario = scenario
    assert found.rows is rows
    return found


def _explain_empty_space(scenario: Scenario) -> None:
    """Explain an empty space, and the changes that would fill it."""
    if scenario.framework != ANY and (cost := framework_cost(scenario, scenario.key, scenario.framework)) is not None:
        draw_nothing_runs_there(cost.sentence)
        return
    model, procs, shapes = scenario.model, scenario.num_procs, dimensions(scenario.model)
    share = "PP has to divide" if cost_model_of(scenario).even_pipelines else "PP must not exceed"
    st.info(
        literal(
            f"There is no way to run {model.title or model.name} on {procs:,} GPUs with these limits. "
            f"TP has to divide the {shapes.attn_heads:,} heads and the hidden size of {shapes.hidden:,}, "
            f"{share} the {shapes.num_blocks:,} blocks, TP × PP × DP has to "
            f"be {procs:,}, and DP must not exceed the batch of {scenario.max_batch_size:,}. "
            "Another number of GPUs, a larger batch or fewer limits would help."
        ),
        icon=":material/search_off:",
    )


def require_exploration() -> Exploration:
    """Returns the exploration of the current scenario. Shows its progress, failure or emptiness and stops the page
    without."""
    return exploration_of(parse_shared().scenario, watcher())
