"""Exploring against evaluating every listed execution, and against Calculon's exhaustive searches."""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Callable
from functools import cache
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import engine
import engine.space.rows
import models
from engine import Exploration, ExplorationCancelled, ExplorationTooLarge, Progress, WorkSizes, working_in
from engine.columns import HEADLINE
from engine.executions import reasons
from engine.exploration import run
from engine.store import Store, StoreError
from tests import reference
from tests.engine.explored_with_rows import explored_with_rows
from tests.engine.small_spaces import FIELDS, Drawn, draw

EXPLORE: Any = run
METRICS = [column.name for column in HEADLINE]
BETTER = {column.name: column.better for column in HEADLINE}
CELL = ["tensor_par", "pipeline_par", "data_par", "batch_size"]


def assert_rows(found: Exploration, executions: pd.DataFrame) -> None:
    """The rows are the executions that run, with the very figures that evaluating them gives."""
    runs = executions[executions["status"] == "ok"]
    rows = found.rows.table().to_pandas().sort_values("id")
    assert rows["id"].tolist() == runs.index.tolist()
    for name in FIELDS:
        assert rows[name].astype(object).tolist() == runs[name].astype(object).tolist(), name
    for name in METRICS:
        differs = np.flatnonzero(rows[name].to_numpy() != runs[name].to_numpy())
        assert not len(differs), (name, rows.iloc[differs[:1]].to_dict("records"), runs[name].iloc[differs[:1]])


def assert_counts(found: Exploration, executions: pd.DataFrame) -> None:
    by_reason = Counter(executions["reason"].astype(str))
    assert found.total == len(executions)
    assert found.feasible == by_reason.pop("", 0)
    assert found.infeasible_by_reason == dict(by_reason)
    assert list(found.infeasible_by_reason.values()) == sorted(by_reason.values(), reverse=True)


def assert_best(found: Exploration, executions: pd.DataFrame) -> None:
    runs = executions[executions["status"] == "ok"]
    if runs.empty:
        assert found.best is None
        return
    best = found.best
    assert best is not None
    assert best["id"] == runs["sample_rate"].idxmax()
    assert best["sample_rate"] == runs["sample_rate"].max()
    assert {name: best[name] for name in FIELDS} == {name: runs.loc[best["id"], name] for name in FIELDS}
    assert best["block_fw_flops"] == runs.loc[best["id"], "block_fw_flops"]


def needs(drawn: Drawn, executions: pd.DataFrame) -> pd.DataFrame:
    """Memory that the executions need, also those that do not get it: of a system that has enough."""
    plenty = drawn.on(
        {
            "mem1": {**drawn.machine["mem1"], "GiB": 1e15},
            "mem2": {**drawn.machine["mem2"], "GiB": 1e15, "GBps": drawn.machine["mem2"]["GBps"] or 1},
        }
    )
    found = engine.evaluate(drawn.scenario.model, plenty, executions[FIELDS])
    assert (found["status"] == "ok").all()
    return found


def assert_cells(found: Exploration, executions: pd.DataFrame, drawn: Drawn, random: Random) -> None:
    groups = dict(list(executions.groupby(CELL, sort=False)))
    metric = random.choice(METRICS)
    for name in ("sample_rate", metric):
        table = found.by_cell(name)
        assert [tuple(row) for row in table[CELL].to_numpy().tolist()] == list(groups)
        for row, (cell, inside) in zip(table.to_dict("records"), groups.items(), strict=True):
            runs = inside[inside["status"] == "ok"]
            assert (row["total"], row["feasible"]) == (len(inside), len(runs)), cell
            if runs.empty:
                assert row["value"] != row["value"]
                assert row["id"] == -1
                assert_obstacle(row, inside, drawn)
                continue
            values = runs[name]
            assert row["value"] == (values.max() if BETTER[name] == "higher" else values.min()), (name, cell)
            assert values[row["id"]] == row["value"], (name, cell)
            assert (row["reason"], row["reason_text"]) == ("", "")
            assert row["shortfall_bytes"] != row["shortfall_bytes"]
            if name == "sample_rate":
                assert row["id"] == values.idxmax()


