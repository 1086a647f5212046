"""Exploring the calibrated cost model says what evaluating every execution says, and `best` what exploring says."""

from __future__ import annotations

import re
import tracemalloc
from collections import Counter
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import engine
from engine import WorkSizes, best_of, explore_scenario, launch, working_in
from engine.columns import ALL_FIELDS, by_name, headline_of
from engine.cost_models.calibrated.fields import NOT_READ
from engine.cost_models.calibrated.modes import FIELDS_OF_A_MODE
from engine.cost_models.calibrated.space import COVERED
from engine.cost_models.registry import COST_MODELS
from engine.executions import reasons
from engine.executions.frameworks.registry import FRAMEWORK_RULES
from engine.executions.limits import LimitError
from engine.exploration.reductions import Reductions
from engine.exploration.run import slabs
from engine.exploration.workers import reduce_slabs
from engine.space.framework_cells import MOST_POINTS
from engine.store import Store
from tests.engine.cost_models.calibrated.small import (
    LLAMA,
    NAMES,
    evaluated,
    explored,
    feasible,
    model_of,
    named,
    rows_of,
    scenario,
    system_of,
)
from tests.engine.explored_with_rows import explored_with_rows

FIELDS = [column.name for column in ALL_FIELDS]
HEADLINE = headline_of("calibrated")
CELL = ["tensor_par", "pipeline_par", "data_par", "batch_size"]
MEMORY = {"memory_tier1", "memory_tier2"}
SCHEDULE = {
    "schedule_needs_microbatches",
    "schedule_needs_even",
    "schedule_needs_whole_groups",
    "schedule_against_recompute",
}


def assert_same_best(found: engine.Exploration, expected: engine.Exploration) -> None:
    pd.testing.assert_series_equal(pd.Series(found.best), pd.Series(expected.best), check_exact=True)


def assert_close(found: pd.DataFrame, expected: pd.DataFrame) -> None:
    """Headline figures agree to 1e-12; times among their sum, since a part may be what is left of larger ones."""
    step = expected["total_time"].to_numpy()
    for column in HEADLINE:
        one, other = found[column.name].to_numpy(), expected[column.name].to_numpy()
        scale = step if column.unit == "s" else np.where(np.isfinite(other), np.abs(other), 0.0)
        differs = ~((one == other) | (np.abs(one - other) <= 1e-12 * scale))
        assert not differs.any(), (column.name, one[differs][:3], other[differs][:3])


@pytest.mark.parametrize("name", NAMES)
def test_exploring_is_evaluating_every_execution(name: str) -> None:
    table, found = evaluated(name), explored(name)
    runs = table[table["status"] == "ok"]
    rows = feasible(name)
    assert rows.index.tolist() == runs.index.tolist()
    for column in ALL_FIELDS:
        assert (rows[column.name].to_numpy() == runs[column.name].to_numpy()).all(), column.name
    assert_close(rows, runs)
    counts = table["reason"].value_counts().to_dict()
    assert found.total == len(table)
    assert found.feasible == counts.pop("")
    assert found.infeasible_by_reason == dict(counts)
    assert len(rows) > 1000
    assert set(counts) >= ({"memory_tier1"} if name in ("one tier", "dispatched") else MEMORY)


@pytest.mark.parametrize("name", NAMES)
def test_best_is_the_first_of_all(name: str) -> None:
    rows = feasible(name)
    order = np.lexsort((rows.index, -rows["sample_rate"]))
    found = best_of(named(name), k=50, by_cell=True)
    assert found.top["id"].tolist() == rows.index[order[:50]].tolist()
    assert found.top["sample_rate"].tolist() == rows["sample_rate"].iloc[order[:50]].tolist()
    best = explored(name).best
    assert best is not None
    assert found["id"] == best["id"] == rows.index[order[0]]
    assert found["total_time"] == pytest.approx(rows["total_time"].iloc[order[0]], rel=1e-12)
    assert (found.total, found.feasible) == (named(name).space.total, len(rows))
    assert found.evaluated < found.feasible
    cells = found.by_cell
    assert cells is not None
    for row, cell in zip(cells.to_dict("records"), named(name).space.cells, strict=True):
        degrees = {**dict.fromkeys(CELL), "context_par": 0, "expert_par": 0, "expert_tensor_par": 0}
        inside = rows
        for field in degrees:
            inside = inside[inside[field] == getattr(cell, field)]
        assert [row[field] for field in CELL] == [getattr(cell, field) for field in CELL]
        if inside.empty:
            assert row["id"] == -1
            assert row["sample_rate"] != row["sample_rate"]
            continue
        assert row["sample_rate"] == inside["sample_rate"].max()
        assert row["id"] == inside["sample_rate"].idxmax()


