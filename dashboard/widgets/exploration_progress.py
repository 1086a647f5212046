"""What a page shows while its exploration is on the way, when it failed, and when there is nothing to show."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import streamlit as st

from dashboard.charts.elements.markup import head
from dashboard.compat.session import is_active
from dashboard.jobs.explorations import Job, QueueFull, Runner
from dashboard.jobs.server import runner
from dashboard.jobs.turns import turns
from dashboard.link.state import current_scenario, watcher
from dashboard.words.markdown import literal
from dashboard.words.numbers import count, counted, format_value
from engine import Exploration, Progress, Scenario
from engine.cost_models.calibrated import model_shapes

__all__ = [
    "exploration_of", "explorations_of", "progress_words", "require_exploration", "seen_with",
]  # fmt: skip

PATIENCE = 1.0
"""How long a page waits before it shows progress [s]."""
_OTHERS = "_exploration_of_others"
"""Key of what was cancelled in vain."""
POLL = 0.5
"""How often progress is looked at [s]; more seldom while others are ahead."""
SLOWEST_POLL = 3.0


def exploration_of(scenario: Scenario, watcher: str) -> Exploration:
    """The exploration of a scenario; stops the page with an account of why when there is none (yet)."""
    server = runner()
    try:
        job = server.request(scenario, watcher)
    except QueueFull as problem:
        st.warning(literal(str(problem)), icon=":material/hourglass_empty:")
        st.button("Try again", icon=":material/refresh:")
        st.stop()
    with turns.aside():
        job.wait(PATIENCE)
    if not job.ended:
        ahead = server.position(job)
        st.fragment(_watch, run_every=min(SLOWEST_POLL, POLL * (1 + ahead / 2)))(job.key, watcher)
        st.stop()
    if not job.shown:
        turns.after_others()
        job.shown = True
    if job.state == "done" and job.exploration is not None:
        if job.exploration.total == 0:
            _nothing(scenario)
            st.stop()
        return seen_with(job.exploration, scenario)
    if job.state == "cancelled":
        st.info("Exploring was cancelled before it was done; nothing was kept.", icon=":material/cancel:")
        _again(server, scenario, watcher, "Explore again")
    else:
        st.error(literal(job.problem), icon=":material/error:")
        _again(server, scenario, watcher, "Try again")
    return st.stop()


def explorations_of(scenarios: Sequence[Scenario], watcher: str) -> list[Exploration]:
    """The explorations of several scenarios; asks for all at once, and waits for one after the other."""
    for scenario in scenarios:
        try:
            runner().request(scenario, watcher)
        except QueueFull:
            break
    return [exploration_of(scenario, watcher) for scenario in scenarios]


def seen_with(exploration: Exploration, scenario: Scenario) -> Exploration:
    """An exploration under the scenario that was asked for: one may differ from it in names, prices and sources, which
    results do not depend on and pages show."""
    if exploration.scenario == scenario:
        return exploration
    rows = exploration.rows  # opened once, for all copies
    found = copy.copy(exploration)
    found.scenario = scenario
    assert found.rows is rows
    return found


def _again(server: Runner, scenario: Scenario, watcher: str, label: str) -> None:
    def ask() -> None:
        try:
            server.request(scenario, watcher, again=True)
        except QueueFull as problem:
            st.toast(literal(str(problem)))

    st.button(label, icon=":material/refresh:", on_click=ask, key="explore_again")


def _watch(key: str, watcher: str) -> None:
    """The progress card; reruns the page when the job has ended."""
    server = runner()

    def cancel() -> None:
        if not server.cancel(key, watcher, _here):
            st.session_state[_OTHERS] = key

    job = server.find(key)
    if job is None or job.ended:
        st.rerun()
    with st.container(border=True, key="progress"):
        title, button = st.columns([6, 1], vertical_alignment="center")
        scenario = job.scenario
        size = f"{counted(scenario.num_procs, 'GPU')} · {counted(scenario.space.total, 'execution')}"
        title.html(head("Evaluating", f"{scenario.model.title or scenario.model.name} · {size}"))
        button.button(
            "Cancel", icon=":material/close:", type="tertiary", key="cancel_exploration",
            on_click=cancel, width="stretch",
        )  # fmt: skip
        st.progress(_share(job), text=_account(server, job))
        if st.session_state.get(_OTHERS) == key:
            st.caption("Somebody else waits for this exploration too, so it goes on.")
        else:
            st.caption("The page appears by itself when it is done; closing it does not stop the work.")


def _here(watcher: str) -> bool:
    """Whether the page of a watcher is still open: one that was loaded again has another name."""
    return is_active(watcher)


def _share(job: Job) -> float:
    progress = job.progress
    return min(1.0, progress.done / progress.total) if progress is not None and progress.total else 0.0


def _account(server: Runner, job: Job) -> str:
    """How far a job is, in words."""
    if job.state == "waiting":
        ahead = server.position(job)
        return f"Waiting for {ahead} exploration{'s' if ahead != 1 else ''} asked for before"
    return progress_words(job.progress)


def progress_words(progress: Progress | None) -> str:
    """How far executions are evaluated, how fast, and how long the rest takes."""
    if progress is None or progress.rate <= 0:
        return "Starting"
    left = format_value("total_time", progress.seconds_left, digits=2)
    return f"{count(progress.done)} of {count(progress.total)} · {count(progress.rate)} per second · {left} left"


def _nothing(scenario: Scenario) -> None:
    """Why a space is empty, and what would fill it."""
    model, procs, shapes = scenario.model, scenario.num_procs, model_shapes(scenario.model)
    share = "PP has to divide" if scenario.cost_model == "calculon" else "PP must not exceed"
    st.info(
        literal(
            f"There is no way to run {model.title or model.name} on {procs:,} GPUs with these limits. "
            f"TP has to divide the {int(shapes.attn_heads):,} heads and the hidden size of {int(shapes.hidden):,}, "
            f"{share} the {int(shapes.num_blocks):,} blocks, TP × PP × DP has to "
            f"be {procs:,}, and DP must not exceed the batch of {scenario.max_batch_size:,}. "
            "Another number of GPUs, a larger batch or fewer limits would help."
        ),
        icon=":material/search_off:",
    )


def require_exploration() -> Exploration:
    """The exploration of the current scenario. Shows its progress, failure or emptiness and stops the page without."""
    return exploration_of(current_scenario(), watcher())