def told_shortages(text: str) -> list[tuple[str, float, float, float]]:
    """Kind of memory, and what is needed, there and short of it [bytes], as a sentence tells it."""
    size = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "PiB": 2**50}
    amount = r"(?:under )?([\d.,]+)"
    unit = "([KMGTP]?i?B)"
    too_much = rf"{amount} {unit} of (HBM|host memory) where a GPU has {amount} {unit}, {amount} (\w+) too much"
    found = re.findall(too_much, text)
    return [
        (kind, *(float(number.replace(",", "")) * size[its] for number, its in ((need, a), (have, b), (short, c))))
        for need, a, kind, have, b, short, c in found
    ]


def assert_obstacle(row: dict[str, Any], inside: pd.DataFrame, drawn: Drawn) -> None:
    """The reason nearest to being overcome, and exactly what the execution nearest to fitting lacks."""
    by_reason = Counter(inside["reason"].astype(str))
    memory = inside[inside["reason"].isin(["memory_tier1", "memory_tier2"])]
    if len(memory):
        needed = needs(drawn, memory)
        parts = [
            (needed[f"proc_mem_{tier}_cap_req"] - drawn.machine[kind]["GiB"] * 2**30).clip(lower=0.0)
            for tier, kind in (("tier1", "mem1"), ("tier2", "mem2"))
        ]
        in_all = parts[0] + parts[1]
        lacking = row["shortfall_hbm_bytes"], row["shortfall_host_bytes"]
        assert row["shortfall_bytes"] == sum(lacking) == in_all.min()
        assert ((parts[0] == lacking[0]) & (parts[1] == lacking[1])).any()
        assert row["reason"] == ("memory_tier1" if lacking[0] else "memory_tier2")
        told = {kind: amounts for kind, *amounts in told_shortages(row["reason_text"])}
        for short, kind, words in zip(lacking, ("mem1", "mem2"), ("HBM", "host memory"), strict=True):
            assert (words in told) == (short > 0)
            if short > 0:
                have = drawn.machine[kind]["GiB"] * 2**30
                assert told[words][:2] == pytest.approx([have + short, have], rel=0.006, abs=max(short, 0.001 * 2**30))
                assert told[words][2] == pytest.approx(short, rel=0.006, abs=0.5)
        return
    most = max(by_reason.values())
    assert row["reason"] == next(reason.code for reason in reasons.REASONS if by_reason[reason.code] == most)
    assert row["shortfall_bytes"] != row["shortfall_bytes"]
    assert f"{most:,} of {len(inside):,} executions" in row["reason_text"]


def assert_step_times(found: Exploration, executions: pd.DataFrame) -> None:
    table = found.reductions.step_times()
    times = executions.loc[executions["status"] == "ok", "total_time"].to_numpy()
    assert (table["low"] < table["high"]).all()
    assert (table["low"].to_numpy()[1:] >= table["high"].to_numpy()[:-1]).all()
    inside = [int(((times >= low) & (times < high)).sum()) for low, high in table[["low", "high"]].to_numpy()]
    assert inside == table["count"].tolist()
    assert sum(inside) == len(times)


@given(random=st.randoms(use_true_random=False))
def test_an_exploration_says_what_evaluating_everything_says(random: Random) -> None:
    drawn = draw(random, largest=1_200)
    # few at a time, so that results come together from many plans and chunks
    sites, rows = random.choice((1, 5, 4096)), random.choice((3, 100, 8192))
    with working_in(WorkSizes(points_explored=sites, rows_evaluated=rows)):
        found = engine.explore_scenario(drawn.scenario)
        assert_counts(found, executions := evaluated(drawn))
        assert_rows(found, executions)
    assert_best(found, executions)
    assert_cells(found, executions, drawn, random)
    assert_step_times(found, executions)


def evaluated(drawn: Drawn) -> pd.DataFrame:
    return engine.evaluate(drawn.scenario.model, drawn.scenario.system, drawn.listed)


