"""Laws of executions with all fields, in random worlds: memory never grows with what saves it, searches are exact."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import hardware
from engine import Scenario
from engine.columns import by_name
from tests.properties.test_better_hardware import drawn

ROWS = 3_000
LARGEST = 20_000
"""Most executions of a space that is evaluated whole."""
RECOMPUTE = "activation_recompute"
KINDS = [("attn_only", word) for word in by_name("selective_recompute").choices] + [("full", "attention")]


def roomy(scenario: Scenario) -> Scenario:
    """The same scenario with memory for every execution, so that all have figures."""
    return replace(scenario, system=hardware.edited(scenario.system, {"mem1.capacity_gib": 1e7}))


def taken(scenario: Scenario, table: pd.DataFrame, **fields: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Bytes of the fullest processor with these fields instead [rows]; NaN where they do not go together."""
    found = scenario.evaluate(table.assign(**fields))
    needed = found["proc_mem_tier1_cap_req"].to_numpy(np.float64)
    return np.where((found["status"] == "ok").to_numpy(), needed, np.nan)


@pytest.mark.parametrize("seed", range(5))
def test_no_execution_takes_more_memory_with_more_recomputation_or_sharding(seed: int) -> None:
    draw, compared = np.random.default_rng([seed, 7]), 0
    for _ in range(3):
        scenario = roomy(drawn(draw)[0])
        table = scenario.space.table(draw.integers(0, scenario.space.total, ROWS))
        offloads = ["weight_offload", "activations_offload", "optimizer_offload"]
        # Fully sharded training keeps gradients in 32 bits, in whatever datatype they are exchanged.
        table = table.assign(**dict.fromkeys(offloads, False), data_par_overlap=True, gradient_datatype="float32")
        alone = (table["data_par"] * table["context_par"] == 1).to_numpy()
        table.loc[alone, ["data_par_overlap", "optimizer_sharding"]] = False
        table.loc[alone, "zero_stage"] = 0
        whole = taken(scenario, table, **{RECOMPUTE: "none", "selective_recompute": "attention"})
        stages = [taken(scenario, table, zero_stage=stage, optimizer_sharding=stage > 0) for stage in range(4)]
        # Stage 2 is impossible with a pipeline, so that stage 3 follows stage 1.
        pairs = [(f"ZeRO {one + 1}", stages[one], stages[one + 1]) for one in range(3)]
        pairs += [("ZeRO 3 after 1", stages[1], stages[3])]
        for kind, selective in KINDS:
            less = taken(scenario, table, **{RECOMPUTE: kind, "selective_recompute": selective})
            pairs.append((f"{kind}, {selective}", whole, less))
        for name, before, after in pairs:
            worse = after / before - 1.0
            compared += int(np.isfinite(worse).sum())
            assert not (worse > 1e-9).any(), f"{name} of {scenario.model.name}: {np.nanmax(worse):.3g} more"
    assert compared > 10_000


@pytest.mark.parametrize("seed", range(5))
def test_the_optimum_of_a_random_space_is_that_of_all_its_executions(seed: int) -> None:
    draw = np.random.default_rng([seed, 11])
    for _ in range(3):
        scenario, best = drawn(draw, (2, 4, 8), LARGEST)
        found = scenario.evaluate(scenario.space.table(np.arange(scenario.space.total)))
        runs = found[found["status"] == "ok"]
        assert best["sample_rate"] == pytest.approx(runs["sample_rate"].max(), rel=1e-12)