@pytest.mark.parametrize("name", ["dense", "experts"])
def test_cells_hold_the_best_of_every_figure(name: str) -> None:
    rows, table, cells = feasible(name), evaluated(name), named(name).space.cells
    starts = [*named(name).space.first_ids.tolist(), len(table)]
    for metric in ("sample_rate", "proc_mem_tier1_cap_req", "ep_comm_exposed_time", "overhead_time"):
        found = explored(name).by_cell(metric)
        assert len(found) == len(cells)
        for position, row in enumerate(found.to_dict("records")):
            inside = rows.loc[starts[position] : starts[position + 1] - 1]
            everything = table.loc[starts[position] : starts[position + 1] - 1]
            assert (row["total"], row["feasible"]) == (len(everything), len(inside))
            if inside.empty:
                assert row["reason"] == ("memory_tier1" if row["shortfall_hbm_bytes"] > 0 else "memory_tier2")
                continue
            values = inside[metric]
            assert row["value"] == (values.max() if by_name(metric).better == "higher" else values.min())
            assert values[row["id"]] == row["value"]


def test_top_by_any_figure() -> None:
    rows = feasible("experts")
    for metric in ("total_time", "proc_mem_tier1_cap_req", "cp_comm_exposed_time"):
        order = np.lexsort((rows.index, rows[metric]))[:20]
        found = explored("experts").top(20, metric)
        assert found["id"].tolist() == rows.index[order].tolist()
        assert found[metric].to_numpy() == pytest.approx(rows[metric].iloc[order].to_numpy(), rel=1e-12, abs=1e-15)


@pytest.mark.parametrize("name", ["experts", "one tier"])
def test_a_stored_exploration_is_the_one_in_memory(name: str, tmp_path: Path) -> None:
    expected, rows = explored(name), feasible(name)
    by_cell = {column.name: expected.by_cell(column.name) for column in HEADLINE}
    calls: list[engine.Progress] = []
    with Store(tmp_path / "results.duckdb") as store:
        for again in (False, True):
            found = explore_scenario(named(name), store=store, progress=calls.append)
            assert bool(calls) != again
            calls.clear()
            pd.testing.assert_frame_equal(rows_of(found), rows, check_exact=True)
            assert found.infeasible_by_reason == expected.infeasible_by_reason
            assert_same_best(found, expected)
            for metric, cells in by_cell.items():
                pd.testing.assert_frame_equal(found.by_cell(metric), cells, check_exact=True)
        record = store.find(named(name).key)
        assert record is not None
        assert record.engine_version == named(name).physics == f"{COST_MODELS['calibrated'].version}, global"


def test_pieces_and_processes_make_no_difference() -> None:
    expected = explored("dense")
    with working_in(WorkSizes(points_explored=5)):
        here = explore_scenario(named("dense"), workers=1)
        space = named("dense").space
        elsewhere = Reductions.empty(space)
        for part in reduce_slabs(named("dense"), list(slabs(space)), 1):
            elsewhere.merge(part)
    assert_same_best(here, expected)
    for found in (here.reductions, elsewhere):
        np.testing.assert_array_equal(found.value, expected.reductions.value)
        np.testing.assert_array_equal(found.id, expected.reductions.id)
        np.testing.assert_array_equal(found.spread, expected.reductions.spread)
        assert found.infeasible_by_reason() == expected.infeasible_by_reason


