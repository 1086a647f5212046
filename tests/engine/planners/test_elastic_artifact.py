"""The artifact's figures beside its best plans: curves, timeline, splits, losses, table 2, fits, single-node errors."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.planners.contract import PlanError
from engine.planners.elastic import (
    curve,
    measurement_names,
    measurements,
    plans_table,
    read_measurements,
    split,
    timeline,
)
from engine.planners.elastic.accuracy import against_measured
from engine.planners.elastic.cards import Environment, PerformanceParameters, load_card, to_document
from engine.planners.elastic.fitting import held_out
from engine.planners.elastic.measured import MeasurementError
from engine.planners.elastic.measured.profiles import joined_profile, profile_of, profile_table
from engine.planners.elastic.over_time import phases_of
from engine.planners.elastic.performance.fitted import data_parallel, three_dimensional
from engine.planners.elastic.performance.overlap import overlapped
from engine.planners.elastic.plan_names import parse_plan
from engine.planners.elastic.strategies import own_strategy
from engine.reproductions.rubick.losses import losses, parity
from engine.reproductions.rubick.resource_sweep import best_allocation, sweep_resources
from engine.reproductions.rubick.table_2 import table_2_models

FOLDER = Path(__file__).parents[2] / "reference" / "elastic"
GOLDEN: dict[str, Any] = json.loads((FOLDER / "artifact.json").read_text())


def test_overlap_is_a_norm_that_does_not_overflow() -> None:
    x, y = np.array([3.0, 0.0, 0.0, 900.0]), np.array([4.0, 5.0, 0.0, 1000.0])
    assert overlapped(x, y, 2.0).tolist() == pytest.approx([5, 5, 0, math.hypot(900, 1000)])
    assert overlapped(x, y, 1.0).tolist() == [7, 5, 0, 1900]
    assert overlapped(x, y, 359_809.0).tolist() == pytest.approx([4, 5, 0, 1000])


@given(
    st.floats(0, 1e9),
    st.floats(0, 1e9),
    st.floats(1, 1e9),
)
def test_overlap_lies_between_the_longer_one_and_the_sum(x: float, y: float, exponent: float) -> None:
    found = float(overlapped(np.array([x]), np.array([y]), exponent)[0])
    assert max(x, y) <= found <= (x + y) * (1 + 1e-12)


numbers = st.floats(0.01, 1000)
parameters = st.builds(
    PerformanceParameters,
    k_bwd=numbers,
    k_sync=st.floats(1, 1e5),
    k_opt=numbers,
    k_os_offload=numbers,
    k_const=numbers,
    k_off=numbers,
    k_swap=numbers,
)
environments = st.builds(Environment, pcie=numbers, nvlink=numbers)


@given(
    parameters, environments, numbers, numbers, st.integers(1, 64), st.integers(1, 16), st.integers(0, 2), st.booleans()
)
def test_the_data_parallel_family_as_the_specification_has_it(
    k: PerformanceParameters, env: Environment, size: float, forward: float, n: int, c: int, z: int, slow: bool
) -> None:
    backward, volume = k.k_bwd * forward, 8 * size * (n - 1) / n
    exchange = volume / (2 if slow else env.nvlink)
    longer = max(exchange, backward)
    synchronised = longer * ((exchange / longer) ** k.k_sync + (backward / longer) ** k.k_sync) ** (1 / k.k_sync)
    copy = 4 * size / n / env.pcie if z == 1 else 0
    update = {0: k.k_opt * size, 1: k.k_os_offload * size / (n * c), 2: k.k_opt * size / n}[z]
    exchanged = synchronised + k.k_off + copy if copy else synchronised
    wanted = 2 * forward + exchanged + update + k.k_swap + copy + k.k_const
    found = data_parallel(
        k,
        env,
        parameters_mi=size,
        forward_ms=np.array([forward]),
        gpus=np.array([n]),
        cpu_threads=np.array([c]),
        zero=np.array([z]),
        slow_network=np.array([slow]),
        forward_factor=2.0,
    )
    assert found.iteration.tolist() == pytest.approx([wanted], rel=1e-12)


@given(parameters, environments, numbers, numbers, st.tuples(*[st.integers(1, 8)] * 4), st.integers(1, 64))
def test_the_3d_family_as_the_specification_has_it(
    k: PerformanceParameters, env: Environment, size: float, forward: float, layout: tuple[int, ...], batch: int
) -> None:
    pp, tp, nodes, per_node = layout
    dp = nodes * per_node // tp // pp
    if not dp:
        return
    elements, layers = 4096 * 2048, 32
    samples, backward = batch // dp, k.k_bwd * forward
    tensor = 32 * elements * samples * layers * (tp - 1) / tp / 2**20 / env.nvlink
    sends = 0 if pp == 1 else 16 * samples * elements // tp / 20 / 2**20 * pp
    exchange = 8 * (dp - 1) / dp * size // tp / pp / (env.nvlink if per_node > tp and pp == nodes else 20)
    longer = max(exchange, backward)
    both = longer * ((exchange / longer) ** k.k_sync + (backward / longer) ** k.k_sync) ** (1 / k.k_sync)
    wanted = forward + both + k.k_opt * size / (tp * pp) + k.k_const + tensor + sends
    found = three_dimensional(
        k,
        env,
        parameters_mi=size,
        global_batch=batch,
        tokens_hidden=elements,
        layers=layers,
        forward_ms=np.array([forward]),
        pp=np.array([pp]),
        tp=np.array([tp]),
        nodes=np.array([nodes]),
        gpus_per_node=np.array([per_node]),
    )
    assert found.iteration.tolist() == pytest.approx([wanted], rel=1e-9)


@pytest.mark.parametrize("model", GOLDEN["curves"])
def test_curves_of_the_deployed_parameters(model: str) -> None:
    for level, wanted in ((level, GOLDEN["curves"][model][level]) for level in ("0", "1")):
        found = curve(model, over="gpus", bandwidth=int(level))
        raw = np.array([math.nan if value is None else value for value in wanted["raw"]])
        np.testing.assert_allclose(found["raw_best"], raw, rtol=1e-12)
        np.testing.assert_allclose(found["stored_best"], wanted["stored"], rtol=1e-12)
        assert found["stored_gpus"].tolist() == wanted["stored_gpus"]
        for column in ("raw_plan", "stored_plan"):
            assert found[column].tolist() == [parse_plan(name).text if name else "" for name in wanted[column]]
        stored = found["stored_best"].to_numpy()
        np.testing.assert_allclose(found["gain"].cumsum(), stored, rtol=1e-9)


@pytest.mark.parametrize("model", GOLDEN["curves"])
def test_every_plan_of_the_deployed_parameters(model: str) -> None:
    for gpus, threads in {(row[0], row[1]) for row in GOLDEN["curves"][model]["plans"]}:
        rows = [row for row in GOLDEN["curves"][model]["plans"] if row[:2] == [gpus, threads]]
        found = plans_table(model, placement=f"{gpus},", cpu_threads=threads, families=("DP",)).set_index("plan")
        for _, _, plan, value in rows:
            row = found.loc[parse_plan(plan).text]
            assert row["feasible"] == (value is not None)
            assert value is None or row["iteration_ms"] == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize("model", GOLDEN["curves"])
def test_errors_against_the_traces_of_one_node(model: str) -> None:
    found = against_measured(model, cpu_threads=4, most_nodes=1, families=("DP",))
    wanted = GOLDEN["curves"][model]["trace"]
    assert len(found) == len(wanted)
    for row, (plan, gpus, measured, predicted, error) in zip(found.to_dict("records"), wanted, strict=True):
        assert (row["exec_plan"], row["gpus"]) == (plan, gpus)
        assert [row["measured_ms"], row["predicted_ms"]] == pytest.approx([measured, predicted], rel=1e-12)
        assert abs(row["error_pct"]) == pytest.approx(error, rel=1e-9)


def test_figure_7_series() -> None:
    wanted, found = GOLDEN["figure_7"], timeline()
    series, rates = found.series(), found.series("throughput")
    assert list(series) == list(wanted["series"])
    for name, values in wanted["series"].items():
        assert np.nan_to_num(series[name]).tolist() == values
        assert rates[name] == pytest.approx(wanted["throughput"][name], rel=1e-12)
    means = found.summary().set_index("strategy")["mean"]
    assert means.to_dict() == pytest.approx(wanted["mean_throughput"], rel=1e-12)
    # 260 s stand still at each of four changes.
    paused = timeline(pause_s=260)
    lost = sum(rate * 260 for rate in rates["Morphling"][1:])
    assert paused.summary()["samples"][0] == pytest.approx(found.summary()["samples"][0] - lost)
    times, line = paused.steps("Morphling")
    assert len(times) == len(line) == 10 + 2 * 4


def test_timelines_of_other_phases_and_rules() -> None:
    found = timeline(
        "llama7_bsz16",
        [(60, "8888", 2), (60, 0), {"duration_s": 60, "placement": "888"}, (60, "4444", 2)],
        strategies=["n/g, g, 1", "zero-offload+gc"],
        basis="predicted",
    )
    plans = found.series("plan")
    assert plans["Morphling"] == ["244", "", "", "441"]
    assert plans["n/g, g, 1"] == ["481", "", "381", "441"]
    assert found.series("throughput")["Morphling"][1] == 0
    with pytest.raises(PlanError, match="Phase 2"):
        phases_of([(60, "8"), (0, "8")])
    with pytest.raises(PlanError, match="no term"):
        own_strategy("n/g, __import__, 1")
    assert own_strategy("1, n/0, 1").plan((8,)) is None
    with pytest.raises(PlanError, match="no measurements of"):
        timeline({**to_document(load_card("llama7")), "name": "mine"}, basis="measured")


def test_figure_8_splits() -> None:
    wanted, found = GOLDEN["figure_8"], split(["roberta", "t5_3B"], 4)
    for way, name in (("equal", "Simple"), ("greedy", "Morphling")):
        rows = found.table[found.table["way"] == way].set_index("job")
        for job in ("roberta", "t5_3B"):
            assert rows.loc[job, "gpus"] == wanted[name][job]["gpus"]
            assert rows.loc[job, "iteration_s"] == pytest.approx(wanted[name][job]["iter_s"], rel=1e-12)
            assert round(rows.loc[job, "normalised"], 2) == wanted[name][job]["norm"]
        assert round(rows["normalised"].round(2).sum(), 2) == wanted[name]["overall"]
    assert found.gpus("exact") == {"roberta": 1, "t5_3B": 3}
    curves = found.curves
    for row in wanted["extra"]["measured_split_table"]:
        n, m = row["roberta_gpus"], row["t5_gpus"]
        total = curves["roberta"]["normalised"][n] + curves["t5_3B"]["normalised"][m]
        if row["roberta"] or not n:
            assert total == pytest.approx(row["norm_sum"], abs=6e-4)
    rates = wanted["res_matrix_cpu1_bw0"]
    for job in ("roberta", "t5_3B"):
        stored = curve(job, values=range(1, 5))
        assert stored["stored_best"].tolist() == pytest.approx([rates[job][str(n)][0] for n in range(1, 5)], rel=1e-12)
        best = best_allocation(sweep_resources(job, most_gpus=4))
        gpus, threads, level, rate = (float(part.split("(")[-1].strip(") [")) for part in _parts(wanted, job))
        assert [best["gpus"], best["cpu_threads"], best["bandwidth"]] == [gpus, threads, level]
        assert best["raw_best"] == pytest.approx(rate, rel=1e-12)


def _parts(wanted: dict[str, Any], job: str) -> list[str]:
    return [str(part) for part in str(wanted["max_throughput_config"][job]).split(",")[:4]]


def test_the_order_of_the_table_decides_the_schedulers_split() -> None:
    card = to_document(load_card("t5_3B"))
    for order, gpus in (("324", (1, 3)), ("234", (2, 2)), ("432", (0, 4))):
        asked = {**card, "placements_of_gpus": {count: [count] for count in order}}
        found = split(["roberta", {"card": asked, "measured": "t5_3B"}], 4)
        assert tuple(found.gpus("greedy").values()) == gpus
        assert found.gpus("exact") == {"roberta": 1, "t5_3B": 3}
    assert "no GPUs for roberta" in found.notes[0]


def test_exact_split_is_the_best_of_all_and_keeps_guarantees() -> None:
    jobs = [{"card": name, "name": name} for name in ("vit", "bert", "t5")]
    curves = split(jobs, 8).curves
    columns = [np.maximum.accumulate(curves[name]["normalised"]) for name in ("vit", "bert", "t5")]
    best = max(columns[0][a] + columns[1][b] + columns[2][8 - a - b] for a in range(9) for b in range(9 - a))
    assert split(jobs, 8).totals()["exact"] == pytest.approx(best)
    promised = float(curves["t5"]["throughput"][4])
    kept = split([*jobs[:2], {**jobs[2], "guarantee": promised}], 8)
    rows = kept.table[kept.table["way"] == "exact"].set_index("job")
    assert rows["kept"].all()
    assert rows.loc["t5", "throughput"] >= promised
    assert kept.totals()["exact"] <= best + 1e-12
    with pytest.raises(PlanError, match="keeps the guarantees of t5"):
        split([{**jobs[2], "guarantee": 1e6}], 8)


@pytest.mark.parametrize(
    "ask",
    [
        lambda: split(itertools.repeat("vit"), 4),
        lambda: split(["vit"], 10**6),
        lambda: split(3, 4),  # type: ignore[arg-type]
        lambda: split([{"card": "vit", "gpus": 3}], 4),
        lambda: timeline("vit", 5),  # type: ignore[arg-type]
        lambda: timeline("vit", itertools.repeat((1, "8"))),
        lambda: timeline("vit", pause_s=math.nan),
        lambda: curve("vit", values=itertools.count(1)),
        lambda: curve("vit", values=["a"]),  # type: ignore[list-item]
        lambda: curve("vit", gpus_per_node=0),
        lambda: measurements("vi"),
    ],
)
def test_whatever_is_asked_is_answered_in_a_sentence(ask: Callable[[], Any]) -> None:
    with pytest.raises(PlanError) as error:
        ask()
    assert str(error.value).endswith(".")


def test_figure_9_differences() -> None:
    found = parity(losses()).set_index("run")
    for run, wanted in GOLDEN["figure_9"].items():
        # The file has losses to six decimals.
        assert found.loc[run].tolist() == pytest.approx([wanted["mean"], wanted["max"], wanted["final"]], abs=1e-6)


def test_runs_left_out_are_predicted_worse() -> None:
    table = held_out(profile_of("vit"), table_2_models()["vit"].environment, starts=1)
    assert len(table) == 7
    assert table["held_out_pct"].abs().mean() > table["in_sample_pct"].abs().mean()


def test_zero_and_absent_times_are_no_times() -> None:
    found = measurements("llama7_bsz16")
    assert math.isnan(found.iteration_s("182", "4444", 2))
    assert (found.table["runnable"].sum(), len(found.table)) == (17, 21)
    assert not (found.table["iteration_s"] <= 0).any()
    assert found.iteration_s("zero-offload+gc", 1, 4) == 46
    for name in measurement_names():
        trace = measurements(name)
        parts = trace.table[["forward_ms", "overlap_sync_ms", "optimize_ms"]].sum(axis=1)
        share = parts / (trace.table["iteration_s"] * 1e3)
        # Were seconds read as milliseconds, the parts would be a thousandth of the iteration, or a thousand of them.
        assert share[trace.table["overlap_sync_ms"].notna()].between(0.2, 1.1).all()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("plan,placement\n1,2\n", "no column 'exec_plan'"),
        ("exec_plan,placement,iter_time\n244,8888,x\n", r"line 2: 'iter_time' is 'x'"),
        ("exec_plan,placement,iter_time\n244,8888,-1\n", "line 2: 'iter_time'"),
        ("exec_plan,placement,iter_time\n244,8888,1e400\n", "line 2: 'iter_time'"),
        ("exec_plan,placement,iter_time\n244,80,1\n", "line 2: .*no placement"),
        ("exec_plan,placement,iter_time\nfast,8,1\n", "line 2: 'fast' is no plan"),
        ("exec_plan,placement,iter_time\n244,8888\n", "line 2: 2 fields"),
        ("exec_plan,placement,iter_time\n", "no rows"),
        ("exec_plan,placement,placement\n1,2,3\n", "twice"),
    ],
)
def test_bad_measurements_name_row_and_field(text: str, told: str) -> None:
    with pytest.raises(MeasurementError, match=told):
        read_measurements(text)


def test_parts_without_a_unit_are_left_out() -> None:
    text = "exec_plan,placement,iter_time,forward,optimize_ms\nga,8,0.5,120,3\ngc,8,,130,3\n"
    found = read_measurements(text)
    assert found.table["forward_ms"].isna().all()
    assert found.table["optimize_ms"].tolist() == [3, 3]
    assert any("forward" in note for note in found.notes)
    assert any("1 of 2 rows" in note for note in found.notes)
    assert read_measurements(text, units={"forward": "ms"}).table["forward_ms"].tolist() == [120, 130]
    with pytest.raises(MeasurementError, match="must be s or ms"):
        read_measurements(text, units={"forward": "us"})


def test_profiles_are_read_strictly() -> None:
    assert any("4 ms" in note for note in profile_of("t5").notes)
    config = "nodes,gpus,parameter_size,num_cpu_threads,zero_type\n1,2,10,1,0\n1,2,10,1,0\n"
    data = "forward_time,Tcc,Topt,iter_time,strategy\n5,6,7,20,1100\n6,7,8,22,1100\n"
    joined = joined_profile(config, data)
    assert (len(joined), joined.floats("iteration_ms").tolist()) == (1, [22])
    assert len(profile_table(joined.table)) == 1
    with pytest.raises(MeasurementError, match="row by row"):
        joined_profile(config, data.rsplit("\n", 2)[0] + "\n")
    with pytest.raises(MeasurementError, match="line 2: 'Tcc'"):
        joined_profile(config, data.replace("5,6,7", "5,0,7"))
