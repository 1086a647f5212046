"""Steps from an execution to a better one: sequences of valid executions, each faster than the one before.

The steps are greedy: of all changes towards the target, changes of one or two flags come first, the largest gain before
the others; the rest changes with the degrees. Other sequences of steps exist.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import pandas as pd

from engine.columns import by_name, choice_label, fields_of
from engine.launch.contract import LaunchError
from engine.launch.conversion import write
from engine.scenarios.scenario import Scenario
from models import Model

__all__ = ["LEAST_GAIN", "NOT_COMPARED", "ImprovementStep", "StandingChange", "find_steps", "starts_with"]

ALONE: Final[tuple[tuple[str, ...], ...]] = (
    ("microbatch_size",),
    ("pipeline_interleaving", "schedule", "stage_layout"),
    ("stage_layout",),
    ("optimizer_sharding", "zero_stage"),
    ("activation_recompute", "selective_recompute", "recompute_blocks"),
    ("tensor_par_comm_type", "seq_par_ag_redo"),
    ("tensor_par_overlap",),
    ("data_par_overlap",),
    ("weight_offload",),
    ("activations_offload",),
    ("optimizer_offload",),
    ("expert_overlap",),
    ("pipeline_overlap",),
    ("attention_kernel",),
    ("launch",),
    ("gradient_datatype",),
    ("optimizer_datatype",),
    ("fp8_param_gather",),
    ("token_dispatcher",),
    ("dispatch_datatype",),
    ("context_par_comm",),
)
"""Choices of one or two flags that leave the degrees unchanged; fields of one choice share flags."""
TOGETHER: Final[tuple[tuple[str, ...], ...]] = (
    (
        "tensor_par",
        "pipeline_par",
        "data_par",
        "context_par",
        "expert_par",
        "expert_tensor_par",
        "batch_size",
        "pipeline_interleaving",
        "schedule",
        "stage_layout",
        "microbatch_size",
        "optimizer_sharding",
        "zero_stage",
    ),
    ("pipeline_interleaving", "schedule", "stage_layout", "microbatch_size"),
    ("pipeline_interleaving", "schedule", "stage_layout"),
    ("stage_layout",),
    ("microbatch_size",),
    ("optimizer_sharding", "zero_stage"),
    ("activation_recompute", "selective_recompute", "recompute_blocks"),
    ("tensor_par_comm_type", "seq_par_ag_redo", "tensor_par_overlap"),
    ("tensor_par_comm_type", "seq_par_ag_redo"),
    ("tensor_par_overlap",),
    ("data_par_overlap",),
    ("weight_offload",),
    ("activations_offload",),
    ("optimizer_offload",),
    ("expert_overlap",),
    ("pipeline_overlap",),
)
"""Choices that change together; larger groups hold what smaller ones change alone."""
NOT_COMPARED: Final = frozenset(
    {"seq_par_ag_redo", "tensor_par_net", "pipeline_par_net", "data_par_net", "fused_activation"}
)
"""Fields that follow from others, or that no configuration states."""
_ASKED: Final = 8
"""Largest gains of a kind of change of which is asked whether they can be started: writing a configuration takes about
a millisecond."""
LEAST_GAIN: Final = 5e-4
"""Gain in throughput below which a change does not count as a step [fraction]."""


@dataclass(frozen=True, slots=True)
class StandingChange:
    """A field that changes."""

    field: str
    old: Any
    new: Any

    def __str__(self) -> str:
        column = by_name(self.field)
        return f"{column.label} {_format_value(column.name, self.old)} → {_format_value(column.name, self.new)}"


@dataclass(frozen=True, slots=True)
class ImprovementStep:
    """A step towards the target: what changes together, and what an execution reaches with it [samples/s]."""

    changes: tuple[StandingChange, ...]
    rate: float
    gain: float
    """Throughput over that before the step, less 1."""
    execution: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the execution that the step leads to."""


class _Change(NamedTuple):
    """Fields that take the values of the target, with the throughput that this reaches, and the evaluated execution."""

    fields: tuple[str, ...]
    rate: float
    row: dict[str, Any]


def starts_with(framework: str, model: Model) -> Callable[[Mapping[str, Any]], bool]:
    """Return the test whether a framework can start an execution of a model.

    Args:
        framework: one of `engine.launch.FRAMEWORKS`.
        model: the model.
    """

    def accepts(execution: Mapping[str, Any]) -> bool:
        try:
            write(execution, model, framework=framework)
        except LaunchError:
            return False
        return True

    return accepts


