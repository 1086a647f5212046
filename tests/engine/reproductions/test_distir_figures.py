"""What stands around DistIR's grid: figures, timeline, search and its records, calibration, GPT-2."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from engine.reproductions.distir.figures import NOTEBOOK, PUBLISHED_GRID
from engine.reproductions.distir.simulator import (
    MODEL_SIZES,
    ConfigurationError,
    Constants,
    ModelSize,
    Records,
    agreement,
    configurations,
    envelopes,
    fit_kernels,
    fit_steps,
    grid,
    load_constants,
    measured_steps,
    over_devices,
    overlay,
    pareto,
    read_measured,
    search,
    style,
    timeline,
    top_configurations,
    with_speedup,
)
from engine.store import Store, StoreError
from tests.engine.reproductions.test_distir import FOLDER, GOLDEN

NOTEBOOKS = {name: NOTEBOOK[name] for name in ("width", "layers", "batch", "devices", "batches", "microbatches")}


@pytest.mark.parametrize("revision", ["R1", "R2"])
def test_figure_3_is_the_notebooks(revision: str) -> None:
    golden = GOLDEN[revision]
    table = over_devices(revision=revision, bandwidth_gbps=golden["bandwidth_gbps"], **NOTEBOOKS)
    for kind, name in (("data", "dp_results"), ("pipeline", "pp_results")):
        for series, speedups in golden[name].items():
            mine = table[(table["kind"] == kind) & (table["series"] == int(series))]
            np.testing.assert_allclose(mine["speedup"], speedups, rtol=1e-9)


def test_figure_4_with_the_best_microbatch_count() -> None:
    rows = pd.read_csv(PUBLISHED_GRID).set_axis(["D", "H", "P", "m", "published"], axis=1)
    table = grid(rows, revision="EuroMLSys21", width=8192, layers=64, batch=8192, bandwidth_gbps=200)
    lines = envelopes(with_speedup(table, baseline=3725.917956))
    for name, told in GOLDEN["fig4"].items():
        mine = lines[lines["strategy"] == name.removesuffix("_best")]
        speedups = [told] if isinstance(told, list) else [list(told.values())]
        if name == "P_best":
            assert mine["m"].tolist() == [m for _, m in told.values()]
            speedups = [[speedup for speedup, _ in told.values()]]
        np.testing.assert_allclose(mine["speedup"], speedups[0], rtol=1e-9)
    largest = rows[rows["P"] == 2]["m"].max()
    assert lines[(lines["strategy"] == "P") & (lines["devices"] == 2)]["m"].iloc[0] < largest


def test_timeline_is_distirs_and_adds_up() -> None:
    told = json.loads((FOLDER / "gantt_pp4_m8.json").read_text())
    found = timeline(revision="R1", P=4, m=8, width=4096, layers=64, batch=4096, bandwidth_gbps=200, filtered=True)
    assert found.latency == pytest.approx(told["latency"], rel=1e-12)
    key = ["stage", "kind", "mb"]
    expected, items = (t.sort_values(key, ignore_index=True) for t in (pd.DataFrame(told["items"]), found.items))
    pd.testing.assert_frame_equal(items[key], expected[key])
    np.testing.assert_allclose(items[["start", "end"]], expected[["start", "end"]], rtol=1e-12)
    parts = found.stages[["compute", "exchange", "send", "waiting"]].sum(axis=1)
    np.testing.assert_allclose(parts, found.latency, rtol=1e-12)
    events = found.chrome_trace()
    assert set(events[0]) == {"name", "ph", "ts", "dur", "pid", "tid"}
    assert max(event["ts"] + event["dur"] for event in events) == pytest.approx(1e6 * found.latency)


@pytest.mark.parametrize("revision", ["R1", "R3"])
@pytest.mark.parametrize("degrees", [(1, 1, 1, 1), (2, 2, 4, 8), (1, 1, 4, 1), (1, 2, 2, 30)])
@pytest.mark.parametrize("filtered", [True, False])
def test_timeline_agrees_with_the_grid(revision: str, degrees: tuple[int, ...], filtered: bool) -> None:
    of = dict(zip("DHPm", degrees, strict=True))
    sizes: dict[str, Any] = {"width": 512, "layers": 8, "batch": 480, "bandwidth_gbps": 25.0, "filtered": filtered}
    row = grid([of], revision=revision, **sizes).iloc[0]
    found = timeline(revision=revision, **of, **sizes)
    assert found.latency == pytest.approx(row["latency"], rel=1e-12)
    assert found.stages["peak_memory"].max() == row["peak_memory"]
    assert found.memory["fullest"].max() <= row["peak_memory"]
    assert (found.memory["live"] >= 0).all()
    assert found.memory.groupby("stage")["time"].apply(lambda times: times.is_monotonic_increasing).all()
    np.testing.assert_allclose(found.stages[["compute", "exchange", "send", "waiting"]].sum(axis=1), found.latency)


def test_timeline_refuses_in_words() -> None:
    with pytest.raises(ConfigurationError, match="P 3 does not divide the 8 layers"):
        timeline(revision="R1", P=3, m=2, width=8, layers=8, batch=8, bandwidth_gbps=1)
    with pytest.raises(ConfigurationError, match="items of a timeline"):
        timeline(revision="R1", P=2, m=2**20, width=8, layers=8, batch=2**20, bandwidth_gbps=1)


def test_enumeration_by_the_rules_of_each_revision() -> None:
    table = configurations([1, 2, 4, 8, 16], batch=8192, rule="R1")
    published = pd.read_csv(PUBLISHED_GRID)
    known = set(map(tuple, published.iloc[:, :4].astype(int).to_numpy()))
    assert set(map(tuple, table.to_numpy())) == known
    assert set(configurations([4], batch=16, rule="R3").query("P == 4")["m"]) == {2, 4, 8, 16}
    assert (table["D"] * table["H"] * table["P"]).isin([1, 2, 4, 8, 16]).all()
    with pytest.raises(ConfigurationError, match="6 devices"):
        configurations([6], batch=8)
    with pytest.raises(ConfigurationError, match="no rule"):
        configurations([4], batch=8, rule="R2")


def searched(**changes: Any) -> pd.DataFrame:
    asked: dict[str, Any] = {
        "devices": [1, 2, 4, 8],
        "batches": [64, 96],
        "revision": "R3",
        "bandwidth_gbps": 25,
        "memory_limit": 8e6,
    }
    return search({"small": ModelSize(8, 512), "odd": ModelSize(3, 512)}, **(asked | changes))


def test_search_keeps_failures_ranks_and_finds_the_front() -> None:
    table = searched()
    assert {"memory", "layers_not_divisible", "odd_layers"} <= set(table["reason"])
    assert set(table["style"]) >= {"Base", "D", "T", "P", "D/T", "T/P", "D/P", "D/T/P"}
    best = top_configurations(table, 3)
    assert best.groupby(["model", "batch"]).size().max() == 3
    runs = table[table["reason"] == ""]
    assert best["throughput"].max() == runs["throughput"].max()
    front = pareto(runs)
    for row in front.to_dict("records"):
        better = (runs["throughput"] >= row["throughput"]) & (runs["peak_memory"] <= row["peak_memory"])
        strictly = (runs["throughput"] > row["throughput"]) | (runs["peak_memory"] < row["peak_memory"])
        assert not (better & strictly).any()
    golden = GOLDEN["R3_grid_mlp_small_fp32"]
    told = pd.DataFrame(golden["pareto_throughput_vs_peak"])
    chosen = configurations([1, 2, 4, 8, 16], batch=8192, rule="R1")
    found = pareto(grid(chosen, revision="R3", width=8192, layers=16, batch=8192, bandwidth_gbps=25))
    assert found[["D", "H", "P", "m"]].values.tolist() == told[["D", "H", "P", "m"]].values.tolist()
    np.testing.assert_allclose(found["throughput"], told["throughput"], rtol=1e-9)
    assert found["peak_memory"].tolist() == told["peak_memory"].tolist()
    assert style(1, 1, 1) == "Base"
    assert set(MODEL_SIZES) >= {"mlp-xs", "mlp-small", "mlp-medium", "mlp-large"}


def test_search_resumes_from_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "results.duckdb"
    done: list[tuple[int, int]] = []

    def stop(number: int, everything: int) -> bool:
        done.append((number, everything))
        return False

    with Store(path) as store:
        partial = searched(records=Records(store), report_progress=stop)
        assert 0 < len(partial) < done[0][1]
        assert len(Records(store)) == len(partial)
    with Store(path) as store:
        whole = searched(records=Records(store))
    pd.testing.assert_frame_equal(whole, searched())

    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("evaluated again")

    monkeypatch.setattr("engine.reproductions.distir.simulator.searching.grid", never)
    with Store(path, read_only=True) as store:
        again = searched(records=Records(store))
        tighter = searched(records=Records(store), memory_limit=5e6)
    pd.testing.assert_frame_equal(again, whole)
    assert (tighter["reason"] == "memory").sum() > (whole["reason"] == "memory").sum()
    with Store(path, read_only=True) as store, pytest.raises(AssertionError, match="evaluated again"):
        searched(records=Records(store), flops=1e13)


def test_results_by_key_refuse_what_they_cannot_hold(tmp_path: Path) -> None:
    import pyarrow as pa

    with Store(tmp_path / "results.duckdb") as store:
        schema = pa.schema([pa.field("value", pa.float64())])
        table = store.keyed("test", schema)
        table.put(pa.table({"key": ["a"], "value": [1.0]}))
        table.put(pa.table({"key": ["a", "b"], "value": [2.0, None]}))
        assert table.find(["a", "b", "c"]).sort_by("key").to_pydict() == {"key": ["a", "b"], "value": [1.0, None]}
        with pytest.raises(StoreError, match="another version"):
            store.keyed("test", pa.schema([pa.field("other", pa.float64())]))
        with pytest.raises(StoreError, match="cannot name"):
            store.keyed('x"; DROP TABLE meta; --', schema)
        with pytest.raises(StoreError, match="type"):
            store.keyed("test", pa.schema([pa.field("value", pa.list_(pa.int64()))]))
        with pytest.raises(StoreError, match="other columns"):
            table.put(pa.table({"key": ["a"]}))
        assert store.records() == []


def test_measured_steps_are_the_notebooks() -> None:
    told = pd.read_csv(Path(search.__code__.co_filename).parent / "data" / "measured.csv")
    table = overlay(measured_steps())
    assert len(table) == 81
    assert (table["simulated"] * 1e3 - told["simulated_ms"]).abs().max() < 0.005001
    found = agreement(table).set_index("devices")
    assert (round(found["pearson"]["all"], 3), round(found["spearman"]["all"], 3)) == (0.927, 0.934)
    assert [round(found["median_ratio"][name], 2) for name in ("1", "2", "4")] == [0.87, 0.34, 0.35]
    assert [round(found["mean_absolute_percentage_error"][name]) for name in ("1", "2", "4")] == [15, 62, 61]
    assert (found["bias"] < 0).all()


def test_fits_find_the_constants_that_made_the_steps() -> None:
    true = Constants(revision="R3", flops=2e13, dram_bandwidth=5e11, launch_overhead=2e-5, bandwidth_gbps=50)
    steps_of = overlay(measured_steps(), true)
    found = fit_steps(steps_of.assign(seconds=steps_of["simulated"]), "R3")
    for name in ("flops", "dram_bandwidth", "launch_overhead", "bandwidth_gbps"):
        assert getattr(found, name) == pytest.approx(getattr(true, name), rel=1e-6)
    before = agreement(overlay(measured_steps())).iloc[-1]
    after = agreement(overlay(measured_steps(), fit_steps(measured_steps(), "R2"))).iloc[-1]
    assert after["mean_absolute_percentage_error"] < before["mean_absolute_percentage_error"] / 2


def test_kernels_are_fitted_as_distir_fits_them(tmp_path: Path) -> None:
    rows = []
    for size in (1024, 2048, 4096):
        for inner in (512, 4096):
            time = 1e-5 + 4 * (2 * size * inner) / 9e11 + 2.0 * size * inner * size / 1.4e13
            rows.append(("matmul", "", size, inner, size, time))
        gigabits = 4 * size * size / 1.25e8
        rows += [("send", "", size, "", size, gigabits / 25 + 1e-4), ("allreduce", 2, size, "", size, gigabits / 40)]
    path = tmp_path / "kernels.csv"
    pd.DataFrame(rows, columns=["op", "devices", "rows", "inner", "columns", "seconds"]).to_csv(path, index=False)
    kind, table = read_measured(path)
    assert kind == "kernels"
    found = fit_kernels(table)
    assert found.flops == pytest.approx(1.4e13, rel=1e-6)
    assert found.dram_bandwidth == pytest.approx(9e11, rel=1e-6)
    assert found.launch_overhead == pytest.approx(1e-5, rel=1e-6)
    assert found.bandwidth_gbps == pytest.approx(25, rel=1e-6)
    assert found.allreduce[2][0] == pytest.approx(1 / 40, rel=1e-6)
    again = load_constants(found.model_dump_json(exclude_none=True))
    assert again == found


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a,b\n1,2\n", "neither real_ms"),
        ("", "no table"),
        ("world_size,num_layers,batch_size,hidden_dim,real_ms\n", "no rows"),
        ("world_size,num_layers,batch_size,hidden_dim,real_ms\n1,8,64,512,nan\n", "line 2: real_ms is nan"),
        ("world_size,num_layers,batch_size,hidden_dim,real_ms\n1,0,64,512,3\n", "line 2: num_layers is 0"),
        ("world_size,num_layers,batch_size,real_ms\n1,8,64,3\n", "no column hidden_dim"),
        ("op,devices,rows,inner,columns,seconds\nsoftmax,1,8,8,8,1\n", "line 2: op is softmax"),
        ("op,devices,rows,inner,columns,seconds\nmatmul,1,8,,8,1\n", "line 2: inner is nan"),
    ],
)
def test_bad_measurements(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "measured.csv"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=said):
        read_measured(path)


@pytest.mark.parametrize(
    "document",
    ['{"flops": -1}', "[1]", "{", '{"flup": 1}', '{"flops": NaN}', '{"allreduce": {"3": [1, 2, 3]}}', "[" * 100_000],
)
def test_bad_constants(document: str) -> None:
    with pytest.raises(ConfigurationError):
        load_constants(document)
