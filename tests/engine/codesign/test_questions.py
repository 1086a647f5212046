"""Calculon's own co-design questions, as the studies that come with Shardscape, and what is asked of answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import engine
from engine import WorkSizes, codesign, whatif, working_in
from engine.codesign.answers import Results
from engine.codesign.points import rows_of
from tests.engine.codesign.small_study import study
from tests.engine.explored_with_rows import explored_with_rows


def some(name: str, **changes: Any) -> Results:
    """A ready study cut down to some of its values, computed."""
    asked = codesign.Study.from_document({**codesign.ready_study(name).to_document(), **changes})
    rows = rows_of(asked, np.arange(asked.designs)).to_pandas().sort_values("point").reset_index(drop=True)
    return Results(asked, rows)


def test_studies_that_come_along_can_be_run() -> None:
    assert codesign.ready_names() == ["hbm_capacity", "machine_sizes", "offload_capacity_and_bandwidth"]
    for name in codesign.ready_names():
        asked = codesign.ready_study(name)
        assert 50 <= asked.points <= 1_000
        assert codesign.estimate(asked).seconds_low < 120
    with pytest.raises(codesign.StudyError, match=r"no ready study 'hbm'; did you mean 'hbm_capacity'; there are hbm"):
        codesign.ready_study("hbm")


def test_offloading_takes_the_place_of_memory_beside_the_processor() -> None:
    """With enough memory to offload to, 20 GiB do what 240 GiB do; without it every step up is worth something.

    GPT-3 175B on 1,024 H100s, exact by Calculon's model.
    """
    capacities = [10, 20, 80, 240]
    found = some(
        "hbm_capacity",
        models=["gpt3-175B"],
        edits=[
            {"parameter": "hbm_capacity", "values": capacities},
            {"parameter": "host_capacity", "values": [0, 512]},
        ],
    )
    rates = found.designs().pivot_table(index="hbm_capacity", columns="host_capacity", values="samples_per_s")
    assert rates[512.0].nunique() == 1
    assert (np.diff(rates[0.0]) > 0).all()
    assert (rates[0.0] < rates[512.0]).all()
    best = engine.best("gpt3-175B", "h100_80g_nvl8", num_procs=1024, max_batch_size=1024, datatype="float16")
    assert rates.loc[80, 512] == best["sample_rate"]
    # So the cheapest of these machines is also as good as any.
    assert len(found.front()) < len(found.designs())
    assert found.best()["hbm_capacity"] == 10  # type: ignore[index]


def test_more_offload_bandwidth_helps_until_nothing_waits_for_it() -> None:
    found = some(
        "offload_capacity_and_bandwidth",
        sizes=[64],
        edits=[
            {"parameter": "host_capacity", "values": [0, 128, 512]},
            {"parameter": "host_bandwidth", "values": [25, 200, 400]},
        ],
    )
    rates = found.designs().pivot_table(index="host_bandwidth", columns="host_capacity", values="samples_per_s")
    assert rates[0.0].nunique() == 1, "a link to no memory is worth nothing"
    assert (np.diff(rates[512.0]) >= 0).all()
    assert rates.loc[200, 512] == rates.loc[400, 512], "from here on nothing waits"
    assert rates.loc[25, 512] < rates.loc[200, 512]


def test_some_sizes_waste_processors() -> None:
    """Megatron 1T has 128 blocks of 160 heads: on 1,680 processors it goes slower than on 1,536."""
    found = some("machine_sizes", models=["megatron-1T"], sizes=[1344, 1408, 1536, 1680])
    rate = found.designs().set_index("processors")["samples_per_s"]
    assert rate[1680] < rate[1408] < rate[1344] < rate[1536]
    assert sorted(found.front()["processors"]) == [1344, 1536]
    best = engine.best("megatron-1T", "a100_80g", num_procs=1680, max_batch_size=4096, datatype="float16")
    assert rate[1680] == best["sample_rate"]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> codesign.Results:
    """The results of the small study."""
    place = tmp_path_factory.mktemp("study")
    codesign.run(study(), place, workers=1)
    return codesign.results(place)


def test_a_mix_is_tokens_over_the_time_that_each_model_takes(found: codesign.Results) -> None:
    asked = study()
    first, second = (found.designs(name) for name in ("megatron-126M", "gpt3-13B"))
    mix = found.designs()
    expected = 1 / (0.75 / first["tokens_per_s"] + 0.25 / second["tokens_per_s"])
    assert mix["tokens_per_s"].to_numpy() == pytest.approx(expected.to_numpy(), rel=1e-14, nan_ok=True)
    assert (first["tokens_per_s"] == first["samples_per_s"] * 2048).all()
    even = found.otherwise(models=[*asked.to_document()["models"]][::1]).designs()
    assert even.equals(mix)
    cheaper = found.otherwise(costs={"usd": {"processor": 1}, "watts": {"processor": 100}})
    assert (cheaper.designs()["usd"] == cheaper.designs()["processors"]).all()
    with pytest.raises(codesign.StudyError, match=r"Rows depend on sizes here"):
        found.otherwise(sizes=[8])


def test_budgets_constraints_and_what_binds(found: codesign.Results) -> None:
    found = found.otherwise(constraints=[{"quantity": "processors", "at_most": 8}, {"quantity": "usd", "at_most": 1e9}])
    best, free = found.best(), found.best(constraints=[])
    assert best is not None
    assert free is not None
    assert (best["processors"], free["processors"]) == (8, 16)
    bound = found.binding().set_index("constraint")
    assert bound["binds"].tolist() == [True, False]
    assert bound["without"].tolist() == [free["tokens_per_s"], best["tokens_per_s"]]
    table = found.designs()
    for budget, row in found.best_per_budget([3e5, 1e6], constraints=[]).set_index("budget").iterrows():
        there = table[(table["usd"] <= budget) & (table["status"] == "ok")]  # type: ignore[operator]
        assert row["tokens_per_s"] == there["tokens_per_s"].max()
    steps = found.best_per_budget(constraints=[])
    assert steps["budget"].is_monotonic_increasing
    assert steps["tokens_per_s"].is_monotonic_increasing
    assert found.best(constraints=[codesign.Constraint(quantity="watts", at_most=1)]) is None
    with pytest.raises(codesign.StudyError, match=r"add proc_mem_tier1_cap_req to its statistics"):
        found.front(["tokens_per_s", "hbm_gib"])
    with pytest.raises(codesign.StudyError, match=r"tokens_per_s is no budget"):
        found.best_per_budget(budget="tokens_per_s")
    with pytest.raises(codesign.StudyError, match=r"There is no model 'gpt3-13b'.*did you mean 'gpt3-13B'"):
        found.front(of="gpt3-13b")


def test_a_whole_exploration_keeps_what_only_it_knows(tmp_path: Path) -> None:
    edits = [{"parameter": "hbm_capacity", "values": [0.1, 20, 80]}]
    asked = study(models=["megatron-126M"], edits=edits, sizes=[8], batches=[16], evaluate="exploration")
    codesign.run(asked, tmp_path, workers=1)
    none, *some = codesign.results(tmp_path).designs("megatron-126M").to_dict("records")
    assert none["feasible"] == 0 < none["executions"]
    assert np.isnan(none["median_samples_per_s"])
    for row in some:
        explored = explored_with_rows(asked.scenario_at(asked.design(row["design"]), 0))
        rows = explored.rows.table(["sample_rate", *NO_OFFLOAD]).to_pandas()
        assert (row["executions"], row["feasible"]) == (explored.total, len(rows))
        assert row["median_samples_per_s"] == rows["sample_rate"].median()
        assert row["p90_samples_per_s"] == rows["sample_rate"].quantile(0.9)
        plain = rows[~rows[NO_OFFLOAD].any(axis=1)]
        assert row["no_offload_samples_per_s"] == plain["sample_rate"].max() <= row["samples_per_s"]
    # A part that an earlier version wrote is as good, but for these.
    (part,) = (tmp_path / "parts").iterdir()
    fewer = pq.ParquetFile(part).read().drop_columns(["executions", "p90_samples_per_s"]).replace_schema_metadata(None)
    with pq.ParquetWriter(part, fewer.schema, store_schema=False) as file:
        file.write_table(fewer)
        file.add_key_value_metadata({"study": asked.key})
    again = codesign.results(tmp_path).designs("megatron-126M")
    assert again["samples_per_s"].tolist()[1:] == [row["samples_per_s"] for row in some]
    assert "executions" not in again


def test_an_exploration_too_large_to_be_kept_is_a_problem_of_its_point() -> None:
    asked = study(models=["megatron-126M"], edits=[], follow=[], sizes=[8], batches=[16], evaluate="exploration")
    with working_in(WorkSizes(largest_in_memory=1_000)):
        (row,) = rows_of(asked, np.arange(1)).to_pylist()
    assert row["status"] == "problem"
    assert row["problem"].startswith("More than 1,000 executions run, too many")


NO_OFFLOAD = ["weight_offload", "activations_offload", "optimizer_offload"]


def test_where_one_more_dollar_goes(tmp_path: Path) -> None:
    asked = study(sizes=[8], batches=[16])
    codesign.run(asked, tmp_path, workers=1)
    found = codesign.results(tmp_path)
    worth = codesign.sensitivity(found, 3).set_index("parameter")
    with pytest.raises(codesign.StudyCancelled):
        codesign.sensitivity(found, 3, cancel=lambda: True)
    scenario = asked.scenario_at(asked.design(3), 1)
    after = whatif.changed(scenario, {"hbm_capacity": 88.0})
    assert worth.loc["hbm_capacity", "higher"] == 88
    assert worth.loc["hbm_capacity", "more"] == pytest.approx(8 * 8 * (17 + 82) / 2)
    only = codesign.sensitivity(found, 3, of="gpt3-13B").set_index("parameter")
    gain = engine.best_of(after)["sample_rate"] / engine.best_of(scenario)["sample_rate"] - 1
    assert only.loc["hbm_capacity", "gain"] == pytest.approx(gain, abs=1e-15)
    assert worth["gain"].idxmax() == "matrix"
    # In Calculon's model an exchange that just fits its window costs more than one that just does not.
    assert worth.index[worth["gain"] < 0].tolist() == ["net0_bandwidth"]