def _format_value(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return choice_label(by_name(name), value) if isinstance(value, str) else f"{int(value):,}"


def find_steps(
    scenario: Scenario,
    row: Mapping[str, Any],
    target: Mapping[str, Any],
    *,
    accepts: Callable[[Mapping[str, Any]], bool] | None = None,
) -> tuple[ImprovementStep, ...]:
    """Return the steps from an execution to a faster one: first of one or two flags, the largest gain first.

    Every step is an execution that runs, at the throughput that the scenario evaluates for it, and faster than the one
    before by more than `LEAST_GAIN`. Together they reach the throughput of the target, or exceed it. A slower target
    has no steps. The first step of an execution that does not run makes it run.

    Args:
        scenario: model, system and cost model; the executions need not be in its space.
        row: the execution, evaluated: fields, `status` and `sample_rate` by name.
        target: the execution to reach, evaluated.
        accepts: returns whether a step may lead to an evaluated execution, such as one that a framework can start;
            other steps are taken only if none of these gains. All may if None.
    """
    names = [column.name for column in fields_of(scenario.cost_model)]
    now = {name: row[name] for name in names}
    rate = float(row["sample_rate"]) if row["status"] == "ok" else 0.0
    aim = float(target["sample_rate"])
    steps: list[ImprovementStep] = []
    while rate < aim * (1 - LEAST_GAIN):  # each step makes some field that of the target
        found = _next_change(scenario, now, target, rate, accepts)
        if found is None:
            break
        changed, reached = found.fields, found.rate
        changes = tuple(
            StandingChange(name, now[name], target[name])
            for name in names
            if name in changed and name not in NOT_COMPARED
        )
        now = _moved(now, target, changed)
        steps.append(ImprovementStep(changes, reached, reached / rate - 1.0 if rate else float("inf"), dict(now)))
        rate = reached
    return tuple(steps)


def _next_change(
    scenario: Scenario,
    now: Mapping[str, Any],
    target: Mapping[str, Any],
    rate: float,
    accepts: Callable[[Mapping[str, Any]], bool] | None,
) -> _Change | None:
    """Return the first change that is accepted, of those not accepted the first if there is no other; None if none
    gains."""
    first = None
    for gaining in _gaining_changes(scenario, now, target, rate):
        first = first or gaining[0]
        for change in gaining[:_ASKED]:
            if accepts is None or accepts(change.row):
                return change
    return first


def _moved(now: Mapping[str, Any], target: Mapping[str, Any], changed: Collection[str]) -> dict[str, Any]:
    return {**now, **{name: target[name] for name in changed}}


def _gaining_changes(
    scenario: Scenario, now: Mapping[str, Any], target: Mapping[str, Any], rate: float
) -> Iterator[list[_Change]]:
    """Yield the changes that gain, with the throughput that they reach, largest first: of single flags, then of two,
    then of degrees and all that goes with them, then of all that is left."""
    differing = {name for name in now if now[name] != target[name]}
    flags, groups = _remaining_groups(ALONE, differing), _remaining_groups(TOGETHER, differing)
    everything = tuple(sorted(differing))
    tries: Sequence[Sequence[tuple[str, ...]]] = (
        flags,
        _pair_groups(flags),
        groups,
        _pair_groups(groups),
        [everything],
    )
    for options in tries:
        if not options or not everything:
            continue
        found = scenario.evaluate(pd.DataFrame([_moved(now, target, group) for group in options]))
        runs = found["status"] == "ok"
        rates = [float(each) if run else 0.0 for each, run in zip(found["sample_rate"], runs, strict=True)]
        # Of changes that gain the same, the smallest.
        order = sorted(range(len(options)), key=lambda each: (-round(rates[each], 9), len(options[each])))
        rows = found.to_dict("records")
        gaining = [
            _Change(options[place], rates[place], {str(name): value for name, value in rows[place].items()})
            for place in order
            if rates[place] > rate * (1 + LEAST_GAIN)
        ]
        if gaining:
            yield gaining


def _remaining_groups(groups: Sequence[tuple[str, ...]], differing: Collection[str]) -> list[tuple[str, ...]]:
    """Return the fields of each group that still differ, if there are more than follow from other fields."""
    left = dict.fromkeys(tuple(name for name in group if name in differing) for group in groups)
    return [group for group in left if set(group) - NOT_COMPARED]


def _pair_groups(groups: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    return [tuple(dict.fromkeys((*a, *b))) for a, b in itertools.combinations(groups, 2)]
