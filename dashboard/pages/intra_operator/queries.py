"""Questions of the page to the planner, cached."""

from __future__ import annotations

import hashlib
import time
from dataclasses import replace
from typing import Final

import pandas as pd

from dashboard.compat.caches import remembered
from dashboard.jobs.operator_plans import OperatorPlanJob
from dashboard.jobs.server import server
from dashboard.link import state
from dashboard.link.catalogue import system_of
from dashboard.pages.intra_operator.inputs import IntraOperatorInputs, planned, system_question
from dashboard.widgets.job_card import found_soon
from engine.planners.contract import PlanError
from engine.planners.intra_operator import IntraOperatorPlan, beside_exploration
from engine.planners.intra_operator.names import vector_name
from hardware import GIB

__all__ = ["beside_table", "limited", "swept", "systems_table"]

NO_LIMIT: Final = 1e20
"""More memory than any plan takes [bytes]."""
BATCHES: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)
DEPTHS: Final = (1, 2, 4, 8, 16, 24, 32, 48, 64, 80, 96, 128)
DEVICES: Final = (2, 4, 8, 16, 32, 64)
MOST_POINTS: Final = 400


@remembered(48)
def _search_plan(key: str, limit: float, _asked: IntraOperatorInputs) -> tuple[IntraOperatorPlan, float]:
    begun = time.thread_time()
    return planned(_asked, limit), time.thread_time() - begun


def limited(asked: IntraOperatorInputs, limit: float | None) -> tuple[IntraOperatorPlan, float] | None:
    """Returns (the plan within a limit of memory [bytes], the time of the search [s of CPU]). None: no limit.

    A search on two mesh axes is a background job. None while it runs, or if it ended without a plan, which its card
    shows.
    """
    most = NO_LIMIT if limit is None else limit
    answer = _search_plan(asked.key, most, asked) if asked.mesh.outer is None else _off_the_page(asked, most)
    if answer is None:
        return None
    found, took = answer
    return (replace(found, memory_limit=None) if limit is None else found), took


def _off_the_page(asked: IntraOperatorInputs, limit: float) -> tuple[IntraOperatorPlan, float] | None:
    shared, watcher = server(), state.watcher()
    question = asked.question.model_copy(update={"memory_limit_gib": limit / GIB})
    key = hashlib.sha256(question.model_dump_json().encode()).hexdigest()
    about = f"{asked.title} on {asked.mesh.devices:,} devices, batch {asked.batch:,}"
    job = shared.board.post(OperatorPlanJob(shared.operator_plans, key, question, about), watcher)
    return found_soon(job, OperatorPlanJob, watcher, lambda one: one.planned)


@remembered(24)
def _compute_sweep(
    key: str, over: str, limit: float, _asked: IntraOperatorInputs, _found: IntraOperatorPlan
) -> pd.DataFrame:
    rows: list[dict[str, object]] = []
    if over == "memory":
        return _over_memory(_asked, _found)
    for value in _sweep_values(_asked, over):
        rows += _plans_at_value(_asked, over, value, limit)
    return pd.DataFrame(rows, columns=["value", "name", "solution", "rate", "seconds", "memory"])


def _sweep_values(asked: IntraOperatorInputs, over: str) -> list[int]:
    """Return the values of a parameter in a sweep: round values, and the current one."""
    if over == "layers":
        return sorted({*(each for each in DEPTHS if each < asked.depth), asked.layers, asked.depth})
    usual, here = (BATCHES, asked.batch) if over == "batch" else (DEVICES, asked.mesh.devices)
    return sorted({*usual, here})


def _plans_at_value(asked: IntraOperatorInputs, over: str, value: int, limit: float) -> list[dict[str, object]]:
    """Return the best plan and the named solutions at one value; empty if nothing runs or fits."""
    try:
        changed = _change_question(asked, over, value)
        found = planned(changed, limit)
    except PlanError:
        return []  # the batch or the layers cannot be divided
    number = changed.mesh.devices
    named = [
        {
            "value": value,
            "name": row["solution"],
            "solution": row["solution"],
            "rate": found.tflop / row["seconds"] / number,
            "seconds": row["seconds"],
            "memory": row["memory"],
        }
        for row in found.named.to_dict("records")
        if row["fits"]
    ]
    best = found.chosen
    if best is None:
        return named
    return [
        {
            "value": value,
            "name": "best",
            "solution": best.solution,
            "rate": found.tflops / number,
            "seconds": best.seconds,
            "memory": best.memory,
        },
        *named,
    ]


