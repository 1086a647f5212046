"""The times of a rank from the scenario: those of its best execution with a pipeline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import streamlit as st

from dashboard.jobs.server import explorations
from dashboard.queries.scenario_edits import altered
from dashboard.words.executions import blocks_of, title
from engine import LimitError, Scenario, ScenarioError, SpaceError
from engine.cost_models.chunk_times import chunk_times, microbatches_of
from engine.exploration.proven_optimum import best_of

__all__ = ["ScenarioTimes", "scenario_times"]

_PIPELINES: Final = (4, 2)
"""Fewest ranks of the pipeline that is looked for, the wanted first."""


@dataclass(frozen=True, slots=True)
class ScenarioTimes:
    """What a rank's whole share of the model takes for one microbatch [s], and the execution that it is of."""

    name: str
    ranks: int
    microbatches: int
    chunks: int
    forward: float
    backward: float
    exchange: float
    """Gradient exchange and optimizer after the pipeline [s]."""
    schedule: str
    """The schedule that the execution names."""
    row: dict[str, Any]


def scenario_times(scenario: Scenario) -> ScenarioTimes | str:
    """Returns the times of the scenario's best execution with a pipeline of four ranks or more, or why not."""
    refusal = explorations().refusal(scenario)
    return refusal or _found(scenario, scenario.key)


@st.cache_resource(show_spinner="Looking for the best execution with a pipeline …", max_entries=64)
def _found(_scenario: Scenario, key: str) -> ScenarioTimes | str:
    for fewest in _PIPELINES:
        try:
            asked = _scenario.limits.get("pipeline_par")
            limits = _scenario.limits if asked is not None else {**_scenario.limits, "pipeline_par": {"min": fewest}}
            best = best_of(altered(_scenario, limits=limits))
        except (LimitError, ScenarioError, SpaceError) as problem:
            return str(problem)
        if best and int(best["pipeline_par"]) > 1:
            return _times(_scenario, dict(best))
    return "No execution of this scenario runs with a pipeline."


def _times(scenario: Scenario, best: dict[str, Any]) -> ScenarioTimes | str:
    times = chunk_times(best, blocks_of(scenario))
    if times.backward <= 0:
        return "The scenario is a forward pass alone, which has nothing to schedule."
    chunks = int(best["pipeline_interleaving"])
    return ScenarioTimes(
        name=title(best), ranks=int(best["pipeline_par"]), microbatches=microbatches_of(best), chunks=chunks,
        forward=times.forward * chunks, backward=times.backward * chunks, exchange=times.exchange + times.optimizer,
        schedule=str(best.get("schedule") or ("interleaved" if chunks > 1 else "1f1b")), row=best,
    )  # fmt: skip
