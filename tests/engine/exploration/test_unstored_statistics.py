"""Statistics that are not stored, of all stored rows, against evaluating executions by themselves."""

from __future__ import annotations

import os
import signal
from contextlib import nullcontext
from functools import lru_cache
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import duckdb
import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import engine
from engine import Exploration, ExplorationCancelled, Progress, WorkSizes, working_in
from engine.columns import HEADLINE, STATISTICS, UnknownColumn, defined_of, fields_of, statistics_of
from engine.exploration.unstored_statistics import add_columns, is_stored
from engine.store import (
    NotEvaluatedError,
    Store,
    StoreAccessError,
    StoreCondition,
    StoreError,
    TooManyValuesError,
)
from engine.store.added_columns import AddedWriter
from tests.engine.forked import ended
from tests.engine.small_spaces import draw
from tests.engine.store_rows import rows_in_tables

LIMITS = {
    "microbatch_size": [1, 2],
    "data_par_overlap": False,
    "tensor_par_overlap": "none",
    "activations_offload": False,
    "optimizer_offload": False,
    "weight_offload": False,
}
SMALL: dict[str, Any] = {"num_procs": 16, "max_batch_size": 16, "datatype": "float16", "limits": LIMITS}
SYSTEMS = {"calculon": "h100_80g_nvl8", "calibrated": "h100_80g_sxm"}
EXPLORED = [("memory", "calculon"), ("table", "calibrated"), ("shards", "calculon"), ("shards", "calibrated")]
"""Every place with rows of one cost model, and of both where new explorations have them."""


def explored(place: str, cost_model: str, folder: Path) -> Exploration:
    """GPT-3 13B on 16 GPUs, its rows in memory, in a table of an earlier version or in several groups of shards."""
    if place == "memory":
        return engine.explore("gpt3-13B", SYSTEMS[cost_model], **SMALL)
    store = Store(folder / f"{cost_model}.duckdb")
    with (
        working_in(WorkSizes(rows_of_group=1_000)),
        rows_in_tables() if place == "table" else nullcontext(),
    ):
        return engine.explore("gpt3-13B", SYSTEMS[cost_model], **SMALL, store=store)


