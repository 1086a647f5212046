"""How a fitted calibration changes which executions of the scenario are best."""

from __future__ import annotations

from typing import Final

import numpy as np
import streamlit as st

from dashboard import calibrate_tables as tables
from dashboard import state
from dashboard.charts import markup
from dashboard.controls import switch
from dashboard.format import percent
from dashboard.text import literal
from engine import Exploration, Scenario
from engine.calibrate import Outcome, Reranked, rerank
from hardware import System

__all__ = ["ranking", "reranked"]

CANDIDATES: Final = 1_000
"""Executions, from the best, that are ranked again, beside the best of every cell."""


def ranking(outcome: Outcome) -> None:
    """Draw the scenario's best executions in their new order."""
    scenario = state.current_scenario()
    st.html(markup.head("What changes for the scenario", _named(scenario)))
    if not _same(scenario.system, outcome.checked.system):
        theirs, ours = (literal(system.title or system.name) for system in (scenario.system, outcome.checked.system))
        st.caption(
            f"The scenario is on {theirs}, the runs were on {ours}; choose that system in the scenario to see how its "
            "executions rank."
        )
        return
    if not switch("Rank its executions again", "calibrate_rank", help="Needs the scenario to be explored."):
        return
    exploration = state.require_exploration()  # the last thing on the page, so that nothing else waits for it
    if not exploration.feasible:
        st.caption("No execution of the scenario runs, so there is none to rank.")
        return
    found = reranked(exploration, outcome)
    told = f"Of the {len(found.table):,} best executions of the exploration, ranked by both calibrations: "
    if found.changed:
        told += f"another one is best now, {percent(found.gain)} faster than the old best."
        errors = outcome.errors_unseen or outcome.errors_after
        if 100 * found.gain < errors["mean"]:
            told += " That is less than the mean error of a prediction, so the two are tied."
    else:
        told += "the best stays the best."
    if np.isfinite(found.tau):
        told += f" Kendall's tau between the two orders is {found.tau:.2f}."
    st.caption(told)
    tables.order(found)


def reranked(exploration: Exploration, outcome: Outcome) -> Reranked:
    """The best executions of an exploration and the best of every cell, ranked by both calibrations."""
    ids = set(exploration.rows.top(CANDIDATES, names=["id"])["id"].to_pylist())
    ids |= {int(ident) for ident in exploration.by_cell()["id"].dropna() if ident >= 0}
    chosen = np.array(sorted(ids), np.int64)
    scenario = exploration.scenario
    table = scenario.space.table(chosen)
    table.insert(0, "id", chosen)
    return rerank(scenario.model, scenario.system, table, outcome.before, outcome.after)


def _named(scenario: Scenario) -> str:
    system = scenario.system
    return f"{scenario.model.title or scenario.model.name} on {scenario.num_procs:,} × {system.title or system.name}"


def _same(one: System, other: System) -> bool:
    """Whether two systems have the same accelerator."""
    if one.accelerator is None or other.accelerator is None:
        return one.name == other.name
    return one.accelerator.name == other.accelerator.name