@pytest.mark.parametrize("name", NAMES)
def test_what_is_tried_breaks_no_rule_and_nothing_is_tried_twice(name: str) -> None:
    table = evaluated(name)
    assert set(table["reason"]) <= {"", "offload_needs_three_blocks", *SCHEDULE, *MEMORY}
    read = [field for field in FIELDS if field not in NOT_READ]
    assert not table.duplicated(read).any()


def test_limits_leave_what_they_allow() -> None:
    """A limit that only narrows a field leaves the executions that it allows, with their figures."""
    everything, space, figures = feasible("dense"), named("dense"), [column.name for column in HEADLINE]
    for limits in (
        {"zero_stage": [0, 3]},
        {"context_par": 2, "tensor_par_comm_type": ["ar", "rs_ag"]},
        {"activation_recompute": "full", "weight_offload": True},
        {"microbatch_size": {"max": 2}, "data_par": [1, 2]},
        {"selective_recompute": "modules", "activation_recompute": "attn_only"},
        {"pipeline_interleaving": {"min": 3}},
        {"data_par_net": 0, "data_par": [2, 4]},
        {"data_par_overlap": False},
    ):
        within = explored_with_rows(
            engine.Scenario.of(
                space.model,
                space.system,
                num_procs=8,
                max_batch_size=4,
                datatype="bfloat16",
                limits={**space.limits, **limits},
                cost_model="calibrated",
            )
        )
        found: pd.DataFrame = within.rows.table(figures).to_pandas()
        kept = everything
        for field, limit in limits.items():
            low, high = (limit.get("min", 0), limit.get("max", 99)) if isinstance(limit, dict) else (0, 0)
            allowed = range(low, high + 1) if isinstance(limit, dict) else limit if isinstance(limit, list) else [limit]
            kept = kept[kept[field].isin(list(allowed))]
        assert len(found) == len(kept) > 50, limits
        one, other = (frame.sort_values(figures)[figures].to_numpy() for frame in (found, kept))
        np.testing.assert_array_equal(one, other)
        assert found["sample_rate"].max() <= everything["sample_rate"].max()


BALANCED = {2: (1, 2), 4: (1,)}
"""Chunks with which balanced stages leave the busiest less to do, by stages: the head of the model of 6 layers is worth
1.6 blocks."""


