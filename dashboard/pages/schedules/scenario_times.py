"""The times of a rank from the scenario's best execution with a pipeline."""

from __future__ import annotations

import streamlit as st

from dashboard.jobs.server import explorations
from engine import LimitError, Scenario, ScenarioError, SpaceError
from engine.simulate import ScheduleError
from engine.simulate.execution_stages import ExecutionTimes, execution_times, pipelined

__all__ = ["scenario_times"]


def scenario_times(scenario: Scenario, chosen: int | None = None) -> ExecutionTimes | str:
    """Returns the times of an execution of the scenario, or the reason for their absence.

    The execution is the chosen one if it has a pipeline, otherwise the best with a pipeline of four ranks or more.

    chosen: id of an execution.
    """
    refusal = explorations().refusal(scenario)
    if refusal:
        return refusal
    of_chosen = None if chosen is None else _of_id(scenario, scenario.key, chosen)
    return of_chosen or _times_of_best(scenario, scenario.key)


@st.cache_resource(show_spinner=False, max_entries=64)
def _of_id(_scenario: Scenario, key: str, chosen: int) -> ExecutionTimes | str | None:
    """Return the times of an execution by its id; None if it has no pipeline or does not run."""
    if not 0 <= chosen < _scenario.space.total:
        return None
    row = _scenario.row(chosen)
    return execution_times(_scenario, row) if row["status"] == "ok" and int(row["pipeline_par"]) > 1 else None


@st.cache_resource(show_spinner="Looking for the best execution with a pipeline …", max_entries=64)
def _times_of_best(_scenario: Scenario, key: str) -> ExecutionTimes | str:
    try:
        return execution_times(_scenario, pipelined(_scenario))
    except (ScheduleError, LimitError, ScenarioError, SpaceError) as problem:
        return str(problem)
