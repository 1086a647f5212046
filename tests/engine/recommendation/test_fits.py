"""Executions whose predicted memory is above the capacity by less than its error may fit."""

from __future__ import annotations

from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import engine
import hardware
import models
from engine.cli.limits import parse_limits
from engine.columns import FITS
from engine.executions.limits import EXCESS, LimitError, normalise
from engine.questions.plain import plain
from engine.questions.registry import answer
from engine.recommendation import FIT_NEEDS, fit_bounds_of, fit_of, table_with_fit, with_fit
from engine.validation import validate
from engine.validation.uncertainty import fit_within, memory_interval


def machine(gib: float) -> hardware.System:
    """An H100 with other HBM and no host memory."""
    system = hardware.load("h100_80g_sxm")
    first = system.mem1.model_copy(update={"capacity_gib": gib})
    return system.model_copy(update={"mem1": first, "mem2": system.mem2.model_copy(update={"capacity_gib": 0.0})})


def complete(cost_model: str) -> dict[str, Any]:
    """The execution with all fields of a scenario that has it."""
    scenario = engine.Scenario.of(
        "llama-3-8B", machine(1e6), num_procs=8, max_batch_size=8, datatype="bfloat16", cost_model=cost_model
    )
    rows = scenario.space.table(range(min(scenario.space.total, 400)))
    return dict(rows.iloc[0].astype(object))


def asked(gib: float, execution: dict[str, Any]) -> dict[str, Any]:
    """The row that the verb `evaluate` answers."""
    found = answer(
        "evaluate",
        {
            "model": "llama-3-8B",
            "system": hardware.to_document(machine(gib)),
            "cost_model": "calibrated",
            "executions": [plain(execution)],
            "statistics": ["total_time", "proc_mem_tier1_cap_req"],
        },
    )
    return dict(found["executions"][0])


def test_the_band_above_the_capacity_is_the_one_below() -> None:
    """From plenty to little memory: fits, may not fit, may fit, does not fit, at the ends of the interval."""
    execution = complete("calibrated")
    error = memory_interval(models.load("llama-3-8B"), machine(80.0))
    assert error is not None
    assert error.low < 1.0 < error.high
    whole = engine.evaluate("llama-3-8B", machine(1e6), pd.DataFrame([execution]), cost_model="calibrated")
    needed = float(whole["proc_mem_tier1_cap_req"].iloc[0]) / 2**30
    steps = {
        "fits": needed * error.high * 1.001,
        "may not fit": needed * error.high * 0.999,
        "may fit": needed * error.low * 1.001,
        "does not fit": needed * error.low * 0.999,
    }
    for fit, gib in steps.items():
        scenario = engine.Scenario.of(
            "llama-3-8B", machine(gib), num_procs=8, max_batch_size=8, datatype="bfloat16", cost_model="calibrated"
        )
        assert fit_within(needed, gib, error) == fit
        assert fit_of(scenario, needed * 2**30, error.high - 1.0, excess=1.0 - error.low) == fit
        direct = engine.evaluate("llama-3-8B", machine(gib), pd.DataFrame([execution]), cost_model="calibrated")
        runs = fit in ("fits", "may not fit")
        assert direct["status"].iloc[0] == ("ok" if runs else "infeasible")
        row = asked(gib, execution)
        assert (row["fit"], row["status"]) == (fit, direct["status"].iloc[0])
        assert ("It may fit" in row["reason_text"]) == (fit == "may fit")
        # The figures that it has if it fits are those with enough memory.
        figures = (row["total_time"], row["proc_mem_tier1_cap_req"])
        assert figures == ((None, None) if fit == "does not fit" else (whole["total_time"].iloc[0], needed * 2**30))


def test_an_exploration_counts_what_may_fit_if_asked() -> None:
    """Without the limit nothing changes; with it, executions up to the excess run, and every door says the same."""
    kind: dict[str, Any] = {"num_procs": 8, "max_batch_size": 8, "datatype": "bfloat16", "cost_model": "calibrated"}
    capacity = 30.0 * 2**30
    few = {"pipeline_par": 1, "context_par": 1, "selective_recompute": "modules"}
    more = {**few, EXCESS: 13}
    plain, wide = (engine.explore("llama-3-8B", machine(30.0), limits=each, **kind) for each in (few, more))
    before, after = (found.rows.table().to_pandas() for found in (plain, wide))
    assert plain.total == wide.total
    assert engine.explore("llama-3-8B", machine(30.0), limits={**few, EXCESS: 0}, **kind).feasible == plain.feasible
    need = after["proc_mem_tier1_cap_req"]
    assert need.max() <= 1.13 * capacity
    assert len(before) == plain.feasible == int((need <= capacity).sum())
    assert len(after) == wide.feasible > plain.feasible
    assert (plain.may_fit, wide.may_fit) == (0, wide.feasible - plain.feasible)
    kept = after[need <= capacity].reset_index(drop=True)
    assert kept[["id", "total_time"]].equals(before[["id", "total_time"]])
    # One by one, in tables and by search.
    over = after[need > capacity].iloc[::9]
    evaluated = wide.evaluate_ids(over["id"].tolist())
    assert (evaluated["status"] == "ok").all()
    assert evaluated["total_time"].tolist() == over["total_time"].tolist()
    scenario = engine.Scenario.of("llama-3-8B", machine(30.0), limits=more, **kind)
    every = scenario.evaluate(scenario.space.table(range(scenario.space.total)))
    assert np.flatnonzero((every["status"] == "ok").to_numpy()).tolist() == sorted(after["id"])
    best = engine.best("llama-3-8B", machine(30.0), limits=more, **kind)
    assert best["sample_rate"] == after["sample_rate"].max()
    assert engine.Scenario.from_document(scenario.to_document()) == scenario
    assert parse_limits([f"{EXCESS}=13"]) == {EXCESS: 13}


