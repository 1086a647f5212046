"""Rank of an execution among all of its space: its place, its distance to the best, and the steps to it.

The steps are greedy: of all changes towards the best, changes of one or two flags come first, the largest gain before
the others; the rest changes with the degrees. Other sequences of steps exist.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pandas as pd

from engine.columns import by_name, choice_label, fields_of
from engine.cost_models.registry import cost_model_of
from engine.exploration.proven_optimum import best_of
from engine.exploration.run import slabs
from engine.launch.conversion import evaluable
from engine.scenarios.scenario import Scenario
from engine.space.rows import chunks_of
from hardware import Calibration, SystemLike
from models import ModelLike
from models.token_flops import Convention

__all__ = ["ImprovementStep", "Standing", "StandingChange", "standing"]

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
    """A step towards the best: what changes together, and what an execution reaches with it [samples/s]."""

    changes: tuple[StandingChange, ...]
    rate: float
    gain: float
    """Throughput over that before the step, less 1."""
    execution: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the execution that the step leads to."""


@dataclass(frozen=True)
class Standing:
    """Rank of an execution. `row` and `best` are evaluated; without a running execution `best` has no value."""

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

    @property
    def runs(self) -> bool:
        """Returns whether the execution runs on the system."""
        return bool(self.row["status"] == "ok")

    @property
    def distance(self) -> float | None:
        """Returns how much faster the best is: its throughput over that of the execution, less 1; None where either
        does not run."""
        if not self.runs or self.best is None:
            return None
        return float(self.best["sample_rate"]) / float(self.row["sample_rate"]) - 1.0


def standing(
    execution: Mapping[str, Any],
    model: ModelLike,
    system: SystemLike,
    *,
    limits: Mapping[str, Any] | None = None,
    cost_model: str | None = None,
    calibration: Calibration | None = None,
    attention: Convention | None = None,
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
    names = [name for name in known if name in fields]
    table = pd.DataFrame([{name: fields[name] for name in names}])
    (row,) = scenario.evaluate(table).to_dict("records")
    own = {str(name): value for name, value in row.items()}
    total = scenario.space.total
    runs = own["status"] == "ok"
    faster = feasible = None
    if total <= LARGEST_RANKED:
        above, feasible, first = _count_faster(scenario, float(own["sample_rate"]) if runs else float("inf"))
        faster = above if runs else None
    else:
        first = best_of(scenario).get("id")
    ident = _number_of(scenario, {name: own[name] for name in names}) if runs else None
    best = None if first is None else scenario.row(first)
    steps = _find_steps(scenario, own, best) if best is not None else ()
    return Standing(scenario, own, best, total, faster, feasible, steps, ident)


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


def _number_of(scenario: Scenario, fields: Mapping[str, Any]) -> int | None:
    """Return the number of an execution in its space, of executions with equal compared fields that of the fastest;
    None if no running execution has all of its fields, or too many share its degrees."""
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


def _format_value(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return choice_label(by_name(name), value) if isinstance(value, str) else f"{int(value):,}"


def _find_steps(scenario: Scenario, row: Mapping[str, Any], best: Mapping[str, Any]) -> tuple[ImprovementStep, ...]:
    """The way from an execution to the best. Where the execution does not run, the first step is one that makes it."""
    names = [column.name for column in fields_of(scenario.cost_model)]
    now = {name: row[name] for name in names}
    rate = float(row["sample_rate"]) if row["status"] == "ok" else 0.0
    aim = float(best["sample_rate"])
    steps: list[ImprovementStep] = []
    while rate < aim * (1 - LEAST_GAIN):  # each step makes some field that of the best
        found = _find_next_change(scenario, now, best, rate)
        if found is None:
            break
        changed, reached = found
        changes = tuple(
            StandingChange(name, now[name], best[name])
            for name in names
            if name in changed and name not in NOT_COMPARED
        )
        now |= {name: best[name] for name in changed}
        steps.append(ImprovementStep(changes, reached, reached / rate - 1.0 if rate else float("inf"), dict(now)))
        rate = reached
    return tuple(steps)


def _find_next_change(
    scenario: Scenario, now: Mapping[str, Any], best: Mapping[str, Any], rate: float
) -> tuple[tuple[str, ...], float] | None:
    """The change that gains most: of single flags, else of two, else of degrees and all that goes with them, else of
    all that is left; None where none gains."""
    differing = {name for name in now if now[name] != best[name]}
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
        table = pd.DataFrame([{**now, **{name: best[name] for name in group}} for group in options])
        found = scenario.evaluate(table)
        runs = found["status"] == "ok"
        rates = [float(each) if run else 0.0 for each, run in zip(found["sample_rate"], runs, strict=True)]
        # Of changes that gain the same, the smallest.
        place = min(range(len(options)), key=lambda each: (-round(rates[each], 9), len(options[each])))
        if rates[place] > rate * (1 + LEAST_GAIN):
            return options[place], rates[place]
    return None


def _remaining_groups(groups: Sequence[tuple[str, ...]], differing: Collection[str]) -> list[tuple[str, ...]]:
    """Return the fields of each group that still differ, if there are more than follow from other fields."""
    left = dict.fromkeys(tuple(name for name in group if name in differing) for group in groups)
    return [group for group in left if set(group) - NOT_COMPARED]


def _pair_groups(groups: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    return [tuple(dict.fromkeys((*a, *b))) for a, b in itertools.combinations(groups, 2)]
