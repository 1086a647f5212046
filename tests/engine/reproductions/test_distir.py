"""DistIR's simulator: its golden figures, its published grid, and the literal interpreter."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.reproductions.distir.figures import PUBLISHED_GRID
from engine.reproductions.distir.simulator import REVISIONS, Allreduce, ConfigurationError, grid, memory, schedule
from engine.reproductions.distir.simulator.schedule import folded, steps
from engine.simulate import replay
from tests.oracle import distir as oracle

FOLDER = Path(__file__).parent.parent.parent / "reference" / "distir"
GOLDEN: dict[str, Any] = json.loads((FOLDER / "golden.json").read_text())


def evaluated(rows: list[dict[str, Any]], revision: str, **changes: Any) -> pd.DataFrame:
    given_sizes = {"width": 4096, "layers": 64, "batch": 4096, "bandwidth_gbps": 200}
    return grid(rows, revision=revision, **(given_sizes | changes))


@pytest.mark.parametrize(
    ("name", "revision", "filtered"),
    [("R1_grid_8192", "R1", False), ("R1_grid_4096_filtered", "R1", True), ("R3_grid_mlp_small_fp32", "R3", False)],
)
def test_grids(name: str, revision: str, filtered: bool) -> None:
    golden = GOLDEN[name]
    sizes = {"width": golden["dim"], "batch": golden["batch"], "layers": golden["layers"]}
    bandwidth = golden.get("bandwidth_gbps", 200)
    table = evaluated(golden["rows"], revision, **sizes, bandwidth_gbps=bandwidth, filtered=filtered)
    told = pd.DataFrame(golden["rows"])
    for column in ("latency", "throughput"):
        np.testing.assert_allclose(table[column], told[column], rtol=1e-9)
    peak = "simulator_peak_memory" if "simulator_peak_memory" in told else "peak_memory"
    assert table["peak_memory"].tolist() == told[peak].tolist()
    assert set(table["status"]) == {"ok"}


@pytest.mark.parametrize("revision", ["R1", "R2"])
@pytest.mark.parametrize("what", ["dp", "pp"])
def test_notebook_times_and_memory(revision: str, what: str) -> None:
    golden = GOLDEN[revision]
    for first, by_devices in golden[what].items():
        for devices, told in by_devices.items():
            degrees = (
                {"D": int(devices), "H": 1, "P": 1, "m": 1}
                if what == "dp"
                else {"D": 1, "H": 1, "P": int(devices), "m": int(first)}
            )
            changes: dict[str, Any] = {"bandwidth_gbps": golden["bandwidth_gbps"]}
            if what == "dp":
                changes["batch"] = int(first)
            row = evaluated([degrees], revision, filtered=True, **changes).iloc[0]
            assert row["latency"] == pytest.approx(told["time"], rel=1e-9)
            assert row["peak_memory"] == told["peak_memory_max"]
            unfiltered = evaluated([degrees], revision, **changes).iloc[0]
            assert unfiltered["latency"] == pytest.approx(told["unfiltered_time"], rel=1e-9)


def test_published_grid_deviates_as_its_older_code_explains() -> None:
    with PUBLISHED_GRID.open() as file:
        rows = [{key: float(value) for key, value in row.items()} for row in csv.DictReader(file)]
    table = pd.DataFrame(rows).set_axis(["D", "H", "P", "m", "published"], axis=1)
    assert len(table) == 111
    sizes = {"width": 8192, "batch": 8192}
    older = evaluated(table, "EuroMLSys21", **sizes)  # type: ignore[arg-type]
    np.testing.assert_allclose(older["throughput"], older["published"], rtol=1e-12)
    today = evaluated(table, "R1", **sizes)  # type: ignore[arg-type]
    apart = today["throughput"] / today["published"] - 1
    np.testing.assert_allclose(apart[today["D"] == 1], 0, atol=1e-12)
    several = apart[today["D"] > 1]
    assert (round(100 * several.min(), 1), round(100 * several.max(), 1)) == (-2.8, 0.2)


def test_oracle_is_distir() -> None:
    """The witness itself: counts of ops, busy time and memory of every device, before it is believed."""
    for revision in ("R1", "R2"):
        golden = GOLDEN[revision]
        programs = [(golden["sequential"]["512"], oracle.sequential(64, 4096, 512))]
        for devices in (2, 4):
            program = oracle.Distributed(revision, devices, 1, 1, 1, layers=64, width=4096, batch=512, filtered=True)
            programs.append((golden["dp"]["512"][str(devices)], program.program))
        for stages in (2, 8):
            program = oracle.Distributed(revision, 1, 1, stages, 4, layers=64, width=4096, batch=4096, filtered=True)
            programs.append((golden["pp"]["4"][str(stages)], program.program))
        for told, program_of in programs:
            found = oracle.interpret(program_of, revision, golden["bandwidth_gbps"])
            assert found.latency == pytest.approx(told["time"], rel=1e-12)
            assert dict(found.kinds) == told["op_counts"]
            assert sum(found.kinds.values()) == told["n_ops"]
            assert found.input_bytes == {int(k): v for k, v in told["input_bytes"].items()}
            assert {k: v for k, v in found.peak.items() if v} == {int(k): v for k, v in told["peak_memory"].items()}
            for device, busy in told["busy"].items():
                assert found.busy[int(device)] == pytest.approx(busy, rel=1e-9)


@st.composite
def configurations(draw: st.DrawFn) -> dict[str, Any]:
    horizontal, stages = draw(st.sampled_from([1, 2, 4])), draw(st.integers(1, 5))
    each = draw(st.integers(1, 4))
    if horizontal > 1 and stages * each % 2:
        each += 1
    data, microbatches = draw(st.sampled_from([1, 2, 4])), 1 if stages == 1 else draw(st.integers(1, 6))
    return {
        "D": data,
        "H": horizontal,
        "P": stages,
        "m": microbatches,
        "layers": each * stages,
        "width": horizontal * draw(st.sampled_from([1, 3, 100])),
        "batch": data * microbatches * draw(st.sampled_from([1, 3, 64])),
        "bandwidth_gbps": draw(st.sampled_from([0.01, 25.0, 4800.0])),
        "filtered": draw(st.booleans()),
    }


@given(configurations(), st.sampled_from(["R1", "R2", "R3"]))
@settings(max_examples=20, deadline=None)
def test_agrees_with_the_literal_interpreter(c: dict[str, Any], revision: str) -> None:
    """The recurrence over stages and the counts of sizes against a program run op by op."""
    degrees = {name: c[name] for name in ("D", "H", "P", "m")}
    sizes = {name: c[name] for name in ("layers", "width", "batch", "filtered")}
    row = grid([degrees], revision=revision, bandwidth_gbps=c["bandwidth_gbps"], **sizes).iloc[0]
    program = oracle.Distributed(revision, *degrees.values(), **sizes).program
    found = oracle.interpret(program, revision, c["bandwidth_gbps"])
    assert row["latency"] == pytest.approx(found.latency, rel=1e-12)
    assert row["peak_memory"] == max(found.peak.values())


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"P": 3}, "layers_not_divisible"),
        ({"D": 3}, "no_such_group"),
        ({"H": 6}, "no_such_group"),
        ({"D": 16_384}, "no_such_group"),
        ({"P": 2, "m": 10_000_000}, "too_many_microbatches"),
        ({"P": 2, "m": 3}, "batch_not_divisible"),
        ({"m": 2}, "microbatches_without_stages"),
        ({"D": 0}, "not_whole"),
        ({"m": math.nan}, "not_whole"),
        ({"P": 1.5}, "not_whole"),
        ({"H": "two"}, "not_whole"),
        ({"m": 1e300}, "not_whole"),
    ],
)
def test_rows_that_cannot_run_keep_their_reason(changes: dict[str, Any], reason: str) -> None:
    good = {"D": 1, "H": 1, "P": 1, "m": 1}
    table = evaluated([good | changes, good], "R1")
    assert table["reason"].tolist() == [reason, ""]
    assert table["status"].tolist() == ["invalid", "ok"]
    assert np.isnan(table["latency"][0])
    assert table["reason_text"][0].endswith(".")
    assert "{" not in table["reason_text"][0]


def test_too_large_odd_and_deep() -> None:
    large = evaluated([{"D": 1, "H": 1, "P": 1, "m": 1}], "R3", width=2**24, layers=100_000).iloc[0]
    assert large["reason"] == "too_large"
    assert evaluated([{"D": 1, "H": 2, "P": 1, "m": 1}], "R3", layers=3)["reason"][0] == "odd_layers"
    assert evaluated([{"D": 1, "H": 2, "P": 1, "m": 1}], "R3", width=3)["reason"][0] == "width_not_divisible"
    deep = evaluated([{"D": 1, "H": 1, "P": 512, "m": 2}], "R3", layers=512)["reason"][0]
    assert deep == "too_many_stages"


def test_order_is_that_of_the_replays_rule() -> None:
    """The greedy schedule in time steps, here, and as a list per rank, for the event replay."""
    for stages in (1, 2, 3, 5, 8):
        for microbatches in (1, 2, 7, 16):
            lists: list[list[str]] = [[] for _ in range(stages)]
            for step in steps(stages, microbatches):
                for stage, kind, j in step:
                    lists[stage].append(f"{'BW' if kind else 'F'}{j}")
            found = replay("distir-1f1b", stages=stages, microbatches=microbatches, times={"F": 1, "B": 1, "W": 1})
            assert found.ranks == [" ".join(each) for each in lists]
            assert len(steps(stages, microbatches)) == 2 * (microbatches + stages - 1)


@pytest.mark.parametrize("revision", ["R1", "R3"])
def test_long_pipelines_are_folded_exactly(revision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against the same schedule gone through item by item; ten million microbatches take no longer."""
    for stages in range(2, 9):
        for microbatches in (2 * stages + 9, 100):
            plan = folded(stages, microbatches)
            period = plan.steps[plan.cut : plan.cut + 2]
            told = list(plan.steps[: plan.cut])
            for repeated in range(plan.repeated):
                told += [tuple((k, kind, j + repeated) for k, kind, j in step) for step in period]
            told += [tuple((k, kind, j + plan.repeated) for k, kind, j in step) for step in plan.steps[plan.cut :]]
            assert tuple(told) == steps(stages, microbatches)
    cases = [(2, 1, 1, 61, 4), (3, 2, 2, 150, 6), (5, 1, 2, 19, 10), (7, 2, 1, 40, 7)]
    rows = [{"D": d, "H": h, "P": p, "m": m, "layers": layers} for p, d, h, m, layers in cases]
    sizes = [{"width": 96, "layers": row["layers"], "batch": 3 * row["D"] * row["m"]} for row in rows]

    def all_of_them() -> list[tuple[float, float]]:
        memory._list_events.cache_clear()
        memory._find_moments.cache_clear()
        tables = [evaluated([row], revision, bandwidth_gbps=1, **size) for row, size in zip(rows, sizes, strict=True)]
        return [(table["latency"][0], table["peak_memory"][0]) for table in tables]

    short = all_of_them()
    with monkeypatch.context() as changed:
        changed.setattr(schedule, "longest_unfolded", lambda stages: 10**9)
        whole = all_of_them()
    all_of_them()
    for (latency, peak), (expected, most) in zip(short, whole, strict=True):
        assert latency == pytest.approx(expected, rel=1e-12)
        assert peak == most
    together = [{"D": d, "H": h, "P": 12, "m": 60} for d in (1, 2) for h in (1, 2)]
    folded_ones = evaluated(together, revision, width=512, layers=48, batch=960, bandwidth_gbps=25)
    with monkeypatch.context() as changed:
        changed.setattr(schedule, "longest_unfolded", lambda stages: 10**9)
        singly = evaluated(together, revision, width=512, layers=48, batch=960, bandwidth_gbps=25)
    np.testing.assert_allclose(folded_ones["latency"], singly["latency"], rtol=1e-12)
    many = evaluated([{"D": 1, "H": 1, "P": 4, "m": 10_000_000}], revision, batch=10_000_000, width=8)
    assert many["reason"][0] == ""
    assert many["latency"][0] > 0


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"layers": 0}, "layers is 0"),
        ({"width": 1.5}, "width is 1.5"),
        ({"batch": True}, "batch is True"),
        ({"bandwidth_gbps": math.nan}, "bandwidth_gbps is nan"),
        ({"bandwidth_gbps": 0}, "bandwidth_gbps is 0"),
        ({"flops": -1.0}, "flops is -1.0"),
        ({"dram_bandwidth": math.inf}, "dram_bandwidth is inf"),
        ({"memory_limit": "much"}, "memory_limit is much"),
        ({"datatype_bytes": 3}, "datatype_bytes is 3"),
        ({"allreduce": {2: Allreduce(math.nan)}}, "per_gigabit is nan"),
    ],
)
def test_sizes_and_rates_that_are_none(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        evaluated([{"D": 1, "H": 1, "P": 1, "m": 1}], "R3", **changes)


def test_tables_that_are_none() -> None:
    for rows in ("D,H,P,m", 5, {"D": 1}, [1, 2]):
        with pytest.raises(ConfigurationError):
            evaluated(rows, "R1")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="lacks H, P"):
        evaluated(pd.DataFrame({"D": [1], "m": [1]}), "R1")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="R1, R2, R3"):
        evaluated([], "R4")
    assert len(evaluated([], "R1")) == 0


def test_memory_limit_keeps_figures() -> None:
    rows = GOLDEN["R3_grid_mlp_small_fp32"]["rows"]
    table = evaluated(rows, "R3", width=8192, batch=8192, layers=16, bandwidth_gbps=25, memory_limit=4e9)
    over = table["peak_memory"] > 4e9
    assert (table["reason"] == np.where(over, "memory", "")).all()
    assert np.isfinite(table["latency"]).all()
    assert (table["status"][over] == "infeasible").all()


def test_constants_of_ones_own() -> None:
    row = [{"D": 4, "H": 1, "P": 1, "m": 1}]
    model = REVISIONS["R3"]
    same = evaluated(row, "R3", flops=model.flops, dram_bandwidth=model.dram_bandwidth, launch_overhead=1e-5)
    assert same["latency"][0] == evaluated(row, "R3")["latency"][0]
    free, dear = (evaluated(row, "R3", allreduce={4: Allreduce(0.0, 0.0, time)}) for time in (0.0, 1.0))
    assert dear["latency"][0] - free["latency"][0] == pytest.approx(64.0, rel=1e-12)  # one per weight
    assert evaluated(row, "R3", datatype_bytes=2)["latency"][0] < evaluated(row, "R3")["latency"][0]