def test_draws_reach_every_case() -> None:
    """A property over draws that never reach a case says nothing about it."""
    seen: Counter[str] = Counter()
    for seed in range(68, 128):
        drawn = draw(Random(seed), largest=1_000)
        found = explored_with_rows(drawn.scenario)
        runs = found.rows.table().to_pandas()
        seen.update(found.infeasible_by_reason.keys())
        seen.update(runs["attention_type"].unique())
        seen["nothing in it"] += found.total == 0
        seen["nothing runs"] += found.total > 0 and found.feasible == 0
        seen["all runs"] += found.total > 0 and found.feasible == found.total
        seen["some run"] += 0 < found.feasible < found.total
        seen["inference"] += (~runs["training"]).any()
        seen["roofline"] += drawn.machine["processing_mode"] == "roofline" and found.feasible > 0
        seen["three tiers"] += runs["data_par_net"].max() >= 2
        seen["no second tier"] += drawn.machine["mem2"]["GiB"] == 0 and found.feasible > 0
        seen["offload"] += runs["activations_offload"].any()
        seen["uneven"] += (drawn.shape["num_blocks"] % runs["pipeline_par"] != 0).any()
        seen["interleaved"] += (runs["pipeline_interleaving"] > 1).any()
        seen["batches"] += runs.groupby(CELL[:3])["batch_size"].nunique().max() > 1
        seen["ties"] += runs["sample_rate"].eq(runs["sample_rate"].max()).sum() > 1
    expected = {"network_too_small", "network_not_filled", "offload_needs_three_blocks", "feedforward_not_divisible"}
    assert set(seen) >= expected | {"memory_tier1", "memory_tier2", "multihead", "multiquery"}
    assert min(seen.values()) >= 3, seen


SEARCHES = [each for each in reference.spaces() if "best_sample_rate" in each]
REASON_OF_ERROR = {
    "isn't big enough": "network_too_small",
    "isn't fully used": "network_not_filled",
    "Mem tier1": "memory_tier1",
    "Mem tier2": "memory_tier2",
    "Offloading requires": "offload_needs_three_blocks",
}


@pytest.mark.parametrize("search", SEARCHES, ids=lambda search: f"{search['model']} {search['num_procs']}")
def test_an_exploration_finds_what_the_exhaustive_search_finds(search: dict[str, Any]) -> None:
    asked = {name: search[name] for name in ("num_procs", "max_batch_size", "datatype")}
    found = engine.explore(search["model"], search["system"], **asked)
    errors: Counter[str] = Counter()
    for text, number in search["errors"].items():
        errors[next(reason for part, reason in REASON_OF_ERROR.items() if part in text)] += number
    assert (found.total, found.feasible) == (search["total"], search["feasible"])
    assert found.infeasible_by_reason == errors
    best = found.best
    assert best is not None
    assert best["sample_rate"] == search["best_sample_rate"]
    assert [best["id"], best["sample_rate"]] == search["top10"][0]
    assert found.top(10)[["id", "sample_rate"]].to_numpy().tolist() == search["top10"]
    assert found.rows.count([("sample_rate", "=", best["sample_rate"])]) == search["n_tied_at_best"]


SMALL: dict[str, Any] = {"num_procs": 8, "max_batch_size": 8, "datatype": "float16"}
NARROW: dict[str, Any] = {**SMALL, "limits": {"tensor_par_overlap": "none", "tensor_par": [1, 2], "data_par": [1, 2]}}


Everything = tuple[tuple[Any, ...], list[pd.DataFrame]]


def everything(found: Exploration) -> Everything:
    """All that an exploration tells: its plain values, and its tables."""
    rows = found.rows.table()
    plain = (found.key, found.total, found.feasible, found.infeasible_by_reason, rows.schema)
    return plain, [
        pd.DataFrame([found.best or {}], dtype=object),
        pd.concat([found.by_cell(metric) for metric in METRICS], keys=METRICS),
        found.reductions.step_times(),
        # as pandas: words may be numbered differently
        rows.to_pandas().astype(dict.fromkeys(FIELDS, object)),
        found.frontier("sample_rate", METRICS[-2]),
    ]


