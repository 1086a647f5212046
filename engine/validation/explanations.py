"""Settings that would explain a measured figure: single changes of an execution that bring its prediction near."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pandas as pd

from engine.columns import Column, applies, fields_of
from engine.columns.fields import CHOICE_LABELS
from engine.scenarios.scenario import Scenario

__all__ = ["Explanation", "find_explanations"]

_ASKED: Final = (
    "activation_recompute",
    "selective_recompute",
    "tensor_par_overlap",
    "data_par_overlap",
    "expert_overlap",
    "pipeline_overlap",
    "tensor_par_comm_type",
    "zero_stage",
    "attention_kernel",
    "launch",
    "gradient_datatype",
    "optimizer_datatype",
    "fp8_param_gather",
    "token_dispatcher",
    "dispatch_datatype",
    "context_par_comm",
    "fused_activation",
)
"""Settings that a run may have unnoticed, because a framework decides them or a flag is forgotten; not the degrees of
parallelism, which its log prints."""
_COMMUNICATIONS: Final = ("ar", "rs_ag")
"""Exchanges among tensor-parallel GPUs that frameworks have: without and with sequence parallelism."""
_IMBALANCES: Final = (125, 150, 200)
"""Loads of the busiest expert rank that are tried [% of the mean]. Source: stated by us."""
_CLOSED: Final = 0.5
"""Part of the difference that a change leaves at most, as logarithms of the figure. Source: stated by us."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """A change of one setting, with the figure that is predicted with it."""

    changes: Mapping[str, tuple[Any, Any]]
    """Old and new value by field."""
    predicted: float
    difference: float
    """Measured figure over this prediction, less 1."""


def find_explanations(
    scenario: Scenario, row: Mapping[str, Any], statistic: str, measured: float, most: int = 3
) -> list[Explanation]:
    """Return single changes of an execution that explain at least half of the difference between its prediction and a
    measurement, the one that comes nearest first.

    Every prediction is the scenario's evaluation of the changed execution, which runs. That a change explains the
    figure does not prove that the run has it.

    Args:
        scenario: model, system and cost model.
        row: the execution, evaluated.
        statistic: name of the measured statistic, such as total_time.
        measured: its measured value, in the unit of the statistic.
        most: explanations to return at most.
    """
    own = {column.name: row[column.name] for column in fields_of(scenario.cost_model)}
    variants = [change for column in fields_of(scenario.cost_model) for change in _changes_of(column, own)]
    gap = abs(math.log(measured / float(row[statistic])))
    if not variants or gap == 0.0:
        return []
    found = scenario.evaluate(pd.DataFrame([{**own, **change} for change in variants]))
    listed = []
    for change, (_, told) in zip(variants, found.iterrows(), strict=True):
        if told["status"] != "ok" or not float(told[statistic]) > 0:
            continue
        ratio = measured / float(told[statistic])
        if abs(math.log(ratio)) <= _CLOSED * gap:
            changes = {name: (own[name], value) for name, value in change.items() if own[name] != value}
            listed.append(Explanation(changes, float(told[statistic]), ratio - 1.0))
    apart = {each.predicted: each for each in reversed(listed)}  # of settings that predict the same, the first
    return sorted(apart.values(), key=lambda each: abs(math.log1p(each.difference)))[:most]


def _changes_of(column: Column, own: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the fields that change with each other value of a setting."""
    name, now = column.name, own[column.name]
    if name == "expert_imbalance" and own.get("expert_par", 1) > 1:
        yield from ({name: value} for value in _IMBALANCES if value > now)
    if name not in _ASKED or not bool(applies(name, own)):
        return
    options: tuple[Any, ...] = (False, True) if column.dtype == "bool" else tuple(column.numbers or column.choices)
    for value in options or tuple(CHOICE_LABELS.get(name, ())):
        if value == now:
            continue
        if name == "zero_stage":
            yield {name: value, "optimizer_sharding": value > 0}
        elif name == "tensor_par_comm_type":
            if value in _COMMUNICATIONS:
                yield {name: value, "seq_par_ag_redo": False}
        else:
            yield {name: value}
