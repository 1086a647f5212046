"""An execution as a file: with every field of its cost model, and in the format of another program if possible."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import pandas as pd

import engine
from dashboard.words.numbers import format_value
from engine import Scenario
from engine.columns import by_name, choice_label, fields_of
from engine.cost_models.contract import CostModel
from engine.cost_models.registry import COST_MODELS, cost_model_of

__all__ = ["ForReference", "execution_json", "for_reference", "reference_models"]


class ForReference(NamedTuple):
    """An execution in the format of another program."""

    text: str | None
    """The file; None if the program has no such execution."""
    sentence: str
    """Reason for a missing file, or the result of the program's own model for the execution."""


def execution_json(row: Mapping[Any, Any], cost_model: str) -> str:
    """Returns an execution as a JSON file of the fields of a cost model, in order."""
    kinds = {"int64": int, "bool": bool, "str": str, "float64": float}
    fields = {column.name: kinds[column.dtype](row[column.name]) for column in fields_of(cost_model)}
    return json.dumps(fields, indent=2)


def reference_models(scenario: Scenario) -> list[CostModel]:
    """Returns the other cost models that reproduce a program, whose execution files can be written too."""
    own = cost_model_of(scenario)
    return [each for each in COST_MODELS.values() if each.reference and each is not own]


def for_reference(scenario: Scenario, row: Mapping[Any, Any], other: CostModel) -> ForReference:
    """Returns an execution as the execution file of the program that another cost model reproduces.

    Refused, with the reason, if the file would describe another execution: if the program cannot express the model or a
    field, or if its rules reject the execution.
    """
    program = other.reference.split()[0]
    refused = f"No file for {program}:"
    if unsupported := other.unsupported(scenario.model):
        return ForReference(None, f"{refused} {' '.join(unsupported)}")
    if missing := _not_expressed(row, other):
        return ForReference(None, f"{refused} it does not support {' and '.join(missing)}.")
    text = execution_json(row, other.name)
    table = pd.DataFrame([json.loads(text)])
    found = engine.evaluate(scenario.model, scenario.system, table, cost_model=other.name).iloc[0]
    if found["status"] == "invalid":
        return ForReference(None, f"{refused} it refuses this execution. {found['reason_text']}")
    if found["status"] != "ok":
        return ForReference(text, f"{program}'s own model finds that it does not run: {found['reason_text']}")
    step = format_value("total_time", found["total_time"])
    return ForReference(text, f"{program}'s own model finds that it runs, with a step of {step}.")


def _not_expressed(row: Mapping[Any, Any], other: CostModel) -> list[str]:
    """Return choices that the other cost model has no field for, in words: "context parallelism of 4"."""
    there = {column.name for column in other.columns.fields}
    found = [
        f"{by_name(name).label[0].lower()}{by_name(name).label[1:]}ism of {int(row[name])}"
        for name in ("context_par", "expert_par", "expert_tensor_par")
        if name not in there and int(row.get(name, 1)) > 1
    ]
    if "zero_stage" not in there and int(row.get("zero_stage", 0)) > 1:
        found.append(f"ZeRO stage {int(row['zero_stage'])}")
    selective = str(row.get("selective_recompute", "attention"))
    if "selective_recompute" not in there and row["activation_recompute"] == "attn_only" and selective != "attention":
        found.append(f"selective recomputation of {choice_label('selective_recompute', selective)}")
    return found