def assert_identical(one: Exploration, wanted: Everything) -> None:
    for table, other in zip((found := everything(one))[1], wanted[1], strict=True):
        pd.testing.assert_frame_equal(table, other, check_exact=True)
    assert found[0] == wanted[0]


def test_a_store_gives_back_the_identical_exploration(store_path: Path) -> None:
    scenarios = [draw(Random(seed), largest=2_000).scenario for seed in range(3)]
    scenarios += [engine.Scenario.of(model, "a100_80g", **NARROW) for model in ("megatron-126M", "megatron-1T")]
    in_memory = [everything(engine.explore_scenario(each)) for each in scenarios]
    sizes = [feasible for (_, _, feasible, *_), _ in in_memory]
    assert min(sizes) == 0 < sizes[-2] > 2000  # nothing at all, some in the database, and some in shards
    assert any(0 < size < 2000 for size in sizes)
    with Store(store_path) as store:
        for each, wanted in zip(scenarios, in_memory, strict=True):
            assert_identical(engine.explore_scenario(each, store=store), wanted)
    with Store(store_path) as store:
        for each, wanted in zip(scenarios, in_memory, strict=True):
            # Evaluating anything would stop at once.
            assert_identical(engine.explore_scenario(each, store=store, cancel=lambda: True), wanted)


