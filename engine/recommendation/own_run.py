"""Place of a person's own run among the executions of an exploration, and the steps from it to a target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from math import inf
from typing import Any, Final, Protocol

from engine.columns import fields_of
from engine.columns.percentages import format_percent
from engine.exploration.result import Exploration
from engine.launch.flag_changes import FlagChange
from engine.launch.improvement_steps import LEAST_GAIN, NOT_COMPARED
from engine.launch.standing import (
    SAME_RATE,
    Standing,
    StandingTarget,
    evaluate_execution,
    find_number,
    find_target_steps,
)
from engine.recommendation.fits import FIT_NEEDS
from engine.recommendation.recommended import explain_against
from engine.recommendation.room import Terms
from engine.recommendation.shown import ShownExecution
from engine.scenarios.scenario import Scenario
from engine.store import StoreCondition
from hardware import GIB

__all__ = [
    "Advised",
    "AllowedSteps",
    "describe_distance",
    "describe_steps",
    "place_run",
    "quick_steps",
    "target_of_run",
]


class Advised(Protocol):
    """Terms of a recommendation, and the properties that count against no execution: of a `Recommendation`."""

    @property
    def terms(self) -> Terms:
        """Return the terms."""

    @property
    def waived(self) -> tuple[str, ...]:
        """Return the properties."""


_DEGREES: Final = frozenset(
    {"tensor_par", "pipeline_par", "data_par", "context_par", "expert_par", "expert_tensor_par", "batch_size"}
)
"""Fields whose change is another layout, which takes more than a flag: checkpoints are converted."""


@dataclass(frozen=True, slots=True)
class AllowedSteps:
    """Test whether a step of a run may lead to an execution: as safe as the recommended one, or as the run itself."""

    scenario: Scenario
    terms: Terms
    waived: frozenset[str]
    """Properties without measurement that all executions share, or that the run has."""
    needed: tuple[float, float]
    """Memory of both tiers that the run needs, which steps may need too [bytes]."""

    def __call__(self, execution: Mapping[str, Any]) -> bool:
        """Return whether an evaluated execution fits with headroom, and rests on nothing else never measured."""
        tiers = (self.scenario.system.mem1, self.scenario.system.mem2)
        for name, tier, own in zip(FIT_NEEDS, tiers, self.needed, strict=True):
            need = float(execution[name])
            if need * (1.0 + self.terms.headroom) > tier.capacity_gib * GIB and need > own:
                return False
        return self.terms.unmeasured or set(self.scenario.not_measured(execution)) <= self.waived


def target_of_run(
    scenario: Scenario, advice: Advised | None, row: Mapping[str, Any], shown: ShownExecution
) -> StandingTarget:
    """Return the execution that the steps of a run lead to, with the steps that are allowed.

    Args:
        scenario: scenario of both.
        advice: the recommendation; None for figures of the fastest, to which all steps are allowed.
        row: the run, evaluated.
        shown: the execution whose figures are shown.
    """
    if advice is None or shown.figures_of != "recommended":
        return StandingTarget(shown.execution, shown.figures_of, shown.remark)
    runs = row["status"] == "ok"
    own = frozenset(scenario.not_measured(row)) if runs else frozenset()
    needed = (float(row[FIT_NEEDS[0]]), float(row[FIT_NEEDS[1]])) if runs else (0.0, 0.0)
    allows = AllowedSteps(scenario, advice.terms, frozenset(advice.waived) | own, needed)
    objection = _explain_run(scenario, advice, row, shown.execution) if runs else ""
    return StandingTarget(shown.execution, shown.figures_of, shown.remark, objection, allows)


def _explain_run(scenario: Scenario, advice: Advised, row: Mapping[str, Any], recommended: Mapping[str, Any]) -> str:
    """Return why a run is not the recommended execution although it is at least as fast, in words; empty otherwise."""
    if float(row["sample_rate"]) < float(recommended["sample_rate"]) * (1 - LEAST_GAIN):
        return ""
    names = [column.name for column in fields_of(scenario.cost_model) if column.name not in NOT_COMPARED]
    if all(row[name] == recommended[name] for name in names):
        return ""
    return explain_against(scenario, advice.terms, advice.waived, row, recommended)


def place_run(
    exploration: Exploration,
    execution: Mapping[str, Any],
    target: StandingTarget | None,
    *,
    framework: str | None = None,
) -> Standing:
    """Return the rank of a run among the executions of an exploration, by its rows, and the steps to a target.

    The same as `engine.launch.standing` of a scenario, without evaluating its space again.

    Args:
        exploration: with stored rows; the run need not be in its space, but has its GPUs and its batch.
        execution: values by field, as `engine.launch.evaluable` returns them.
        target: the execution that the steps lead to; None if nothing runs.
        framework: name of the framework that should be able to start every step; any if None.
    """
    scenario = exploration.scenario
    row = evaluate_execution(scenario, execution)
    runs = row["status"] == "ok"
    faster = ident = None
    if runs:
        rate = float(row["sample_rate"])
        faster = exploration.rows.count([StoreCondition("sample_rate", ">", rate * (1 + SAME_RATE))])
        names = {column.name for column in fields_of(scenario.cost_model)} & set(execution)
        ident = find_number(scenario, {name: row[name] for name in names})
    steps = () if target is None else find_target_steps(scenario, row, target, framework)
    return Standing(
        scenario, row, exploration.best, exploration.total, faster, exploration.feasible, steps, ident, target
    )


def quick_steps(stands: Standing, flags: Sequence[Sequence[FlagChange]]) -> int:
    """Return how many of the first steps change flags alone, without the degrees of parallelism.

    Args:
        stands: the rank of the run.
        flags: what `engine.launch.flag_changes` returned for it [steps].
    """
    pairs = zip(stands.steps, flags, strict=True)
    return sum(
        1 for _ in takewhile(lambda each: each[1] and not _DEGREES & {one.field for one in each[0].changes}, pairs)
    )


def describe_distance(stands: Standing) -> str:
    """Return how far a run is from the execution that its steps lead to, in a sentence; empty if nothing runs.

    Args:
        stands: the rank of the run.
    """
    target, gain = stands.target, stands.gain
    if target is None:
        return ""
    name = f"The {target.role} execution"
    if gain is None:
        return f"{name} reaches {float(target.execution['sample_rate']):.4g} samples/s."
    if gain > LEAST_GAIN:
        return f"{name} is {format_percent(gain)} faster."
    if target.objection:
        return f"It is not the recommended one: {target.objection}."
    if gain < -LEAST_GAIN:
        return f"It is {format_percent(1.0 / (1.0 + gain) - 1.0)} faster than the {target.role} execution."
    return f"Nothing that counts is faster: it is the {target.role} execution, or as fast."


def describe_steps(stands: Standing, flags: Sequence[Sequence[FlagChange]]) -> str:
    """Return what the steps bring, in a sentence: "3 flags bring 11 %; 5 steps bring 16 %."; empty without steps.

    Args:
        stands: the rank of the run.
        flags: what `engine.launch.flag_changes` returned for it [steps].
    """
    steps = stands.steps
    if not steps:
        return ""
    first, last = steps[0], steps[-1]
    if first.gain == inf:
        more = f", {_count(len(steps), 'step')} reach" if len(steps) > 1 else ", at"
        return f"The first step makes it run{more} {last.rate:.4g} samples/s."
    start = first.rate / (1.0 + first.gain)
    every = f"{_count(len(steps), 'step')} {_bring(len(steps))} {format_percent(last.rate / start - 1)}."
    quick = quick_steps(stands, flags)
    if not quick:
        return every
    number = len({change.flag for step in flags[:quick] for change in step})
    told = f"{_count(number, 'flag')} {_bring(number)} {format_percent(steps[quick - 1].rate / start - 1)}"
    return f"{told}." if quick == len(steps) else f"{told}; {every}"


def _bring(number: int) -> str:
    return "brings" if number == 1 else "bring"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