@pytest.fixture(name="found", params=EXPLORED, scope="module")
def _found(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Exploration:
    place, cost_model = request.param
    found = explored(place, cost_model, tmp_path_factory.mktemp(place))
    assert found.scenario.cost_model == cost_model
    return found


@lru_cache(maxsize=1)
def table_of(found: Exploration) -> pd.DataFrame:
    """All figures of every stored execution, evaluated by its id, in the order of the rows; once for those who ask one
    after the other."""
    return found.evaluate_ids(found.rows.table(["id"])["id"].to_numpy())


def assert_evaluated(found: Exploration, names: list[str], where: list[StoreCondition], sample: int = 60) -> None:
    """The values of a sample of rows are those of their stored fields, evaluated apart; of a few rows one at a time."""
    fields = [column.name for column in fields_of(found.scenario.cost_model)]
    rows = found.rows.table([*fields, *names], where=where).to_pandas()
    scenario = found.scenario
    places = Random(0).sample(range(len(rows)), min(sample, len(rows)))
    for chosen in (places, *([place] for place in places[:3])):
        table = rows.iloc[chosen]
        apart = engine.evaluate(scenario.model, scenario.system, table[fields], cost_model=scenario.cost_model)
        assert (apart["status"] == "ok").all()
        for name in names:
            assert np.array_equal(table[name], apart[name], equal_nan=True), name


def in_rows_order(chosen: pd.DataFrame, ids: npt.NDArray[np.int64]) -> pd.DataFrame:
    return chosen.set_index("id").loc[ids].reset_index()


@settings(max_examples=settings().max_examples // 2)
@given(random=st.randoms(use_true_random=False))
def test_every_statistic_of_a_sample_is_what_evaluating_it_gives(random: Random) -> None:
    found = engine.explore_scenario(draw(random, largest=2_000).scenario)
    where = random.choice(
        ([], [StoreCondition("activation_recompute", "=", "full")], [StoreCondition("tensor_par", ">", 1)])
    )
    names = random.sample([column.name for column in STATISTICS if not is_stored(column.name)], 8)
    few = max(7, found.feasible // 6)  # several chunks, the last of another size
    with working_in(WorkSizes(rows_with_statistics=random.choice((few, 500, 32_768)))):
        add_columns(found, names)
    assert_evaluated(found, names, where, sample=5)


def test_the_register_knows_which_statistics_a_cost_model_defines(found: Exploration) -> None:
    rows = table_of(found)
    defined = {column.name for column in defined_of(found.scenario.cost_model)}
    for column in statistics_of(found.scenario.cost_model):
        assert rows[column.name].notna().all() if column.name in defined else rows[column.name].isna().all(), column


def test_rows_answer_every_question_about_what_was_added(found: Exploration, tmp_path: Path) -> None:
    rows, names = found.rows, ["act_space", "weight_space", "block_fw_time"]
    add_columns(found, names)
    assert rows.missing([*names, "useful_flops"]) == ["useful_flops"]
    expected = table_of(found)
    low, high = (float(expected["act_space"].quantile(share)) for share in (0.2, 0.6))
    where = [
        StoreCondition("act_space", ">=", low),
        StoreCondition("act_space", "<=", high),
        StoreCondition("tensor_par", ">", 1),
    ]
    chosen = expected[expected["act_space"].between(low, high) & (expected["tensor_par"] > 1)]
    assert 0 < len(chosen) < len(expected)
    assert rows.count(where) == len(chosen)
    table = rows.table(["id", "total_time", *names], where=where).to_pandas()
    assert table["id"].tolist() == chosen["id"].tolist()
    for name in ("total_time", *names):
        assert np.array_equal(table[name], chosen[name]), name
    span = rows.value_range("block_fw_time", where=where)
    assert span == (chosen["block_fw_time"].min(), chosen["block_fw_time"].max())
    best = rows.best_by(["tensor_par", "pipeline_par"], "weight_space", where=where).to_pandas()
    order = chosen.sort_values(["weight_space", "id"]).groupby(["tensor_par", "pipeline_par"])
    assert best["value"].tolist() == order["weight_space"].first().tolist()
    assert best["id"].tolist() == order["id"].first().tolist()
    assert best["rows"].tolist() == order.size().tolist()
    top = rows.top(5, "block_fw_time", where=where, names=["id", "block_fw_time"]).to_pandas()
    assert top["id"].tolist() == chosen.sort_values(["block_fw_time", "id"])["id"].head(5).tolist()
    page = rows.page(3, 7, order_by=(("act_space", "descending"),), where=where, names=["id", "act_space"]).to_pandas()
    ordered = chosen.sort_values(["act_space", "id"], ascending=[False, True])
    assert page["id"].tolist() == ordered["id"].iloc[3:10].tolist()
    assert page["act_space"].tolist() == ordered["act_space"].iloc[3:10].tolist()
    ids = chosen["id"].to_numpy()[::-3]
    assert rows.fetch(ids, ["weight_space"])["weight_space"].to_pylist() == (
        in_rows_order(chosen, ids)["weight_space"].tolist()
    )
    counted = rows.histogram("act_space", "total_time", bins=(9, 5), where=where)
    assert np.array_equal(
        counted.counts, np.histogram2d(chosen["act_space"], chosen["total_time"], (counted.x_edges, counted.y_edges))[0]
    )
    written = rows.export(
        tmp_path / "out.parquet", names=["id", "act_space"], where=where, order_by=(("weight_space", "ascending"),)
    )
    exported = pq.read_table(tmp_path / "out.parquet")
    assert written == len(chosen)
    assert exported["id"].to_pylist() == chosen.sort_values(["weight_space", "id"])["id"].tolist()
    assert exported.schema.field("act_space").metadata[b"unit"] == b"bytes"
    stored = rows.table([column.name for column in HEADLINE]).to_pandas()
    assert all(np.array_equal(stored[column.name], expected[column.name]) for column in HEADLINE)


def test_what_was_not_added_is_refused_by_name(found: Exploration) -> None:
    rows = found.rows
    for ask in (
        lambda: rows.count([StoreCondition("optimizer_space", "<=", 1.0)]),
        lambda: rows.top(3, "optimizer_space"),
        lambda: rows.best_by(["tensor_par"], "optimizer_space"),
        lambda: rows.table(["id", "optimizer_space"]),
        lambda: rows.value_range("optimizer_space"),
    ):
        with pytest.raises(NotEvaluatedError, match="optimizer_space is not stored") as refused:
            ask()
        assert refused.value.names == ("optimizer_space",)
    with pytest.raises(StoreError, match="status is no figure of a stored row"):
        rows.table(["status"])
    with pytest.raises(StoreError, match="total_time is stored"), rows.adding(["total_time"]):
        pass


def test_progress_counts_the_rows(found: Exploration) -> None:
    told: list[Progress] = []
    with working_in(WorkSizes(rows_with_statistics=900)):
        add_columns(found, ["act_grad_space", "total_time"], progress=told.append)
    assert_evaluated(found, ["act_grad_space"], [])
    assert [one.done for one in told] == [*range(900, found.feasible, 900), found.feasible]
    assert {one.total for one in told} == {found.feasible}
    add_columns(found, ["act_grad_space"], cancel=lambda: True)  # there already


@pytest.mark.parametrize("better", ["higher", "lower"])
def test_the_frontier_of_statistics_that_are_not_stored_is_beaten_by_nothing(better: str) -> None:
    found = engine.explore("gpt3-13B", "h100_80g_nvl8", **SMALL)
    where = [StoreCondition("tensor_par", "<=", 4)]
    axes = ("sample_rate", "block_optim_flops", "act_space")
    with pytest.raises(NotEvaluatedError, match="block_optim_flops, act_space"):
        found.frontier(*axes, where=where)
    add_columns(found, axes)
    front = found.frontier(*axes, where=where, better={"block_optim_flops": better})
    values = table_of(found)
    values = values[values["tensor_par"] <= 4]
    sign = -1.0 if better == "higher" else 1.0
    points = np.column_stack([-values["sample_rate"], sign * values["block_optim_flops"], values["act_space"]])
    kept = points[np.isin(values["id"], front["id"])]
    for row in points[:: max(1, len(points) // 400)]:
        assert (kept <= row).all(axis=1).any()
    for row in kept:
        assert not ((points <= row).all(axis=1) & (points < row).any(axis=1)).any()
    assert front["act_space"].tolist() == in_rows_order(values, front["id"].to_numpy())["act_space"].tolist()


def test_it_stops_when_asked_to(found: Exploration) -> None:
    told: list[Progress] = []
    with working_in(WorkSizes(rows_with_statistics=100)), pytest.raises(ExplorationCancelled):
        add_columns(found, ["weight_grad_space"], progress=told.append, cancel=lambda: len(told) == 3)
    assert told[-1].done == 300
    assert found.rows.missing(["weight_grad_space"]) == ["weight_grad_space"]


@pytest.mark.parametrize(
    ("name", "error"),
    [("tensor_par", ValueError), ("bubble_share", ValueError), ("logit_space", ValueError), ("acts", UnknownColumn)],
)
def test_only_statistics_of_the_cost_model_are_added(name: str, error: type[Exception]) -> None:
    found = engine.explore("megatron-126M", "a100_80g", num_procs=2, max_batch_size=2, datatype="float16")
    with pytest.raises(error, match=name):
        add_columns(found, [name])


def test_those_read_longest_ago_give_way(tmp_path: Path) -> None:
    found = explored("shards", "calculon", tmp_path)
    rows, added = found.rows, found.rows._added
    files = f"calculon.rows/{found.key}.added*/*"
    each = 8 * found.feasible

    def finish(writer: Any) -> dict[str, int]:
        writer.finish()
        return dict.fromkeys(writer.names, each)

    with working_in(WorkSizes(bytes_of_added_columns=2 * each)), patch.object(added, "_finish", finish):
        add_columns(found, ["act_space", "weight_space"])
        with pytest.raises(TooManyValuesError, match="more than") as refused:
            rows.check_room(["act_space", "weight_space", "useful_flops", "total_time"], found.feasible)
        assert (refused.value.rows, refused.value.names) == (found.feasible, 3)
        with pytest.raises(TooManyValuesError):
            add_columns(found, ["act_grad_space", "optimizer_space", "useful_flops"])
        rows.value_range("act_space")
        add_columns(found, ["optimizer_space"])
        assert rows.missing(["act_space", "weight_space", "optimizer_space"]) == ["weight_space"]
        assert {path.name for path in tmp_path.glob(files)} == {"act_space.parquet", "optimizer_space.parquet"}
        with added.reading(found.key, ["act_space"]):  # by a query that goes on
            rows.value_range("optimizer_space")
            add_columns(found, ["useful_flops"])
            assert not rows.missing(["act_space", "useful_flops"])
        add_columns(found, ["act_grad_space"])
        assert rows.missing(["useful_flops", "act_grad_space", "act_space"]) == ["act_space"]
        assert added.bytes == 2 * each


def test_in_memory_a_few_columns_are_kept() -> None:
    found = explored("memory", "calculon", Path())
    names = [column.name for column in STATISTICS if not is_stored(column.name)][
        : WorkSizes().columns_added_in_memory + 1
    ]
    with pytest.raises(TooManyValuesError):
        add_columns(found, names)
    add_columns(found, names[:-1])
    add_columns(found, names[-1:])
    assert found.rows.missing(names) == names[:1]


def _append_while_deleted(writer: AddedWriter, values: dict[str, Any], store: Store, key: str) -> None:
    writer.append(values)
    store.delete(key)


def test_deleting_an_exploration_removes_what_was_added(tmp_path: Path) -> None:
    for place in ("table", "shards"):
        (tmp_path / place).mkdir()
        found = explored(place, "calculon", tmp_path / place)
        add_columns(found, ["act_space"])
        folder = tmp_path / place / "calculon.rows"
        assert (folder / f"{found.key}.added" / "act_space.parquet").is_file()
        with Store(tmp_path / place / "calculon.duckdb") as store:
            values = {"useful_flops": np.zeros(found.feasible)}
            with pytest.raises(StoreError, match="removed while"), found.rows.adding(list(values)) as writer:
                _append_while_deleted(writer, values, store, found.key)
            assert not list(folder.glob("*"))
            again = explored(place, "calculon", tmp_path / place)
            assert again.rows.missing(["act_space", "useful_flops"]) == ["act_space", "useful_flops"]


def die_while_adding(_: Connection, *paths: Path) -> None:
    """Be killed while columns are added to two stores."""
    one, other = (engine.explore("gpt3-13B", "h100_80g_nvl8", **SMALL, store=path) for path in paths)
    for found in (one, other):
        add_columns(found, ["act_space"])

    def die(_: Progress) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    add_columns(one, ["weight_space"], progress=lambda _: add_columns(other, ["weight_space"], progress=die))


def test_what_a_process_that_died_left_is_swept(tmp_path: Path) -> None:
    """It was adding a column to two stores, of which one has rows in shards and the other in a table."""
    keys: dict[Path, tuple[str, int]] = {}
    for place in ("table", "shards"):
        (tmp_path / place).mkdir()
        found = explored(place, "calculon", tmp_path / place)
        keys[tmp_path / place / "calculon.duckdb"] = found.key, found.feasible
        del found
    assert ended(die_while_adding, *keys) == -signal.SIGKILL
    for path, (key, feasible) in keys.items():
        assert len(list(path.parent.glob("calculon.rows/*.added*/*"))) == 2
        with Store(path) as store:
            assert not list(path.parent.glob("calculon.rows/*.added*"))
            assert store.rows(key).count() == feasible
            assert store.rows(key).missing(["act_space"]) == ["act_space"]


def test_nothing_is_left_when_the_store_is_closed(tmp_path: Path) -> None:
    found = explored("table", "calculon", tmp_path)
    add_columns(found, ["act_space"])
    assert (tmp_path / "calculon.rows").is_dir()
    del found
    assert sorted(path.name for path in tmp_path.iterdir()) == ["calculon.contents", "calculon.duckdb"]


@pytest.mark.parametrize("harm", ["removed", "cut"])
def test_a_column_that_was_damaged_is_evaluated_again(harm: str, tmp_path: Path) -> None:
    found = explored("shards", "calculon", tmp_path)
    add_columns(found, ["act_space", "weight_space"])
    expected = found.rows.table(["act_space", "weight_space"])
    file = tmp_path / "calculon.rows" / f"{found.key}.added" / "act_space.parquet"
    if harm == "removed":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    with pytest.raises(NotEvaluatedError, match="act_space is not stored"):
        found.rows.table(["act_space", "weight_space"])
    assert found.rows.missing(["act_space", "weight_space"]) == ["act_space"]
    add_columns(found, ["act_space"])
    assert found.rows.table(["act_space", "weight_space"]).equals(expected)


def test_columns_of_another_length_are_refused(found: Exploration) -> None:
    with pytest.raises(StoreError, match="not complete"), found.rows.adding(["act_offload_bw_req"]) as writer:
        writer.append({"act_offload_bw_req": np.zeros(found.feasible - 1)})
    with pytest.raises(StoreError, match="as many values"), found.rows.adding(["act_offload_bw_req"]) as writer:
        writer.append({"act_offload_bw_req": np.zeros(found.feasible + 1)})
    assert found.rows.missing(["act_offload_bw_req"])


def test_a_store_for_reading_only_says_so(tmp_path: Path) -> None:
    found = explored("shards", "calculon", tmp_path)
    key = found.key
    del found
    with (
        Store(tmp_path / "calculon.duckdb", read_only=True) as store,
        pytest.raises(StoreAccessError, match="reading"),
        store.rows(key).adding(["act_space"]),
    ):
        pass


def test_queries_reach_no_other_files_than_before(tmp_path: Path) -> None:
    found = explored("shards", "calculon", tmp_path)
    add_columns(found, ["act_space"])
    other = tmp_path / "other.parquet"
    pq.write_table(found.rows.table(["act_space"]), other)
    with found.rows._database.cursor() as cursor, pytest.raises(duckdb.Error):
        cursor.sql("SELECT * FROM read_parquet($file)", params={"file": str(other)}).fetchall()
