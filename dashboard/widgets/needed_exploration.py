"""Page content while its exploration is running, after it failed, and if there is nothing to show."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

import streamlit as st

from dashboard.compat.session import give_way, in_browser
from dashboard.jobs.board import BoardFull
from dashboard.jobs.explorations import ExplorationJob
from dashboard.jobs.server import explorations, server
from dashboard.jobs.turns import turns
from dashboard.link.figures import FiguresView, parse_figures
from dashboard.link.open_sessions import is_open
from dashboard.link.shared import parse_shared
from dashboard.link.state import watcher
from dashboard.queries.figures import choose_before_exploring
from dashboard.queries.frameworks import framework_cost, model_refusal
from dashboard.widgets.answer import AnswerSlot, draw_answer
from dashboard.widgets.frameworks import draw_nothing_runs_there
from dashboard.widgets.job_card import job_card, watch
from dashboard.words.markdown import literal
from engine import Exploration, Scenario
from engine.cost_models.registry import cost_model_of
from engine.executions.frameworks.registry import ANY
from engine.recommendation import ShownExecution
from models import dimensions

__all__ = [
    "PendingExploration",
    "begin_ahead",
    "begin_exploration",
    "exploration_of",
    "explorations_of",
    "require_exploration",
    "seen_with",
    "wait_above_page",
    "wait_for_exploration",
]

_WITH_ANSWER: Final = 5.0
"""Time that a page waits for the map below its answer before it shows progress in place of the map before [s]."""
_GLANCE: Final = 0.02
"""Interval between looks at the search and the exploration while a page waits for both [s]."""


class PendingExploration(NamedTuple):
    """Exploration that a page waits for, with the answer to show meanwhile."""

    scenario: Scenario
    figures: FiguresView
    """Choice of the execution whose figures are shown."""
    watcher: str

    def answer(self) -> tuple[ShownExecution, float] | None:
        """Return the execution whose figures are shown, and the throughput of the fastest [samples/s], as soon as they
        are proven; None before."""
        found = choose_before_exploring(self.scenario, self.figures.question)
        return None if found is None or found[0].shown is None else (found[0].shown, found[1])


def begin_exploration(scenario: Scenario, figures: FiguresView, watcher: str) -> Exploration | PendingExploration:
    """Return the exploration of the scenario that a session looks at, or a pending one; stop the page with the
    reason without.

    The search for its recommendation begins too, and what the session looked at before is given up.
    """
    job = _request(scenario, watcher, looks=True)
    _begin_search(job, scenario, figures, watcher)
    if not job.ended:
        return PendingExploration(scenario, figures, watcher)
    return _take(job, scenario, watcher)


def begin_ahead(scenario: Scenario, figures: FiguresView, watcher: str) -> None:
    """Begin an exploration and the search for its recommendation, before the elements above the page are drawn; what
    keeps it from beginning is said when the page asks for it."""
    if scenario.framework == ANY or not model_refusal(scenario):
        with suppress(BoardFull):
            job = explorations().look_at(scenario, watcher, is_open)
            _begin_search(job, scenario, figures, watcher)


def _begin_search(job: ExplorationJob, scenario: Scenario, figures: FiguresView, watcher: str) -> None:
    """Begin to search a large space for the recommendation; of a small one the rows answer sooner."""
    searches = server().recommendations
    if searches.is_worthwhile(scenario) and not (job.ended and job.exploration is None):
        searches.begin(scenario, figures.question, watcher, is_open)
    else:
        searches.follow(scenario, figures.question, watcher, is_open)


def wait_for_exploration(
    pending: PendingExploration, draw_answer: Callable[[ShownExecution, float], None]
) -> Exploration:
    """Return an exploration once it is there. Shows the answer as soon as it is proven, then, should the exploration
    take longer, how far it is, and stops the page.

    What the page showed before stays below the answer while this waits; another request of the browser ends the wait.

    draw_answer: draws the execution whose figures are shown, with the throughput of the fastest [samples/s].
    """
    job, is_answered = _request(pending.scenario, pending.watcher), False
    latest = time.monotonic() + server().board.patience
    with turns.aside():
        while True:
            # The order matters: an answer that comes with the end of the exploration is still shown before the map.
            job.wait(_GLANCE)
            if not is_answered and (found := pending.answer()) is not None:
                draw_answer(*found)
                is_answered = True
                if in_browser() and server().board.patience > 0:
                    latest = time.monotonic() + _WITH_ANSWER
            if job.ended or time.monotonic() > latest:
                break
            give_way()
    if not job.ended:
        watch(job, pending.watcher, until=None if is_answered else lambda: pending.answer() is not None)
        st.stop()
    return _take(job, pending.scenario, pending.watcher)


def exploration_of(scenario: Scenario, watcher: str) -> Exploration:
    """Return the exploration of a scenario; stop the page with the reason if it is missing or not ready."""
    job = _request(scenario, watcher)
    with turns.aside():
        job.wait(job.board.patience)
    if not job.ended:
        watch(job, watcher)
        st.stop()
    return _take(job, scenario, watcher)


def _request(scenario: Scenario, watcher: str, *, looks: bool = False) -> ExplorationJob:
    """Return the job of a scenario; stop the page with the reason without one.

    looks: the session looks at this scenario, and no longer at the one before.
    """
    if scenario.framework != ANY and (refused := model_refusal(scenario)):
        draw_nothing_runs_there(refused)
        st.stop()
    try:
        if looks:
            return explorations().look_at(scenario, watcher, is_open)
        return explorations().request(scenario, watcher)
    except BoardFull as problem:
        st.warning(literal(str(problem)), icon=":material/hourglass_empty:")
        st.button("Try again", icon=":material/refresh:")
        st.stop()


def _take(job: ExplorationJob, scenario: Scenario, watcher: str) -> Exploration:
    """Return the exploration of an ended job; stop the page with the reason without one."""
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


def require_exploration() -> Exploration | PendingExploration:
    """Returns the exploration of the current scenario, or a pending one; stops the page with the reason without."""
    return begin_exploration(parse_shared().scenario, parse_figures(), watcher())


def wait_above_page(pending: PendingExploration) -> Exploration:
    """Return an exploration once it is there. Shows its answer and its progress above the page, which stops without."""
    slot = AnswerSlot(st.container())
    tokens = pending.figures.tokens_to_train

    def draw(shown: ShownExecution, fastest: float) -> None:
        draw_answer(slot, pending.scenario, shown, fastest, tokens)

    return wait_for_exploration(pending, draw)