def test_an_equal_scenario_is_not_evaluated_again(store_path: Path) -> None:
    """Neither under another name of the model, nor with limits written differently, nor by threads at once."""
    model, system = "megatron-126M", "a100_80g"
    copy = models.load(model).model_copy(update={"name": "another", "title": "Another"})
    with Store(store_path) as store:
        runs = []
        told: list[list[Progress]] = []

        def ask() -> None:
            told.append(mine := [])
            runs.append(engine.explore(model, system, **NARROW, store=store, progress=mine.append))

        with working_in(WorkSizes(seconds_between_reports=0.0)):
            threads = [threading.Thread(target=ask) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert sum(map(bool, told)) == 1  # only one evaluated
        assert len(runs) == 4
        limits = {"tensor_par": (2, 1), "data_par": {1, 2}, "tensor_par_overlap": ["none"], "training": None}
        same = engine.explore(copy, system, **{**NARROW, "limits": limits}, store=store, cancel=lambda: True)
        assert_identical(same, everything(runs[0]))
        with pytest.raises(ExplorationCancelled):
            engine.explore(model, system, **{**NARROW, "max_batch_size": 4}, store=store, cancel=lambda: True)


@cache
def narrow() -> Exploration:
    """A small space, explored in memory once for all who only read it."""
    return engine.explore("megatron-126M", "a100_80g", **NARROW)


def test_stopping_leaves_the_store_as_it_was(store_path: Path) -> None:
    with Store(store_path) as store:
        engine.explore("megatron-126M", "h100_80g_nvl8", **{**SMALL, "limits": {"tensor_par": 8}}, store=store)
        before = store.records()
        files = sorted(path.relative_to(store_path.parent) for path in store_path.parent.rglob("*"))
        for checks in (0, 1, 3, 8):
            turn = count()
            with working_in(WorkSizes(rows_evaluated=1000)), pytest.raises(ExplorationCancelled):
                engine.explore(
                    "megatron-126M",
                    "a100_80g",
                    **NARROW,
                    store=store,
                    cancel=lambda: next(turn) >= checks,  # noqa: B023
                )
            assert next(turn) == checks + 1  # stopped at once
            assert store.records() == before
            assert sorted(path.relative_to(store_path.parent) for path in store_path.parent.rglob("*")) == files
        found = engine.explore("megatron-126M", "a100_80g", **NARROW, store=store, cancel=threading.Event())
        assert_identical(found, everything(narrow()))


def test_explorations_in_memory_answer_for_themselves_whoever_came_before() -> None:
    """Databases of those that are gone are used again."""
    asked = {"num_procs": 4, "datatype": "float16"}

    def answers(batch: int) -> tuple[int, list[Any]]:
        found = engine.explore("megatron-126M", "a100_80g", max_batch_size=batch, **asked)
        assert found.rows.count() == found.feasible
        return found.rows.count(), found.rows.top(5)["sample_rate"].to_pylist()

    first, others = answers(4), [answers(batch) for batch in (8, 16, 8, 4)]
    assert others[0] == others[2] != others[1]
    assert others[3] == first != others[0]
    # Two that live at once have a database each, whichever is asked first.
    small, large = (engine.explore("megatron-126M", "a100_80g", max_batch_size=b, **asked) for b in (4, 8))
    for found in (large, small, large):
        assert found.rows.count() == found.feasible


def test_an_event_stops_an_exploration_in_memory() -> None:
    event = threading.Event()
    event.set()
    with pytest.raises(ExplorationCancelled, match=r"^The exploration was stopped\.$"):
        engine.explore("megatron-126M", "a100_80g", **SMALL, cancel=event)


@pytest.mark.parametrize("limits", [{}, {"tensor_par": 3}], ids=["some", "none"])
def test_progress_rises_to_the_total(limits: dict[str, Any]) -> None:
    told: list[Progress] = []
    with working_in(WorkSizes(seconds_between_reports=0.0)):  # every chunk is reported
        found = engine.explore("megatron-126M", "a100_80g", **SMALL, limits=limits, progress=told.append)
    assert [each.done for each in told] == sorted(each.done for each in told)
    assert [each.feasible for each in told] == sorted(each.feasible for each in told)
    assert all(each.feasible <= each.done <= each.total == found.total for each in told)
    assert (told[-1].done, told[-1].feasible) == (found.total, found.feasible)
    if found.total:
        assert len(told) > 5
        assert told[-1].seconds_left == 0
        halfway = told[len(told) // 2]
        assert halfway.rate == halfway.done / halfway.seconds
        assert halfway.seconds_left == pytest.approx((halfway.total - halfway.done) / halfway.rate)


def test_explorations_may_be_removed_while_others_explore_and_read_them(store_path: Path) -> None:
    """Whoever asks gets the whole exploration; its rows, or one sentence saying that they have been removed."""
    limits = {**NARROW["limits"], "activation_recompute": "none", "tensor_par": 1}
    scenario = engine.Scenario.of("megatron-126M", "a100_80g", **{**NARROW, "limits": limits})
    whole = engine.explore_scenario(scenario)
    outcomes: Counter[str] = Counter()
    done = threading.Event()

    def remove() -> None:
        while not done.is_set():
            try:
                store.delete(whole.key)
            except StoreError:  # nothing there: those who explore go on, instead of waiting for a thread that only asks
                done.wait(0.002)

    def ask() -> None:
        for _ in range(6):
            try:
                found = engine.explore_scenario(scenario, store=store)
                assert found.by_cell().equals(whole.by_cell())
                assert found.infeasible_by_reason == whole.infeasible_by_reason
                assert found.rows.count() == whole.feasible
                outcomes["read"] += 1
            except StoreError as problem:
                outcomes["removed" if "has no exploration" in str(problem) else str(problem)] += 1
            except Exception as problem:
                outcomes[repr(problem)] += 1

    with Store(store_path) as store:
        asking = [threading.Thread(target=ask) for _ in range(3)]
        removing = threading.Thread(target=remove)
        for thread in (removing, *asking):
            thread.start()
        for thread in asking:
            thread.join(60)
        done.set()
        removing.join(60)
    assert set(outcomes) <= {"read", "removed"}, outcomes
    assert sum(outcomes.values()) == 18


def test_spaces_too_large_to_explore_are_refused_before_any_work() -> None:
    both = {"fused_activation": [True, False], "attention_type": ["multihead", "multiquery"], "training": [True, False]}
    asked = {"num_procs": 4096, "max_batch_size": 4096, "datatype": "float16"}
    limits = {**both, "batch_size": {"min": 1024}}
    with (
        pytest.raises(ExplorationTooLarge, match=r"^The space has [0-9,]{13,} executions; up to 2,000,.*\.$"),
    ):
        engine.explore("gpt3-175B", "h100_80g_nvl8", **asked, limits=limits)


def test_more_rows_than_memory_holds_are_refused() -> None:
    with (
        working_in(WorkSizes(largest_in_memory=1000)),
        pytest.raises(ExplorationTooLarge, match=r"^[0-9,]+ executions are feasible, more than the 1,000 .*\.$"),
    ):
        engine.explore("megatron-126M", "a100_80g", **NARROW)


def test_threads_explore_and_evaluate_beside_each_other() -> None:
    drawn = [draw(Random(seed), largest=2_000) for seed in range(40, 44)]
    wanted = _each(drawn)
    results: dict[int, list[Any]] = {}

    def work(number: int) -> None:
        order = drawn[number:] + drawn[:number]
        found = _each(order)
        results[number] = found[-number:] + found[:-number] if number else found

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 3
    for found in results.values():
        for tables, alone in zip(found, wanted, strict=True):
            for table, table_alone in zip(tables, alone, strict=True):
                pd.testing.assert_frame_equal(table, table_alone, check_exact=True)


def _each(drawn: list[Drawn]) -> list[tuple[pd.DataFrame, pd.DataFrame]]:
    found = []
    for each in drawn:
        # a scenario made anew: nothing is shared but what the engine itself keeps
        scenario = engine.Scenario(**vars_of(each.scenario))
        found.append((engine.explore_scenario(scenario).by_cell("total_time"), evaluated(each)))
    return found


def vars_of(scenario: engine.Scenario) -> dict[str, Any]:
    names = ("model", "system", "num_procs", "max_batch_size", "datatype", "limits")
    return {name: getattr(scenario, name) for name in names}


@pytest.mark.parametrize("metric", ["tensor_par", "block_fw_flops", "no such thing", ""])
def test_cells_are_compared_by_headline_metrics_only(metric: str) -> None:
    found = narrow()
    ask: Callable[[], Any]
    for ask in (lambda: found.by_cell(metric), lambda: found.frontier(metric, "total_time")):
        with pytest.raises(ValueError, match=metric or "headline|column"):
            ask()


def test_a_table_that_somebody_changes_is_asked_for_again_as_it_was() -> None:
    found = narrow()
    for ask in (found.by_cell, found.by_pair):
        first, untouched = ask(), ask().copy(deep=True)
        first["reason"] = "changed"
        first.loc[:, "feasible"] += 1
        first.loc[first.index[0], "value"] = -1.0
        pd.testing.assert_frame_equal(ask(), untouched)


def test_cells_without_any_execution_are_not_listed() -> None:
    """Limits that only some cells can meet leave out the others, rather than giving them a reason to fail."""
    found = engine.explore("megatron-126M", "a100_80g", **SMALL, limits={"optimizer_sharding": True})
    table = found.by_cell("sample_rate")
    assert table["data_par"].min() > 1
    assert table["total"].min() > 0
    assert table["total"].sum() == found.total


@pytest.mark.parametrize("ids", [[-1], [0.5], ["0"], [None], 3, {1, 2}, [[0]], "1"], ids=repr)
def test_ids_that_are_none_are_refused(ids: Any) -> None:
    found = narrow()
    with pytest.raises(engine.SpaceError, match=r"^Execution ids of this space are .*\.$"):
        found.evaluate_ids(ids)
    assert found.evaluate_ids([]).columns.tolist() == found.evaluate_ids(range(2)).columns.tolist()


def test_top_is_what_sorting_gives() -> None:
    found = narrow()
    rows = found.rows.table().to_pandas()
    for by in ("sample_rate", "proc_mem_tier1_cap_req", "offload_mem_bw_req"):
        ordered = rows.sort_values([by, "id"], ascending=[BETTER[by] == "lower", True])
        for k in (0, 1, 7, 10):
            top = found.top(k, by)
            assert top["id"].tolist() == ordered["id"].tolist()[:k]
            assert top[by].tolist() == ordered[by].tolist()[:k]
    assert len(engine.explore("megatron-126M", "a100_80g", **{**NARROW, "limits": {"tensor_par": 3}}).top(5)) == 0