def listed(layers: int, tensors: tuple[int, ...]) -> pd.DataFrame:
    """What `COVERED` says is tried of a dense model on 8 processors, batch 4, without offloading: nested loops."""
    found: list[dict[str, Any]] = []
    for tensor, pipeline, context in product(tensors, (1, 2, 4, 8), (1, 2)):
        if 8 % (tensor * pipeline * context) or pipeline > layers:
            continue
        data = 8 // tensor // pipeline // context
        if data > 4:
            continue
        replicas = data * context > 1
        chunks = {1}
        for total in (layers, layers + 2):
            chunks |= {v for v in range(1, layers // pipeline + 1) if pipeline > 1 and total % (pipeline * v) == 0}
        cuts = [("even", v) for v in chunks] + [("balanced", v) for v in BALANCED.get(pipeline, ())]
        for (layout, v), micro in product(cuts, (1, 2, 4)):
            if 4 // data % micro:
                continue
            for stage, recompute, kind, comm, ring, overlap in product(
                (0, 1, 2, 3),
                ("none", "full", "attn_only"),
                ("attention", "modules", "half"),
                ("ar", "p2p_rs_ag", "rs_ag"),
                ("none", "ring"),
                (False, True),
            ):
                skipped = (
                    (stage > 0 and not replicas)
                    or (stage == 2 and pipeline > 1)
                    or (stage == 3 and not overlap)
                    or (overlap and not replicas)
                    or ((recompute == "attn_only") != (kind != "attention"))
                    or (tensor == 1 and (comm != "ar" or ring == "ring"))
                    or (comm == "p2p_rs_ag" and pipeline == 1)
                )
                if not skipped:
                    found.append(
                        {
                            "tensor_par": tensor,
                            "pipeline_par": pipeline,
                            "data_par": data,
                            "context_par": context,
                            "stage_layout": layout,
                            "pipeline_interleaving": v,
                            "microbatch_size": micro,
                            "zero_stage": stage,
                            "activation_recompute": recompute,
                            "selective_recompute": kind,
                            "tensor_par_comm_type": comm,
                            "tensor_par_overlap": ring,
                            "data_par_overlap": overlap,
                            "optimizer_sharding": stage > 0,
                            "num_procs": 8,
                            "batch_size": 4,
                            "expert_par": 1,
                            "attention_kernel": "native",
                            "launch": "fused",
                            "gradient_datatype": "float32",
                            "training": True,
                        }
                    )
    return pd.DataFrame(found)


def test_the_space_is_what_it_says_it_covers() -> None:
    limits = dict.fromkeys(("weight_offload", "activations_offload", "optimizer_offload"), False)
    layers = 6
    # 8 heads, 4 of keys and values: every divisor of 8 fits.
    space = scenario(
        model_of({**LLAMA, "layers": layers}), system_of("h100_80g_sxm", first=80, second=80), limits
    ).space
    table = space.table(np.arange(space.total))
    expected = listed(layers, (1, 2, 4, 8))
    assert set(COVERED) < set(FIELDS)
    one, other = (frame[list(expected)].astype(object) for frame in (table, expected))
    assert len(one) == len(other)
    assert Counter(map(tuple, one.to_numpy().tolist())) == Counter(map(tuple, other.to_numpy().tolist()))


@pytest.mark.parametrize(
    ("limits", "left"),
    [
        ({"training": [True, False]}, 1.0),
        ({"fused_activation": [True, False]}, 1.0),
        ({"fused_activation": [False]}, 1.0),
        ({"seq_par_ag_redo": [True, False]}, 1.0),
        ({"attention_type": ["multihead", "multiquery"]}, 1.0),
        ({"attention_type": ["multiquery"]}, 0.0),
        ({"tensor_par_overlap": ["none", "ring", "pipe"]}, 1.0),
        ({"tensor_par_overlap": ["none", "pipe"]}, 1.0),
        ({"expert_overlap": [True, False]}, 1.0),
        ({"seq_par_ag_redo": [True], "tensor_par": [1]}, 0.0),
    ],
)
def test_limits_widen_nothing_that_cannot_be_or_cannot_be_told_apart(limits: dict[str, Any], left: float) -> None:
    chosen = named("dense")
    space = scenario(chosen.model, chosen.system, {**chosen.limits, **limits}).space
    assert space.total == left * chosen.space.total
    # One of 31, evenly: cells and modes of every kind are among them.
    table = scenario(chosen.model, chosen.system).evaluate(space.table(np.arange(0, space.total, 31)))
    assert set(table["status"]) <= {"ok", "infeasible"}
    found = best_of(scenario(chosen.model, chosen.system, {**chosen.limits, **limits}))
    if left == 1.0:
        best = explored("dense").best
        assert best is not None
        assert found["sample_rate"] == best["sample_rate"]


def test_one_head_of_keys_and_values_is_multiquery() -> None:
    model, machine = model_of({**LLAMA, "kv_heads": 1}), system_of("h100_80g_sxm", first=80, second=0)
    spaces = [
        scenario(model, machine, limits).space
        for limits in ({}, {"attention_type": "multiquery"}, {"attention_type": ["multihead", "multiquery"]})
    ]
    assert spaces[0].total == spaces[1].total == spaces[2].total > 0
    assert set(engine.evaluate(model, machine, spaces[1].table(np.arange(500)))["status"]) == {"ok"}


def test_heads_of_keys_and_values_bound_tensor_parallelism() -> None:
    """6 heads of keys and values under 12 of queries: 2, 3 and 6 divide them, 12 is a multiple, 4 is neither."""
    model = model_of({**LLAMA, "hidden": 1536, "heads": 12, "kv_heads": 6, "ffn": 3072})
    space = scenario(model, system_of("h100_80g_sxm", first=80, second=0), num_procs=12, max_batch_size=12).space
    assert sorted({cell.tensor_par for cell in space.cells}) == [1, 2, 3, 6, 12]


def test_spaces_without_executions() -> None:
    for limits in ({"tensor_par": 64}, {"expert_par": 2}, {"context_par": 3}, {"zero_stage": 2, "pipeline_par": 8}):
        chosen = scenario(model_of(LLAMA), system_of("h100_80g_sxm", first=80, second=80), limits)
        assert chosen.space.total == 0
        found = explore_scenario(chosen)
        assert (found.total, found.feasible, found.best) == (0, 0, None)
        assert dict(best_of(chosen)) == {}


def test_nothing_fits() -> None:
    chosen = replace(named("dense"), system=system_of("h100_80g_sxm", first=1.0, second=1.0))
    found = explore_scenario(chosen)
    assert (found.feasible, found.best, dict(best_of(chosen))) == (0, None, {})
    table = chosen.evaluate(chosen.space.table(np.arange(0, chosen.space.total, 7)))
    assert set(table["reason"]) <= {"offload_needs_three_blocks", *SCHEDULE, *MEMORY}
    assert set(found.infeasible_by_reason) == set(table["reason"])
    assert all(reasons.BY_CODE[code].status == "infeasible" for code in found.infeasible_by_reason)


WIDEST: dict[str, Any] = {
    column.name: list(column.numbers or range(60)) if column.dtype == "int64" else list(column.choices or (False, True))
    for column in map(by_name, FIELDS_OF_A_MODE)
}
"""Limits that allow every value of every field of a mode."""
_NAMED = r"\w[^()]* \([a-z_]+\)"
NAMES_FIELDS = re.compile(rf"; allow fewer values of {_NAMED}, {_NAMED} or {_NAMED}\.$")
"""Fields to narrow, by label and name."""


@pytest.mark.parametrize("model", ["llama-3.1-70B", "deepseek-v3"])
def test_limits_however_wide_are_numbered_or_refused_in_bounded_memory(model: str) -> None:
    draw, numbered = np.random.default_rng(7), []
    for share in (0.1, 0.3, 0.3, 0.6, 0.6, 1.0):
        limits = {name: values for name, values in WIDEST.items() if draw.random() <= share}
        asked = engine.Scenario.of(
            model, "h100_80g_sxm", num_procs=8, max_batch_size=8, datatype="bfloat16", limits=limits
        )
        tracemalloc.start()
        refusal = ""
        try:
            numbered.append(asked.space.total > 0)
        except LimitError as refused:
            refusal = str(refused)
            numbered.append(False)
        assert numbered[-1] or NAMES_FIELDS.search(refusal)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert most < 2**31, limits
    assert numbered[0]
    assert not numbered[-1]


@pytest.mark.parametrize("framework", FRAMEWORK_RULES)
def test_points_of_a_framework_are_counted_before_they_are_listed(framework: str) -> None:
    rich = {"batch_size": [720_720 * times for times in range(1, 16)], "schedule": list(by_name("schedule").choices)}
    few = {**rich, "tensor_par": 1, "batch_size": 5760}
    asked: dict[str, Any] = {"num_procs": 720, "max_batch_size": 2**30, "datatype": "bfloat16"}
    of_any = engine.Scenario.of("qwen3-30B-A3B", "h100_80g_sxm", **asked, limits=rich)
    assert sum(len(cell.interleavings) * len(cell.microbatches) for cell in of_any.space.cells) > MOST_POINTS
    with pytest.raises(LimitError, match=NAMES_FIELDS):
        assert launch.with_framework(of_any, framework).space
    narrow = engine.Scenario.of("qwen3-30B-A3B", "h100_80g_sxm", **asked, limits=few)
    assert launch.with_framework(narrow, framework).space.total


def test_batches_are_counted_before_cells_are_made() -> None:
    asked: dict[str, Any] = {"num_procs": 512, "max_batch_size": 2**20, "datatype": "bfloat16"}
    assert engine.Scenario.of("llama-3-8B", "h100_80g_sxm", **asked).space.total  # lists the modes
    wide = engine.Scenario.of("llama-3-8B", "h100_80g_sxm", **asked, limits={"batch_size": {"min": 1}})
    tracemalloc.start()
    with pytest.raises(LimitError, match=r"^The limits allow over 100,000 .* \(batch_size\); .*\.$"):
        assert wide.space
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 2**20  # 100,000 cells have some 20 MB
