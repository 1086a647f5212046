"""Executions and plans are named by all their degrees, and one question has one figure on a page."""

from __future__ import annotations

import math

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.executions.execution_names import DEGREES, execution_name
from engine.planners import elastic
from engine.planners.elastic.plan_names import PlanName, plan_title, plan_titles

powers = st.integers(0, 12).map(lambda power: 2**power)
degrees = st.fixed_dictionaries(dict.fromkeys(DEGREES, st.one_of(st.integers(1, 200), powers)))


@given(degrees, st.sampled_from([None, math.nan, 1]))
def test_a_name_has_every_degree_that_is_not_one(execution: dict[str, int], absent: float | None) -> None:
    """Two executions of one name have the same degrees, also where the cost model does not have them all."""
    name = execution_name(execution)
    said = {short: int(number.replace(",", "")) for short, number in (part.split(" ") for part in _parts(name))}
    assert {**dict.fromkeys(DEGREES.values(), 1), **said} == {DEGREES[field]: execution[field] for field in DEGREES}
    missing = {field: value if value != 1 else absent for field, value in execution.items()}
    plain = {field: execution[field] for field in ("tensor_par", "pipeline_par", "data_par")}
    assert execution_name({**missing, **plain}) == name


@given(degrees)
def test_factors_of_a_name_multiply_to_the_processors(execution: dict[str, int]) -> None:
    factors, _, _ = execution_name(execution).partition(" · ")
    found = math.prod(int(each.split(" ")[1].replace(",", "")) for each in factors.split(" × "))
    assert found == math.prod(execution[name] for name in ("tensor_par", "pipeline_par", "data_par", "context_par"))


def _parts(name: str) -> list[str]:
    return [each for part in name.split(" · ") for each in part.split(" × ")]


@given(powers, powers, powers)
def test_plans_are_named_in_words(pipeline: int, tensor: int, data: int) -> None:
    """1232 is neither a number nor a name: with its GPUs any digits read as their degrees."""
    plan = PlanName(pipeline, tensor, data)
    assert plan.title == execution_name({"tensor_par": tensor, "pipeline_par": pipeline, "data_par": data})
    assert plan_title(plan.text, pipeline * tensor * data) == plan.title
    table = pd.DataFrame({"plan": [plan.text, "", "zero-offload+gc"], "gpus": [pipeline * tensor * data, 1, 2]})
    assert plan_titles(table, "plan") == [plan.title, "", "ZeRO-Offload+GC"]


def test_plans_of_library_models_are_named_as_executions() -> None:
    """Seven nodes of eight: context parallel 2 was missing from the name."""
    table = elastic.model_curve("llama-3-8B", "h100_80g_sxm", batch=64, gpus=[8, 56])
    for row in table.to_dict("records"):
        parts = [int(each.split(" ")[1]) for each in row["raw_plan"].partition(" · ")[0].split(" × ")]
        assert math.prod(parts) == row["gpus"], row["raw_plan"]


@settings(max_examples=20, deadline=None)
@given(st.sampled_from([1, 2, 4, 8, 16, 24, 32]), st.integers(1, 8), st.sampled_from(["artifact", "physical"]))
def test_a_curve_and_a_timeline_tell_one_figure(gpus: int, threads: int, variant: str) -> None:
    nodes = (8,) * (gpus // 8) + ((gpus % 8,) if gpus % 8 else ())
    curve = elastic.curve("llama7_bsz16", values=[gpus], gpus_per_node=8, cpu_threads=threads, variant=variant)
    line = elastic.timeline("llama7_bsz16", [elastic.Phase(60.0, nodes, threads)], variant=variant, basis="predicted")
    row = line.table.iloc[0]
    assert curve["raw_plan"].iloc[0] == (row["plan"] or "")
    rate = curve["raw_best"].iloc[0]
    assert (0.0 if math.isnan(rate) else rate) == pytest.approx(row["throughput"])


def test_a_curve_and_phases_of_a_library_model_tell_one_figure() -> None:
    curve = elastic.model_curve("llama-3-8B", "h100_80g_sxm", batch=64, gpus=[8, 56, 64])
    phases = elastic.model_phases(
        "llama-3-8B", "h100_80g_sxm", [elastic.Phase(600.0, (8,) * nodes) for nodes in (1, 7, 8)], batch=64
    )
    assert phases["throughput"].tolist() == curve["raw_best"].tolist()
    assert phases["plan"].tolist() == curve["raw_plan"].tolist()
