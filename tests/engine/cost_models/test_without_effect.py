"""What a cost model does not read of a system is said, and what it reads is not: each value changed, one by one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pydantic import BaseModel

import engine
import hardware
from engine import Scenario
from engine.cost_models.registry import COST_MODELS, cost_models_ignoring
from hardware import System

CASES = {"calibrated": ("mixtral-8x7B", "bfloat16"), "calculon": ("gpt3-6.7B", "float16")}
SYSTEM = hardware.load("h100_80g_sxm_pods")
APART = {
    "name",
    "title",
    "source",
    "assumptions",
    "unverified_fields",
    "notes",
    "derived_from",
    "changes",
    "cost_model",
}
"""What describes the description."""
OF_COSTS = ("accelerator.usd_per_h", "accelerator.usd_source", "accelerator.name")
OF_PLANNERS = (".name", ".within_node")
"""What names a network, and says what a node has inside, which cost models do not ask."""
SMALLER = ("efficiency", "processor_usage", "size", "capacity_gib")
"""Values that become an eighth; others are doubled."""
SELDOM = {"calculon": {"networks.0.must_be_filled", "networks.1.must_be_filled", "networks.2.must_be_filled"}}
"""Values whose effect needs executions that these tables do not have."""


def leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, BaseModel | Mapping):
        for key, child in value if isinstance(value, BaseModel) else value.items():
            yield from leaves(child, f"{path}.{key}".lstrip("."))
    elif isinstance(value, tuple) and value and isinstance(value[0], BaseModel):
        for at, child in enumerate(value):
            yield from leaves(child, f"{path}.{at}")
    else:
        yield path, value


def paths(datatype: str) -> list[tuple[str, Any]]:
    found = [each for each in leaves(SYSTEM, "") if each[0].split(".")[0] not in APART and each[0] not in OF_COSTS]
    found = [each for each in found if not each[0].endswith(OF_PLANNERS)]
    return [each for each in found if each[0].split(".")[0] not in ("matrix", "vector") or f".{datatype}." in each[0]]


def changed(path: str, value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, tuple):
        return [[threshold, share / 2] for threshold, share in value]
    if isinstance(value, str):
        return {"no_overlap": "roofline", "hopper": "ampere"}[value]
    if value is None:
        return -0.5
    factor = 1 / 8 if path.endswith(SMALLER) else 2
    return int(value * factor) if isinstance(value, int) else value * factor


@cache
def table_of(cost_model: str) -> pd.DataFrame:
    """Executions of a space of two tiers and of one of three, of which every fourth needs what is beyond a pod."""
    model, datatype = CASES[cost_model]
    tables = []
    for processors in (64, 6_144):
        space = Scenario.of(
            model, SYSTEM, num_procs=processors, max_batch_size=processors, datatype=datatype, cost_model=cost_model
        ).space
        tables.append(space.table(np.linspace(0, space.total - 1, 1_500).astype(np.int64)))
    # What is fastest on a system is chosen where a table leaves the kernel open.
    return pd.concat(tables, ignore_index=True).drop(columns="attention_kernel", errors="ignore")


def figures(cost_model: str, system: System) -> pd.DataFrame:
    model, _ = CASES[cost_model]
    found = engine.evaluate(model, system, table_of(cost_model), cost_model=cost_model)
    return found.select_dtypes("number").assign(reason=found["reason"].astype(str))


@pytest.mark.parametrize("cost_model", CASES)
def test_values_without_effect_are_those_that_are_said_to_have_none(cost_model: str) -> None:
    assert set(CASES) == set(COST_MODELS)
    before = figures(cost_model, SYSTEM)
    wrong = []
    for path, value in paths(CASES[cost_model][1]):
        edited = hardware.edited(SYSTEM, {path: changed(path, value)})
        same = figures(cost_model, edited).equals(before)
        seldom = same and path in SELDOM.get(cost_model, ())
        if not seldom and same != (cost_model in cost_models_ignoring(path)):
            wrong.append(f"{path} has {'no' if same else 'an'} effect")
    assert not wrong, wrong