def test_every_row_has_the_fit_that_counts_filters_and_files_say(tmp_path: Path) -> None:
    """Words of rows, numbers of rows that meet each set of words, files and JSON agree with the memory of the rows."""
    kind: dict[str, Any] = {"num_procs": 8, "max_batch_size": 8, "datatype": "bfloat16", "cost_model": "calibrated"}
    system = machine(30.0)
    system = system.model_copy(update={"mem2": system.mem2.model_copy(update={"capacity_gib": 20.0})})
    limits = {"pipeline_par": 1, "context_par": 1, "selective_recompute": "modules", EXCESS: 40}
    found = engine.explore("llama-3-8B", system, limits=limits, **kind)
    error, bounds = memory_interval(found.scenario.model, system), fit_bounds_of(found.scenario)
    assert error is not None
    assert bounds is not None
    rows = with_fit(found.scenario, found.rows.table().to_pandas())
    needs = [rows[name] / 2**30 for name in FIT_NEEDS]
    assert (needs[1] > 20.0).any()  # of the second tier, too
    over = (needs[0] > 30.0) | (needs[1] > 20.0)
    sure = (needs[0] * error.high <= 30.0 * (1 - 1e-9)) & (needs[1] * error.high <= 20.0 * (1 - 1e-9))
    # The limit goes beyond the error here: all that it lets run may fit.
    expected = np.select([over, sure], ["may fit", "fits"], "may not fit")
    assert rows["fit"].tolist() == expected.tolist()
    counts = rows["fit"].value_counts()
    assert set(counts.index) == {"fits", "may not fit", "may fit"}
    assert counts["may fit"] == found.may_fit
    for number in range(1, 4):
        for words in combinations(FITS, number):
            assert found.rows.count(bounds.conditions(words)) == int(rows["fit"].isin(words).sum())
    for name, read in (("rows.csv", pd.read_csv), ("rows.parquet", pd.read_parquet)):
        found.rows.export(tmp_path / name, complete=partial(table_with_fit, found.scenario))
        assert read(tmp_path / name)["fit"].tolist() == rows["fit"].tolist()
    document = {"model": "llama-3-8B", "system": hardware.to_document(system), "limits": limits, **kind}
    by_id = rows.set_index("id")["fit"]
    explored = answer("explore", {"scenario": document, "top": 5, "cells": True})
    assert explored["may_fit"] == found.may_fit
    for row in (*explored["top"], *answer("best", {"scenario": document, "top": 5})["top"]):
        assert row["fit"] == by_id[row["id"]]
    assert {cell["fit"] for cell in explored["cells"] if not cell["feasible"]} <= {None}
    assert all(cell["fit"] == by_id[cell["id"]] for cell in explored["cells"] if cell["feasible"])


def test_without_a_known_error_rows_have_no_fit() -> None:
    scenario = engine.Scenario.of("gpt3-13B", "h100_80g_nvl8", num_procs=8, max_batch_size=8, datatype="float16")
    assert fit_bounds_of(scenario) is None
    assert "fit" not in with_fit(scenario, scenario.evaluate(scenario.space.table([0])))


@pytest.mark.parametrize("excess", [-1, 101, 1.5, True, "much", [3, 4]])
def test_an_excess_that_is_no_percentage_is_refused(excess: Any) -> None:
    with pytest.raises(LimitError, match="whole number of percent from 0 to 100"):
        normalise({EXCESS: excess}, "calibrated")


def test_calculon_has_no_excess_of_memory() -> None:
    with pytest.raises(LimitError, match="There is no limit on 'memory_excess'"):
        normalise({EXCESS: 10}, "calculon")


def test_runs_that_ran_are_counted_by_their_fit() -> None:
    table = validate()
    predicted = table["predicted_mem_gib"].notna()  # left open also where notes put tensors on the host
    assert (table["memory_fit"] == "")[~predicted].all()
    assert set(table.loc[predicted, "memory_fit"]) <= {"fits", "may not fit", "may fit", "does not fit"}
    refused = (table["memory_fit"] == "does not fit").sum() / predicted.sum()
    assert refused < 0.05


@pytest.mark.parametrize(("needed", "fit"), [(80.0, "fits"), (80.1, "does not fit")])
def test_without_a_known_error_the_capacity_decides(needed: float, fit: str) -> None:
    assert fit_within(needed, 80.0, None) == fit