def _change_question(asked: IntraOperatorInputs, over: str, value: int) -> IntraOperatorInputs:
    """Return the question with one value changed. Raises the errors of building a mesh."""
    return replace(asked, question=asked.question.model_copy(update={over: value}))


def _over_memory(asked: IntraOperatorInputs, found: IntraOperatorPlan) -> pd.DataFrame:
    """The frontier as a curve over the limit [GiB]; a plan of several kinds of vectors is mixed."""
    names = [each.name for each in found.layers]
    rows = [
        {
            "value": row["memory"] / GIB,
            "name": "best",
            "solution": vector_name(row["vectors"], names, found.widths),
            "rate": found.tflop / row["seconds"] / asked.mesh.devices,
            "seconds": row["seconds"],
            "memory": row["memory"],
        }
        for row in found.some_of_frontier(MOST_POINTS).to_dict("records")
    ]
    return pd.DataFrame(rows, columns=["value", "name", "solution", "rate", "seconds", "memory"])


def swept(asked: IntraOperatorInputs, over: str, found: IntraOperatorPlan) -> pd.DataFrame:
    """Returns the rate of a device along a parameter, for the best plan and the named solutions.

    Args:
        asked: the other inputs.
        over: `over` of `IntraOperatorLink`.
        found: the plan of that question, whose limit of memory applies to all.

    Returns:
        value, name ("best" or a solution), solution, rate [TFLOP/s], seconds, memory [bytes].
    """
    limit = NO_LIMIT if found.memory_limit is None else found.memory_limit
    return _compute_sweep(f"{asked.key} {asked.system_id}", over, limit, asked, found)


@remembered(24)
def _systems_table(key: str, names: tuple[str, ...], _asked: IntraOperatorInputs) -> pd.DataFrame:
    rows = []
    for name in names:
        try:
            asked = system_question(_asked, name)
            found = planned(asked, asked.mesh.memory or NO_LIMIT)
        except ValueError as problem:
            rows.append(
                {
                    "system": name,
                    "label": name,
                    "devices": 0,
                    "datatype": "",
                    "rate": None,
                    "seconds": None,
                    "solution": "",
                    "memory": None,
                    "reason": str(problem),
                }
            )
            continue
        best = found.chosen
        rows.append(
            {
                "system": name,
                "label": asked.system.partition(",")[0],
                "devices": asked.mesh.devices,
                "datatype": asked.question.datatype,
                "rate": None if best is None else found.tflops / asked.mesh.devices,
                "seconds": None if best is None else best.seconds,
                "solution": "" if best is None else best.solution,
                "memory": None if best is None else best.memory,
                "reason": found.infeasible,
            }
        )
    return pd.DataFrame(rows)


@remembered(16)
def _beside_table(key: str, _plan: IntraOperatorPlan, _asked: IntraOperatorInputs) -> pd.DataFrame:
    system = system_of(_asked.system_id)
    return beside_exploration(_plan, _asked.model, system, batch=_asked.batch, datatype=_asked.question.datatype)


def beside_table(asked: IntraOperatorInputs, plan: IntraOperatorPlan) -> pd.DataFrame:
    """Returns a plan of a library model, the cost model's figures for it, and the best of all executions.

    Raises `engine.planners.contract.PlanError` if no plan fits.
    """
    return _beside_table(f"{asked.key} {plan.memory_limit}", plan, asked)


def systems_table(asked: IntraOperatorInputs, names: tuple[str, ...]) -> pd.DataFrame:
    """Returns the best plan of the same model on other systems.

    Columns: label, devices, datatype of products, rate [TFLOP/s of a device], seconds, solution, memory [bytes], reason
    if there is no plan.
    """
    return _systems_table(asked.key, names, asked)
