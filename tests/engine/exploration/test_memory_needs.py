"""The least memory of a cell is that of its least demanding execution, found by trying them all."""

from __future__ import annotations

import numpy as np
import pytest

import engine
import hardware
from engine.exploration.memory_requirements import least_memory
from tests.engine.explored_with_rows import explored_with_rows

SMALL = {"num_procs": 8, "max_batch_size": 8, "datatype": "float16"}


LIMITS = [{}, {"weight_offload": False, "optimizer_offload": False}, {"batch_size": [4, 8], "training": [True, False]}]


@pytest.mark.parametrize("tier", [1, 2])
@pytest.mark.parametrize("limits", LIMITS)
def test_no_execution_of_a_cell_needs_less(limits: dict[str, object], tier: int) -> None:
    system = hardware.load("h100_80g_nvl8")
    if tier == 2:  # so little that some must offload
        system = system.model_copy(update={"mem1": system.mem1.model_copy(update={"capacity_gib": 12.0})})
    name = f"mem{tier}"
    endless = system.model_copy(update={name: getattr(system, name).model_copy(update={"capacity_gib": 1e9})})
    need = f"proc_mem_tier{tier}_cap_req"
    found = explored_with_rows(engine.Scenario.of("gpt3-13B", endless, **SMALL, limits=limits))  # type: ignore[arg-type]
    table = found.rows.table(["tensor_par", "pipeline_par", need]).to_pandas()
    least = table.groupby(["tensor_par", "pipeline_par"])[need].min()
    scenario = engine.Scenario.of("gpt3-13B", system, **SMALL, limits=limits)  # type: ignore[arg-type]
    needs = least_memory(scenario.space, tier).set_index(["tensor_par", "pipeline_par"])
    assert set(needs.index) == set(least.index)
    assert tier == 1 or "weight_offload" in limits or (least > 0).any()
    assert np.array_equal(needs["need"].loc[least.index].to_numpy(), least.to_numpy())


def test_ids_need_what_is_said_wherever_they_run() -> None:
    scenario = engine.Scenario.of("gpt3-13B", "a100_80g", **SMALL)  # type: ignore[arg-type]
    needs = least_memory(scenario.space)
    rows = engine.evaluate(scenario.model, scenario.system, scenario.space.table(needs["id"].to_numpy()))
    assert set(rows.loc[rows["status"] != "ok", "reason"]) <= {"memory_tier1"}
    runs = (rows["status"] == "ok").to_numpy()
    assert np.array_equal(rows.loc[runs, "proc_mem_tier1_cap_req"].to_numpy(), needs.loc[runs, "need"].to_numpy())


def test_cells_that_no_memory_helps_are_left_out() -> None:
    scenario = engine.Scenario.of(
        "gpt3-13B",
        "h100_80g_nvl8",
        **SMALL,
        limits={"pipeline_par": 40, "tensor_par": 1},  # type: ignore[arg-type]
    )
    assert len(least_memory(scenario.space)) == 0
