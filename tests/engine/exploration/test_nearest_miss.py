"""What a cell in which nothing fits lacks: of every execution that memory rejects, the one that lacks least in all."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import engine
from engine.exploration.reductions import Reductions
from engine.store import Store
from hardware import System
from tests.engine.cost_models.calibrated.small import LLAMA, model_of, system_of

GIB = 2.0**30
CELL = ["tensor_par", "pipeline_par", "data_par", "batch_size"]
LIMITS = {"pipeline_par": [1, 2, 4], "tensor_par": [1, 2, 4], "tensor_par_overlap": "none", "data_par_overlap": False}
CAPACITIES = [(0.8, 0.05), (1.5, 0.2), (2.5, 0.5)]
"""Of both tiers [GiB]: so little that cells lack HBM, host memory or both."""
PARTS = ["shortfall_hbm_bytes", "shortfall_host_bytes"]
ALONE = ["hbm_alone_bytes", "host_alone_bytes"]


def scenario(cost_model: str, first: float, second: float) -> engine.Scenario:
    return engine.Scenario.of(
        model_of(LLAMA),
        system_of("h100_80g_sxm", first=first, second=second),
        num_procs=8,
        max_batch_size=4,
        datatype="bfloat16",
        cost_model=cost_model,
        limits=LIMITS,
    )


def lacking(chosen: engine.Scenario) -> pd.DataFrame:
    """The degrees of every execution, why it does not run, and what it lacks of either tier [bytes], one by one."""
    fields = chosen.space.table(np.arange(chosen.space.total))
    plenty = with_memory(chosen.system, 1e6, 1e6)
    needed = engine.evaluate(chosen.model, plenty, fields, cost_model=chosen.cost_model)
    names = [*CELL, "context_par"] if chosen.cost_model == "calibrated" else CELL
    result: pd.DataFrame = fields[names].copy()
    result["reason"] = chosen.evaluate(fields)["reason"].astype(str).to_numpy()
    for part, tier, memory in zip(PARTS, (1, 2), (chosen.system.mem1, chosen.system.mem2), strict=True):
        need = needed[f"proc_mem_tier{tier}_cap_req"].to_numpy()
        result[part] = [max(0.0, one - memory.capacity_gib * GIB) for one in need.tolist()]
    return result


def with_memory(system: System, first: float, second: float) -> System:
    """A system with other capacities [GiB]."""
    capacity = (("mem1", first), ("mem2", second))
    tiers = {name: getattr(system, name).model_copy(update={"capacity_gib": gib}) for name, gib in capacity}
    return system.model_copy(update=tiers)


@pytest.mark.parametrize(("first", "second"), CAPACITIES)
@pytest.mark.parametrize("cost_model", ["calculon", "calibrated"])
def test_no_execution_of_a_cell_lacks_less(cost_model: str, first: float, second: float) -> None:
    chosen = scenario(cost_model, first, second)
    every, found = lacking(chosen), engine.explore_scenario(chosen).by_cell()
    starts = [*chosen.space.first_ids.tolist(), chosen.space.total]
    kinds = set()
    for position, row in enumerate(found.to_dict("records")):
        inside = every.iloc[starts[position] : starts[position + 1]]
        if row["feasible"]:
            assert all(row[part] != row[part] for part in (*PARTS, *ALONE))
            continue
        inside = inside[inside["reason"].isin(["memory_tier1", "memory_tier2"])]
        in_all = inside[PARTS].sum(axis=1)
        assert row["shortfall_bytes"] == in_all.min()
        assert (inside.loc[in_all == in_all.min(), PARTS] == [row[part] for part in PARTS]).all(axis=1).any()
        for part, other, name in zip(PARTS, PARTS[::-1], ALONE, strict=True):
            enough = inside.loc[inside[other] == 0, part]
            assert row[name] == enough.min() if len(enough) else row[name] != row[name]
        lacks = tuple(row[part] > 0 for part in PARTS)
        kinds.add(lacks)
        assert row["reason"] == ("memory_tier1" if lacks[0] else "memory_tier2")
        for word, lack in zip(("B of HBM", "B of host memory"), lacks, strict=True):
            assert (word in row["reason_text"]) == lack
    assert kinds  # a system on which everything fits says nothing


def test_every_kind_of_want_is_met() -> None:
    kinds = set()
    for first, second in CAPACITIES:
        cells = engine.explore_scenario(scenario("calibrated", first, second)).by_cell()
        kinds |= {tuple(row) for row in (cells.loc[cells["feasible"] == 0, PARTS] > 0).to_numpy().tolist()}
    assert kinds == {(True, False), (False, True), (True, True)}


@pytest.mark.parametrize("cost_model", ["calculon", "calibrated"])
def test_that_much_more_memory_lets_one_run_and_less_does_not(cost_model: str) -> None:
    chosen = scenario(cost_model, *CAPACITIES[1])
    cells = engine.explore_scenario(chosen).by_cell()
    none = cells[cells["feasible"] == 0]
    none = none.groupby((none[PARTS] > 0).astype(str).sum(axis=1)).head(2)  # two of every kind
    assert len(none) >= 2
    for position, row in zip(none.index.tolist(), none.to_dict("records"), strict=True):
        ways = [[row[part] for part in PARTS], [row[ALONE[0]], 0.0], [0.0, row[ALONE[1]]]]
        for more in ways:
            for share, runs in ((1 + 1e-9, True), (1 - 1e-9, False)):
                if sum(more) != sum(more):
                    continue
                capacity = [have + share * lack / GIB for have, lack in zip(CAPACITIES[1], more, strict=True)]
                there = engine.explore_scenario(scenario(cost_model, *capacity)).by_cell()
                assert (there.loc[position, "feasible"] > 0) == runs


@pytest.mark.parametrize("cost_model", ["calculon", "calibrated"])
def test_a_store_of_before_is_read_and_completed(
    cost_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = scenario(cost_model, *CAPACITIES[2])
    expected = engine.explore_scenario(chosen).by_cell()
    kept = Reductions.to_tables

    def of_before(reductions: Reductions) -> dict[str, pa.Table]:
        tables = kept(reductions)
        cells = (
            tables["cells"]
            .rename_columns([name.replace("lacking_", "excess_") for name in tables["cells"].column_names])
            .drop_columns(["alone_tier1", "alone_tier2"])
        )
        return tables | {"cells": cells}

    with Store(tmp_path / "results.duckdb") as store:
        monkeypatch.setattr(Reductions, "to_tables", of_before)
        pd.testing.assert_frame_equal(engine.explore_scenario(chosen, store=store).by_cell(), expected)
        monkeypatch.undo()
        assert "excess_tier1" in store.reductions(chosen.key)["cells"].column_names
        pd.testing.assert_frame_equal(engine.explore_scenario(chosen, store=store).by_cell(), expected)
