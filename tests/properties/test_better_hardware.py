"""Better hardware never hurts: whatever runs how on what, no rate, capacity or size that grows makes it slower."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

import hardware
import models
from engine import Optimum, Scenario, best_of, whatif
from engine.cost_models.calibrated import Accelerators, Case, parameters, step_times
from engine.cost_models.calibrated.fields import DATATYPES
from engine.cost_models.calibrated.physics.pipeline.schedules import SCHEDULES
from engine.executions.arrays import Floats
from hardware import System
from tests.properties.test_calibrated_everywhere import everywhere

FACTORS = (1.01, 1.3, 2.0, 16.0, 1.1)
"""By how much a figure is better, one for each seed of random executions."""
ROWS = 6_000
SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 18, 24, 32, 64, 72, 128, 512)


@cache
def anywhere(seed: int) -> Case:
    """Models of the library in random layouts on accelerators that nobody made, with three networks."""
    draw, case = np.random.default_rng(seed), everywhere(seed)
    case = case.take(draw.choice(len(case.layout.tensor_par), ROWS, replace=False))
    facts, rows = case.accelerator, ROWS

    def around(value: Any, doublings: float) -> Any:
        return value * 2.0 ** draw.uniform(-doublings, doublings, rows)

    inner, outer = facts.network_bandwidths
    machine = Accelerators(
        flops16=around(facts.flops16, 2),
        flops8=around(facts.flops8, 2),
        flops4=around(facts.flops4, 2),
        memory_bandwidth=around(facts.memory_bandwidth, 2),
        capacity=facts.capacity,
        power=around(facts.power, 2),
        generation=facts.generation,
        multiprocessors=facts.multiprocessors,
        clock=around(facts.clock, 2),
        network_sizes=(*np.sort(draw.choice(np.array(SIZES, np.float64), (2, rows)), axis=0), facts.network_sizes[-1]),
        network_bandwidths=(around(inner, 3), around(np.sqrt(inner * outer), 4), around(outer, 3)),
    )
    return replace(case, accelerator=machine)


@cache
def seconds(seed: int) -> Floats:
    """Their step times [s], which every improvement is compared with."""
    return step_times(anywhere(seed), parameters()).step


def improved(case: Case, what: str, factor: float) -> Case:
    """The same executions with one figure of the hardware better."""
    facts, bits = case.accelerator, case.layout.linear_bits
    better: dict[str, Any]
    if what in ("matrix", "compute"):
        # Of the precision that the linear layers run in.
        better = {
            f"flops{each}": getattr(facts, f"flops{each}") * np.where(bits == each, factor, 1.0) for each in (16, 8, 4)
        }
        if what == "compute":
            better["power"] = facts.power * factor
    elif what[:-1] in ("network_bandwidths", "network_sizes"):
        values = list(getattr(facts, what[:-1]))
        values[int(what[-1])] = values[int(what[-1])] * factor
        if "sizes" in what:
            # Of any size: groups that divide the smaller one need not divide the larger one.
            values = list(np.maximum.accumulate(np.ceil(np.broadcast_arrays(*values))))
        better = {what[:-1]: tuple(values)}
    else:
        better = {what: getattr(facts, what) * factor}
    return replace(case, accelerator=replace(facts, **better))


@pytest.mark.parametrize(
    "what",
    [
        "matrix",
        "compute",
        "power",
        "clock",
        "memory_bandwidth",
        "network_bandwidths0",
        "network_bandwidths1",
        "network_bandwidths2",
        "network_sizes0",
        "network_sizes1",
    ],
)
def test_no_execution_is_slower_on_better_hardware(what: str) -> None:
    for seed, factor in enumerate(FACTORS):
        case, p = anywhere(seed), parameters()
        before, after = seconds(seed), step_times(improved(case, what, factor), p).step
        worse = after / before - 1.0
        assert worse.max() <= 1e-9, f"row {worse.argmax()} of seed {seed}, {factor} times: {worse.max():.3g}"
        assert (worse < -1e-9).any()


WIDE: dict[str, Any] = {
    "attention_kernel": ["unfused", "flash2", "native"],
    "launch": ["eager", "fused", "graphs", "partial_graphs"],
    "gradient_datatype": ["float32", "bfloat16"],
    "optimizer_datatype": ["float32", "bfloat16"],
    "token_dispatcher": ["all_to_all", "all_gather", "deepep", "hybridep"],
    "dispatch_datatype": ["bfloat16", "float8"],
    "expert_imbalance": [100, 130],
    "context_par_comm": ["p2p", "all_gather", "a2a", "hierarchical"],
    "expert_overlap": [False, True],
    "pipeline_overlap": [False, True],
    "context_par": {"max": 8},
    "selective_recompute": ["attention", "modules", "half", "layernorm+mlp", "core_attn+moe"],
    "recompute_blocks": [0, 1],
    "fp8_param_gather": [False, True],
    "schedule": list(SCHEDULES),
    "zero_stage": [0, 1, 2, 3],
}
"""Limits that widen the space; some of them are drawn for each scenario."""


def made_up(draw: np.random.Generator) -> System:
    """A system of the library with other rates, capacities and networks."""
    document: Any = hardware.to_document(hardware.load(str(draw.choice(hardware.names()))))

    def times(low: float, high: float) -> float:
        return float(2.0 ** draw.uniform(low, high))

    for engine in document["matrix"].values():
        engine["tflops"] *= times(-2, 2)
    for memory, slowest in ((document["mem1"], -2), (document["mem2"], -5)):
        memory["bandwidth_gb_per_s"] *= times(slowest, 2)
        memory["capacity_gib"] *= times(-1, 4)
    if document.get("accelerator", {}).get("tdp_w"):
        document["accelerator"]["tdp_w"] *= times(-1, 1)
    plain = document["networks"][0]
    sizes = [int(draw.choice(SIZES)), *draw.choice([16, 24, 72, 256], draw.integers(0, 2)).tolist(), 65536]
    document["networks"] = [
        {**plain, "size": size, "bandwidth_gb_per_s": times(3, 9), "must_be_filled": False} for size in sizes
    ]
    document |= {"assumptions": [], "unverified_fields": [], "name": "made up"}
    return hardware.load_document(document)


PROCESSORS = (2, 8, 12, 24, 64, 96)


def drawn(
    draw: np.random.Generator, sizes: tuple[int, ...] = PROCESSORS, most: int = 10**8
) -> tuple[Scenario, Optimum]:
    """Some model on some system with executions that run, at most so many, and the best, which larger spaces take long
    to prove."""
    while True:
        system = made_up(draw)
        known = [name for name in DATATYPES if name in system.matrix]
        procs = int(draw.choice(sizes))
        try:
            found = Scenario.of(
                models.load(str(draw.choice(models.plain_names()))),
                system,
                num_procs=procs,
                max_batch_size=procs * int(draw.choice([1, 2, 3])),
                datatype=str(draw.choice(known)),
                limits={name: values for name, values in WIDE.items() if draw.random() < 0.5},
                cost_model="calibrated",
            )
            if 0 < found.space.total <= most and (best := best_of(found)):
                return found, best
        except (
            ValueError
        ):  # a model without room for any parallelism, a system without a datatype, limits that allow too much
            continue


@pytest.mark.parametrize("seed", range(5))
def test_what_if_never_finds_that_better_hardware_hurts(seed: int) -> None:
    """Offloading included: neither any execution nor the best is slower, and none stops running."""
    draw = np.random.default_rng(seed)
    scenario, best = drawn(draw, most=10**7)
    ids = np.append(draw.integers(0, scenario.space.total, 600), best["id"])
    before = scenario.evaluate(scenario.space.table(ids))
    runs = (before["status"] == "ok").to_numpy()
    table, before = scenario.space.table(ids[runs][-300:]), before[runs].iloc[-300:]
    for parameter in whatif.parameters(scenario):
        if parameter.about != "system":
            continue
        factor = draw.choice([1.1, 2.0])
        value = np.ceil(parameter.value * factor) if parameter.discrete else parameter.value * factor
        better = whatif.changed(scenario, {parameter.name: value})
        after = better.evaluate(table)
        assert (after["status"] == "ok").all(), parameter.name
        worse = (after["total_time"].to_numpy() / before["total_time"].to_numpy() - 1.0).max()
        assert worse <= 1e-9, f"{parameter.name} {factor} times: {worse:.3g}"
        assert best_of(better)["total_time"] <= best["total_time"] * (1 + 1e-9), parameter.name
