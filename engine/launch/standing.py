"""Rank of an execution among all of its space: its place, its distance to the best, and the steps to a target."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd

from engine.columns import fields_of
from engine.cost_models.registry import cost_model_of
from engine.exploration.proven_optimum import best_of
from engine.exploration.run import slabs
from engine.launch.conversion import evaluable
from engine.launch.improvement_steps import NOT_COMPARED, ImprovementStep, find_steps, starts_with
from engine.scenarios.scenario import Scenario
from engine.space.rows import chunks_of
from hardware import Calibration, SystemLike
from models import ModelLike
from models.token_flops import Convention

__all__ = [
    "SAME_RATE",
    "Standing",
    "StandingTarget",
    "evaluate_execution",
    "find_number",
    "find_target_steps",
    "standing",
]

KEPT: Final = (
    "attention_kernel",
    "launch",
    "gradient_datatype",
    "optimizer_datatype",
    "fp8_param_gather",
    "pipeline_overlap",
    "token_dispatcher",
    "dispatch_datatype",
    "expert_imbalance",
    "context_par_comm",
)
"""Choices of software, and the load of experts, that are kept by default."""
LARGEST_RANKED: Final = 20_000_000
"""Spaces of up to this many executions are evaluated whole to give the rank, about two seconds of work; in larger ones
only the best is proven."""
SAME_RATE: Final = 1e-9
"""Share of a throughput within which another is the same: the way an execution is given decides about its rounding."""
_MOST_ALIKE: Final = 64
"""Executions that differ in nothing but what no configuration states; the fastest of them is taken."""
_MOST_OF_DEGREES: Final = 3_000_000
"""Executions that are looked through for one."""
_OF_A_CELL: Final = (
    "tensor_par",
    "pipeline_par",
    "data_par",
    "batch_size",
    "context_par",
    "expert_par",
    "expert_tensor_par",
)


@dataclass(frozen=True, slots=True)
class StandingTarget:
    """The execution that the steps from another one lead to."""

    execution: Mapping[str, Any]
    """Fields, outcome and statistics by name."""
    role: str = "fastest"
    """"recommended" or "fastest"."""
    remark: str = ""
    """Reason for another role than the one asked for; empty otherwise."""
    objection: str = ""
    """Reason why the execution in use is not recommended itself, in words; empty if its throughput says it."""
    allows: Callable[[Mapping[str, Any]], bool] | None = None
    """Returns whether a step may lead to an evaluated execution; None if all may."""


ChooseTarget = Callable[[Scenario, Mapping[str, Any]], StandingTarget | None]
"""Returns the execution of a scenario that steps from an evaluated one lead to; None if nothing runs."""


@dataclass(frozen=True)
class Standing:
    """Rank of an execution. `row` and `best` are evaluated; `best` and `target` stay None if nothing runs."""

    scenario: Scenario
    row: Mapping[str, Any]
    best: Mapping[str, Any] | None
    total: int
    faster: int | None
    """Number of faster executions of the space; None if the space is too large to evaluate all."""
    feasible: int | None
    steps: tuple[ImprovementStep, ...]
    id: int | None = None
    """Number of the execution in its space; None where that does not try it, or it does not run."""
    target: StandingTarget | None = None
    """The execution that the steps lead to."""

    @property
    def runs(self) -> bool:
        """Returns whether the execution runs on the system."""
        return bool(self.row["status"] == "ok")

    @property
    def distance(self) -> float | None:
        """Returns how much faster the best is: its throughput over that of the execution, less 1; None where either
        does not run."""
        return self._lead(self.best)

    @property
    def gain(self) -> float | None:
        """Return how much faster the target is, as `distance` for the best; negative where it is slower."""
        return None if self.target is None else self._lead(self.target.execution)

    def _lead(self, other: Mapping[str, Any] | None) -> float | None:
        if not self.runs or other is None:
            return None
        return float(other["sample_rate"]) / float(self.row["sample_rate"]) - 1.0


def standing(
    execution: Mapping[str, Any],
    model: ModelLike,
    system: SystemLike,
    *,
    limits: Mapping[str, Any] | None = None,
    cost_model: str | None = None,
    calibration: Calibration | None = None,
    attention: Convention | None = None,
    choose_target: ChooseTarget | None = None,
    framework: str | None = None,
) -> Standing:
    """Return the rank of an execution among all of its model, system, GPUs, batch and datatype.

    Choices of software that configurations state, such as the attention kernel, are the same in all that it is compared
    with, unless a limit says otherwise.

    Args:
        execution: values by field, as for `engine.launch.write`.
        model: name, path or model.
        system: name, path or system.
        limits: on the space that it is compared with, as for `engine.explore`.
        cost_model: name of the cost model, as for `engine.explore`.
        calibration: of the cost model, where it takes one.
        attention: how figures of utilisation count attention; None as the cost model does.
        choose_target: returns the execution that the steps lead to; the fastest if None.
        framework: name of a framework that should be able to start every step; any if None.

    Raises what `evaluable` and `engine.Scenario.of` raise, and `engine.SpaceError` where there is no such space.
    """
    fields = evaluable(execution)
    probe = Scenario.of(
        model,
        system,
        num_procs=fields["num_procs"],
        max_batch_size=fields["batch_size"],
        datatype=fields["datatype"],
        cost_model=cost_model,
        calibration=calibration,
    )
    known = {column.name: column for column in fields_of(probe.cost_model)}
    same: dict[str, Any] = {
        name: [fields[name]]
        for name in KEPT
        if name in known and name in fields and fields[name] != known[name].default
    }
    scenario = Scenario.of(
        probe.model,
        probe.system,
        num_procs=probe.num_procs,
        max_batch_size=probe.max_batch_size,
        datatype=probe.datatype,
        limits={**same, **(limits or {})},
        cost_model=probe.cost_model,
        calibration=calibration,
        attention=attention,
    )
    own = evaluate_execution(scenario, fields)
    total = scenario.space.total
    runs = own["status"] == "ok"
    faster = feasible = None
    if total <= LARGEST_RANKED:
        above, feasible, first = _count_faster(scenario, float(own["sample_rate"]) if runs else float("inf"))
        faster = above if runs else None
    else:
        first = best_of(scenario).get("id")
    ident = find_number(scenario, {name: own[name] for name in fields if name in own}) if runs else None
    best = None if first is None else scenario.row(first)
    target = None if best is None else StandingTarget(best)
    if target is not None and choose_target is not None:
        target = choose_target(scenario, own)
    steps = () if target is None else find_target_steps(scenario, own, target, framework)
    return Standing(scenario, own, best, total, faster, feasible, steps, ident, target)


def find_target_steps(
    scenario: Scenario, row: Mapping[str, Any], target: StandingTarget, framework: str | None
) -> tuple[ImprovementStep, ...]:
    """Return the steps from an execution to a target that the target allows and a framework starts, see `find_steps`.

    Args:
        scenario: model, system and cost model.
        row: the execution, evaluated.
        target: the execution to reach.
        framework: name of a framework; any if None.
    """
    starts = None if framework is None else starts_with(framework, scenario.model)

    def accepts(execution: Mapping[str, Any]) -> bool:
        return (target.allows is None or target.allows(execution)) and (starts is None or starts(execution))

    return find_steps(scenario, row, target.execution, accepts=accepts)


def evaluate_execution(scenario: Scenario, execution: Mapping[str, Any]) -> dict[str, Any]:
    """Return an execution with its outcome and statistics, whether the scenario's space has it or not.

    Args:
        scenario: model, system and cost model.
        execution: values by field, as `evaluable` returns them; fields that the cost model does not have are ignored.
    """
    names = [column.name for column in fields_of(scenario.cost_model) if column.name in execution]
    (row,) = scenario.evaluate(pd.DataFrame([{name: execution[name] for name in names}])).to_dict("records")
    return {str(name): value for name, value in row.items()}


def _count_faster(scenario: Scenario, rate: float) -> tuple[int, int, int | None]:
    """Return the number of executions faster than a throughput [samples/s], the number that run, and the number of the
    best, of equal ones the first; None if nothing runs. Keeps no rows."""
    space, cost_model = scenario.space, cost_model_of(scenario.space)
    faster = feasible = 0
    best: tuple[float, int] | None = None
    for numbers in slabs(space):
        prepared = cost_model.prepare(space, numbers)
        for group, chunk in chunks_of(prepared.groups):
            for variant in cost_model.evaluate_rows(prepared, group, chunk).variants:
                rates = variant.metrics["sample_rate"]
                faster += int(np.count_nonzero(rates > rate * (1 + SAME_RATE)))
                feasible += len(rates)
                top = rates.max(initial=0.0)
                if len(rates) and (best is None or top >= -best[0]):
                    here = (-float(top), int(variant.ids[rates == top].min()))
                    best = here if best is None else min(best, here)
    return faster, feasible, None if best is None else best[1]


def find_number(scenario: Scenario, fields: Mapping[str, Any]) -> int | None:
    """Return the number of an execution in its space, of executions with equal compared fields that of the fastest;
    None if no running execution has all of its fields, or too many share its degrees.

    Args:
        scenario: of the space.
        fields: values by field of the execution; other names are ignored.
    """
    space = scenario.space
    firsts = [*map(int, space.first_ids), space.total]
    numbers = [
        np.arange(firsts[place], firsts[place + 1])
        for place, cell in enumerate(space.cells)
        if all(getattr(cell, name) == fields[name] for name in _OF_A_CELL if name in fields)
    ]
    if not numbers or sum(map(len, numbers)) > _MOST_OF_DEGREES:
        return None
    ids = np.concatenate(numbers)
    found = space.fields(ids)
    same = np.ones(len(ids), bool)
    for column in fields_of(scenario.cost_model):
        if column.name in fields and column.name not in NOT_COMPARED:
            value = fields[column.name]
            words = column.words or space.datatypes
            same &= found[column.name] == (words.index(value) if column.dtype == "str" else value)
    alike = ids[same][:_MOST_ALIKE]
    if not len(alike):
        return None
    evaluated = scenario.evaluate(space.table(alike))
    rates = np.where(evaluated["status"] == "ok", evaluated["sample_rate"], 0.0)
    return int(alike[rates.argmax()]) if rates.any() else None
