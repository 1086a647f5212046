"""The times of a rank from the scenario: those of its best execution with a pipeline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import streamlit as st

from dashboard.jobs.server import explorations
from dashboard.queries.scenario_edits import altered
from dashboard.words.executions import blocks_of, title
from engine import LimitError, Scenario, ScenarioError, SpaceError
from engine.cost_models.account import Account
from engine.cost_models.chunk_times import chunk_times, microbatches_of
from engine.cost_models.registry import cost_model_of
from engine.exploration.proven_optimum import best_of
from engine.exploration.result import first_row

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
    account: Account
    """What the cost model tells of it, its stages among that."""
    message: float
    """One message between neighbouring stages [s], 0 where that is in the times of the stages already."""

    @property
    def layout(self) -> str:
        """How the execution cuts the model's blocks into stages."""
        return str(self.row.get("stage_layout") or "even")


def scenario_times(scenario: Scenario, chosen: int | None = None) -> ScenarioTimes | str:
    """Returns the times of an execution of the scenario, or why there are none: of the one that is chosen, where that
    has a pipeline, or else of the best with a pipeline of four ranks or more.

    chosen: id of an execution.
    """
    refusal = explorations().refusal(scenario)
    if refusal:
        return refusal
    of_chosen = None if chosen is None else _of_id(scenario, scenario.key, chosen)
    return of_chosen or _found(scenario, scenario.key)


@st.cache_resource(show_spinner=False, max_entries=64)
def _of_id(_scenario: Scenario, key: str, chosen: int) -> ScenarioTimes | str | None:
    """Of an execution by its id; None where that has no pipeline or does not run."""
    if not 0 <= chosen < _scenario.space.total:
        return None
    row = first_row(_scenario.evaluate(_scenario.space.table([chosen])))
    return _times(_scenario, row) if row["status"] == "ok" and int(row["pipeline_par"]) > 1 else None


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
    account = cost_model_of(scenario).account(scenario.model, scenario.system, best, scenario.calibration)
    return ScenarioTimes(
        name=title(best), ranks=int(best["pipeline_par"]), microbatches=microbatches_of(best), chunks=chunks,
        forward=times.forward * chunks, backward=times.backward * chunks, exchange=times.exchange + times.optimizer,
        schedule=str(best.get("schedule") or ("interleaved" if chunks > 1 else "1f1b")), row=best,
        account=account, message=account.message_seconds(),
    )  # fmt: skip
