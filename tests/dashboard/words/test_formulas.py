"""Every formula, with the numbers put in, gives the figure that the engine computed."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import pytest

import engine
from dashboard.queries.economics_formulas import derived_formula, derived_metrics
from dashboard.words.formulas import Formula
from dashboard.words.formulas import formula as written_out
from engine.columns import STATISTICS, by_name, value_of
from engine.cost_models.calculon import formulas
from engine.cost_models.calculon.formula_table import EXPRESSIONS, LAYER_SUMS
from engine.cost_models.formulas import Untold, evaluate_text
from hardware import System
from models import Model
from tests import reference
from tests.dashboard.page_runs import exploration


def formula(name: str, row: dict[Any, Any], model: Model, system: System) -> Formula | None:
    found = formulas.formula(name, row, model, system)
    return None if isinstance(found, Untold) else written_out(by_name(name), found)


@cache
def executions() -> list[dict[Any, Any]]:
    found = exploration()
    ids = found.rows.table(["id"])["id"].to_numpy()
    chosen = np.random.default_rng(3).choice(ids, 40, replace=False)
    return found.evaluate_ids(np.sort(chosen)).to_dict("records")


@pytest.mark.parametrize("name", list(EXPRESSIONS))
def test_formulas_give_the_figures(name: str) -> None:
    scenario = exploration().scenario
    for row in executions():
        found = formula(name, row, scenario.model, scenario.system)
        assert found is not None
        if math.isfinite(row[name]):
            scale = row["total_time"] if found.column.unit == "s" else 0.0
            assert found.value == pytest.approx(row[name], rel=1e-9, abs=1e-12 * scale), found.numbers


@pytest.mark.parametrize("cost_model", ["calculon", "calibrated"])
def test_formulas_of_derived_figures_give_what_executions_are_ranked_by(cost_model: str) -> None:
    found = engine.explore(
        "gpt3-13B",
        "h100_80g_sxm",
        num_procs=16,
        max_batch_size=16,
        datatype="bfloat16",
        cost_model=cost_model,
        limits={"tensor_par": [2, 4], "pipeline_par": [2], "microbatch_size": [1]},
    )
    ids = found.rows.table(["id"])["id"].to_numpy()
    rows = found.evaluate_ids(ids[:: len(ids) // 40]).to_dict("records")
    known = derived_metrics(found.scenario)
    assert set(known) >= {"mfu", "mfu_causal", "tokens", "usd", "energy", "bubble_share", "comm_exposed_share"}
    for name, metric in known.items():
        for row in rows:
            written = derived_formula(metric, row, found.scenario)
            assert written.value == pytest.approx(metric.of(value_of(metric.statistic, row)), rel=1e-12), name
            assert all(value for _, value, _ in written.parts)


def test_layer_sums_are_sums_of_the_layer_table() -> None:
    scenario = exploration().scenario
    for row in executions()[::6]:
        layers = engine.operations(scenario.model, scenario.system, row, cost_model="calculon")
        for name, column in LAYER_SUMS.items():
            assert layers[column].sum() == pytest.approx(row[name], rel=1e-9), name


def test_formulas_hold_in_inference_and_on_uneven_pipelines() -> None:
    limits = {"training": [True, False], "uneven_pipelines": True, "pipeline_par": [1, 2, 3]}
    found = engine.explore("gpt3-13B", "a100_80g", num_procs=24, max_batch_size=24, datatype="float16", limits=limits)
    ids = found.rows.table(["id"])["id"].to_numpy()
    rows = found.evaluate_ids(np.random.default_rng(5).choice(ids, 16, replace=False)).to_dict("records")
    for row in rows:
        for name in EXPRESSIONS:
            written = formula(name, row, found.scenario.model, found.scenario.system)
            assert written is not None
            if not row["training"] and name == "bubble_time":
                continue  # the reference charges the latency of a backward transfer there
            if math.isfinite(row[name]):
                scale = row["total_time"] if written.column.unit == "s" else 0.0
                assert written.value == pytest.approx(row[name], rel=1e-9, abs=1e-12 * scale), (name, written.numbers)


def test_formulas_read_as_people_write_them() -> None:
    row = exploration().best
    assert row is not None
    scenario = exploration().scenario
    found = formula("sample_rate", row, scenario.model, scenario.system)
    assert found is not None
    assert found.expression == "batch_size ÷ total_time"
    assert found.numbers.startswith(f"{row['batch_size']} ÷ ")
    assert {part[0] for part in found.parts} == {"batch_size", "total_time"}
    assert "llm.py" in found.source
    assert formula("block_fw_flops", row, scenario.model, scenario.system) is None


def test_every_figure_of_a_step_has_a_formula() -> None:
    block = {column.name for column in STATISTICS if "block" in column.name or column.name.endswith("_overlap_req")}
    overlap = {"dp_bw_overlap_req_chunk", "dp_bw_overlap_req_tail", "tp_bw_overlap_req"}
    assert {column.name for column in STATISTICS} - block - overlap <= set(EXPRESSIONS)


def test_expressions_are_arithmetic_only() -> None:
    assert evaluate_text("max(a, 2) * (b - 1) / c", {"a": 3.0, "b": 5.0, "c": 2.0}) == 6.0
    assert evaluate_text("a / b", {"a": 1.0, "b": 0.0}) == math.inf
    for text in ("a ** 2", "open('x')", "a.b", "'x'", "[1]"):
        with pytest.raises((ValueError, KeyError)):
            evaluate_text(text, {"a": 1.0})


def test_reference_has_the_same_names() -> None:
    assert set(EXPRESSIONS) <= set(reference.golden().columns)
