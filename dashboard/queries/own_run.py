"""Place of a person's own run among the executions of an exploration, remembered per run and target."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dashboard.compat.caches import remembered
from dashboard.queries.figures import choose_execution, wait_for_advice
from engine import Exploration, Scenario
from engine.launch import FlagChange, Standing, evaluate_execution, flag_changes, starts_with
from engine.questions.documents.explorations import FiguresQuestion
from engine.recommendation import ShownExecution
from engine.recommendation.own_run import place_run, target_of_run

__all__ = ["can_start_target", "find_flags", "find_own_standing", "has_setting"]


def has_setting(scenario: Scenario, execution: Mapping[str, Any]) -> bool:
    """Return whether an execution has the GPUs, the datatype and a batch of a scenario, so that it can be ranked there.

    Args:
        scenario: of the space.
        execution: values by field.
    """
    same = (execution["num_procs"], execution["datatype"]) == (scenario.num_procs, scenario.datatype)
    batches = {cell.batch_size for cell in scenario.space.cells} or {scenario.max_batch_size}
    return same and execution["batch_size"] in batches


def find_own_standing(
    exploration: Exploration,
    execution: Mapping[str, Any],
    framework: str | None,
    asked: FiguresQuestion,
    patience_s: float | None,
) -> Standing | None:
    """Return the place of a run, and the steps to the execution whose figures are shown; None while that is not known.

    Args:
        exploration: of the scenario.
        execution: values by field, as `engine.launch.evaluable` returns them.
        framework: name of the framework that starts the run, or None.
        asked: choice of the execution whose figures are shown.
        patience_s: as of `choose_execution`.
    """
    chosen = choose_execution(exploration, asked, patience_s=patience_s)
    if chosen.is_pending:
        return None
    shown = chosen.shown
    target = "" if shown is None else f"{shown.id} {shown.figures_of} {shown.remark} {asked!r}"
    key = f"{exploration.key} {sorted(execution.items())} {framework} {target}"
    return _find_own_standing(exploration, execution, framework, asked, shown, key)


@remembered(256, copied=False)
def _find_own_standing(
    _exploration: Exploration,
    _execution: Mapping[str, Any],
    _framework: str | None,
    _asked: FiguresQuestion,
    _shown: ShownExecution | None,
    key: str,
) -> Standing:
    target = None
    if _shown is not None:
        advice = wait_for_advice(_exploration, _asked) if _shown.figures_of == "recommended" else None
        row = evaluate_execution(_exploration.scenario, _execution)
        target = target_of_run(_exploration.scenario, advice, row, _shown)
    return place_run(_exploration, _execution, target, framework=_framework)


def find_flags(stands: Standing, framework: str | None) -> tuple[tuple[FlagChange, ...], ...]:
    """Return the flags that change with each step; none of any step without a framework.

    Args:
        stands: place of the run.
        framework: name of the framework that starts it, or None.
    """
    return ((),) * len(stands.steps) if framework is None else flag_changes(stands, framework=framework)


def can_start_target(stands: Standing, framework: str | None) -> bool:
    """Return whether a framework can start the execution that the steps lead to; True without one.

    Args:
        stands: place of the run.
        framework: name of the framework that starts the run, or None.
    """
    if framework is None or stands.target is None:
        return True
    return starts_with(framework, stands.scenario.model)(stands.target.execution)
