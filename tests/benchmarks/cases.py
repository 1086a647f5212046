"""What is measured. Each case runs in a process of its own, on one core, and returns a JSON document."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

import engine
from engine.cost_models.registry import cost_model_of
from engine.exploration.reductions import Reductions
from engine.exploration.run import slabs
from engine.space.rows import chunks_of
from engine.store import Store
from tests.benchmarks.measure import Document, Times, medians, peak_memory, repeated

__all__ = ["CASES", "LARGE", "SMALL"]

LARGE: Final = ("gpt3-175B", "h100_80g_nvl8", 512, 512, "float16")
"""6,582,816 executions, of which 1,248,070 are feasible."""

SMALL: Final = ("gpt3-13B", "h100_80g_nvl8", 32, 32, "float8")
"""710,752 executions, of which 499,620 are feasible."""

WIDE: Final = {"attention_kernel": ["unfused", "flash1", "flash2", "native"], "launch": ["fused", "graphs"]}
"""Limits that widen a calibrated space to the size of the exact one."""

CALIBRATED: Final = ("gpt3-175B", "h100_80g_sxm", 512, 512, "bfloat16")
"""807,296 executions of the calibrated cost model, 6,919,680 with `WIDE`."""

COUNTS: Final = {LARGE: (6_582_816, 1_248_070), SMALL: (710_752, 499_620)}

ROWS: Final = 200_000
"""Rows for which all statistics are computed."""


def scenario_of(space: tuple[str, str, int, int, str]) -> engine.Scenario:
    """A fresh scenario, so that nothing of an earlier run is reused."""
    model, system, procs, batch, datatype = space
    return engine.Scenario.of(model, system, num_procs=procs, max_batch_size=batch, datatype=datatype)


def _checked(found: engine.Exploration, space: tuple[str, str, int, int, str]) -> None:
    assert (found.total, found.feasible) == COUNTS[space], "the exploration is not the one that is to be measured"


def explore(space: tuple[str, str, int, int, str], repeats: int) -> Document:
    """Enumerate, reject, evaluate and reduce; and where the time goes."""
    times, found = repeated(lambda: engine.explore_scenario(scenario_of(space), workers=1), repeats)
    _checked(found, space)
    split = medians([_split(space) for _ in range(repeats)])
    return {
        "seconds": times.to_document(),
        "total": found.total,
        "feasible": found.feasible,
        "split": split,
        "peak_memory": peak_memory(),
    }


def _split(space: tuple[str, str, int, int, str]) -> dict[str, float]:
    """Seconds of one exploration by phase: the loop of `engine.explore`, with a clock between its steps."""
    spent = dict.fromkeys(("space", "prepare", "evaluate", "reduce"), 0.0)
    last = time.perf_counter()

    def charge(phase: str) -> None:
        nonlocal last
        now = time.perf_counter()
        spent[phase] += now - last
        last = now

    made = scenario_of(space).space
    parts = list(slabs(made))
    charge("space")
    reductions = Reductions.empty(made)
    charge("reduce")
    for numbers in parts:
        plan = cost_model_of(made).prepare(made, numbers)
        charge("prepare")
        reductions.reject(plan)
        charge("reduce")
        for group, part in chunks_of(plan.groups):
            rows = cost_model_of(made).evaluate_rows(plan, group, part)
            charge("evaluate")
            reductions.add(plan, rows)
            charge("reduce")
    assert int(reductions.feasible.sum()) == COUNTS[space][1]
    return spent


def calibrated(repeats: int) -> Document:
    """The same with the calibrated cost model, over a space of the same size and over what it tries by itself."""

    def scenario(limits: Mapping[str, Any] | None) -> engine.Scenario:
        model, system, procs, batch, datatype = CALIBRATED
        return engine.Scenario.of(
            model,
            system,
            num_procs=procs,
            max_batch_size=batch,
            datatype=datatype,
            limits=limits,
            cost_model="calibrated",
        )

    wide, found = repeated(lambda: engine.explore_scenario(scenario(WIDE), workers=1), repeats)
    narrow, default = repeated(lambda: engine.explore_scenario(scenario(None), workers=1), repeats)
    best, optimum = repeated(lambda: engine.best_of(scenario(WIDE)), repeats)
    explored = found.best
    assert explored is not None
    assert (optimum["id"], optimum["sample_rate"]) == (explored["id"], explored["sample_rate"])
    peak = peak_memory()
    table = found.scenario.space.table(np.random.default_rng(1).integers(0, found.total, ROWS))
    table = table[(found.scenario.evaluate(table)["status"] == "ok").to_numpy()]
    statistics_times, rows = repeated(lambda: found.scenario.evaluate(table), repeats)
    return {
        "seconds": wide.to_document(),
        "total": found.total,
        "feasible": found.feasible,
        "default_seconds": narrow.to_document(),
        "default_total": default.total,
        "best_seconds": best.to_document(),
        "rows_seconds": statistics_times.to_document(),
        "rows": len(rows),
        "peak_memory": peak,
    }


def store(repeats: int) -> Document:
    """Explore and store every feasible execution with its headline figures; then find it again."""
    stored, opened = [], []
    size = 0
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "results.duckdb"
            start = time.perf_counter()
            with Store(path) as target:
                found = engine.explore_scenario(scenario_of(LARGE), store=target)
                _checked(found, LARGE)
            stored.append(time.perf_counter() - start)
            size = sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file())
            start = time.perf_counter()
            with Store(path) as target:
                again = engine.explore_scenario(scenario_of(LARGE), store=target)
                _checked(again, LARGE)
            opened.append(time.perf_counter() - start)
    return {
        "seconds": Times(tuple(stored)).to_document(),
        "open_seconds": Times(tuple(opened)).to_document(),
        "bytes": size,
        "peak_memory": peak_memory(),
    }


def statistics(repeats: int) -> Document:
    """All 96 statistics of feasible executions drawn at random from the large space."""
    made = scenario_of(LARGE)
    ids = engine.explore_scenario(made).rows.table(["id"])["id"].to_numpy()
    drawn = np.random.default_rng(1).choice(ids, ROWS, replace=False)
    table = made.space.table(drawn)
    times, found = repeated(lambda: engine.evaluate(made.model, made.system, table), repeats)
    assert (found["status"] == "ok").all()
    return {"seconds": times.to_document(), "rows": ROWS, "peak_memory": peak_memory()}


def optimum(repeats: int) -> Document:
    """The proven best execution of the large space: the first call of the process, and those after it."""
    start = time.perf_counter()
    engine.best_of(scenario_of(LARGE))
    first = time.perf_counter() - start
    times, found = repeated(lambda: engine.best_of(scenario_of(LARGE)), repeats, warm=False)
    expected = engine.explore_scenario(scenario_of(LARGE)).best
    assert expected is not None
    assert (found["id"], found["sample_rate"]) == (expected["id"], expected["sample_rate"])
    return {"seconds": times.to_document(), "first": first, "evaluated": found.evaluated, "total": found.total}


CASES: Final[Mapping[str, Callable[[int], dict[str, Any]]]] = {
    "large": lambda repeats: explore(LARGE, repeats),
    "small": lambda repeats: explore(SMALL, repeats),
    "store": store,
    "statistics": statistics,
    "optimum": optimum,
    "calibrated": calibrated,
}
