"""An execution as a file: with every field of its cost model, and as Calculon reads it where it has words for it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import pandas as pd

import engine
from dashboard.words.numbers import format_value
from engine import Scenario
from engine.columns import by_name, choice_label, fields_of
from models.represent import obstacles

__all__ = ["ForCalculon", "execution_json", "for_calculon"]


class ForCalculon(NamedTuple):
    """What Calculon makes of an execution of the calibrated cost model."""

    text: str | None
    """The file; None where Calculon has no such execution."""
    sentence: str
    """Why not, or what Calculon's own model says of the execution."""


def execution_json(row: Mapping[Any, Any], cost_model: str = "calculon") -> str:
    """An execution as a JSON file of the fields of a cost model, in order."""
    kinds = {"int64": int, "bool": bool, "str": str, "float64": float}
    fields = {column.name: kinds[column.dtype](row[column.name]) for column in fields_of(cost_model)}
    return json.dumps(fields, indent=2)


def for_calculon(scenario: Scenario, row: Mapping[Any, Any]) -> ForCalculon:
    """An execution of the calibrated cost model as Calculon's execution file.

    Refused, with the reason, where the file would be of another execution: where Calculon cannot express the model or
    a field, or where its rules do not know such an execution.
    """
    architecture = scenario.model.architecture
    if scenario.model.block is None:
        has = " and ".join(obstacles(architecture)) if architecture else "no recorded shape"
        return ForCalculon(None, f"No file for Calculon: it has no words for {has}.")
    if missing := _not_expressed(row):
        return ForCalculon(None, f"No file for Calculon: it does not have {' and '.join(missing)}.")
    text = execution_json(row)
    table = pd.DataFrame([json.loads(text)])
    found = engine.evaluate(scenario.model, scenario.system, table, cost_model="calculon").iloc[0]
    if found["status"] == "invalid":
        return ForCalculon(None, f"No file for Calculon: it refuses this execution. {found['reason_text']}")
    if found["status"] != "ok":
        return ForCalculon(text, f"Calculon's own model finds that it does not run: {found['reason_text']}")
    step = format_value("total_time", found["total_time"])
    return ForCalculon(text, f"Calculon's own model finds that it runs, with a step of {step}.")


def _not_expressed(row: Mapping[Any, Any]) -> list[str]:
    """Choices of the execution that make it another one to Calculon, in words: "context parallelism of 4"."""
    found = [
        f"{by_name(name).label[0].lower()}{by_name(name).label[1:]}ism of {int(row[name])}"
        for name in ("context_par", "expert_par", "expert_tensor_par")
        if int(row[name]) > 1
    ]
    if int(row["zero_stage"]) > 1:
        found.append(f"ZeRO stage {int(row['zero_stage'])}")
    selective = str(row["selective_recompute"])
    if row["activation_recompute"] == "attn_only" and selective != "attention":
        found.append(f"selective recomputation of {choice_label('selective_recompute', selective)}")
    return found
