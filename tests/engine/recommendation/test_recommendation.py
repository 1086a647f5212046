"""The recommended execution is the simplest that is allowed and too close to call, by rows as by search, and each of
the best that is not it has a reason that holds."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import engine
from engine import whatif
from engine.cli.main import app
from engine.columns import fields_of
from engine.executions.codes import OFFLOADS
from engine.questions import answer
from engine.questions.changes import explain_less_from_more
from engine.recommendation import (
    NOTHING_RECOMMENDED,
    UNTOLD_ERROR,
    UNTOLD_HEADROOM,
    ProvenBest,
    Recommendation,
    RecommendationLimits,
    fit_of,
    mechanisms,
    mechanisms_of,
    more_than,
    recommend,
    reoptimise_shown,
)
from engine.recommendation.contenders import LAYOUT
from engine.recommendation.mechanisms import number_of_mechanisms
from engine.validation.accepted import current_memory_residuals
from engine.validation.uncertainty import memory_interval_of, memory_residuals
from engine.whatif.prepared_spaces import ready
from hardware import GIB
from tests.engine.explored_with_rows import explored_with_rows
from tests.engine.validation.library_outcomes import mapped, outcomes

ASKED: dict[str, dict[str, Any]] = {
    "calibrated": {
        "model": "llama-3.1-8B",
        "system": "h100_80g_sxm",
        "num_procs": 4,
        "max_batch_size": 16,
        "datatype": "bfloat16",
    },
    "calculon": {"model": "gpt2-xl", "system": "a100_80g", "num_procs": 8, "max_batch_size": 8, "datatype": "float16"},
    "unmeasured everywhere": {
        "model": "llama-3.1-8B",
        "system": "mi300x_192g",
        "num_procs": 4,
        "max_batch_size": 8,
        "datatype": "bfloat16",
    },
}


@cache
def scenario(name: str) -> engine.Scenario:
    return engine.Scenario.of(**ASKED[name])


@cache
def exploration(name: str) -> engine.Exploration:
    return explored_with_rows(scenario(name))


@cache
def recommended(name: str, **asked: Any) -> Recommendation:
    return recommend(exploration(name), **asked)


@cache
def everything(name: str) -> pd.DataFrame:
    """Every execution that runs, with what was never measured of it."""
    found = exploration(name).rows.table().to_pandas()
    found = found.astype({str(column): object for column in found.select_dtypes("category")})
    known: pd.DataFrame = found.assign(unknown=scenario(name).not_measured_of_rows(found))
    return known


def by_looking_at_all(name: str, found: Recommendation) -> tuple[set[int], int]:
    """The recommended execution, or those that tie with it, and how many are too close to call, by definition."""
    asked, terms, table = scenario(name), found.terms, everything(name)
    capacity = asked.system.mem1.capacity_gib * GIB
    plain = table[~table[list(OFFLOADS)].any(axis=1)] if not terms.offload else table
    fits = plain[plain["proc_mem_tier1_cap_req"] * (1 + terms.headroom) <= capacity]
    known = fits if terms.unmeasured else fits[[not set(one) - set(found.waived) for one in fits["unknown"]]]
    best = table["sample_rate"].max()
    floor = best / (1 + terms.error)
    if known["sample_rate"].max() < floor:
        floor = known["sample_rate"].max() / (1 + terms.error)
    close = known[known["sample_rate"] >= floor]
    number = np.array([len(mechanisms_of(row)) for row in close.to_dict("records")])
    simplest = close[number == number.min()]
    rates = simplest["sample_rate"]
    return set(simplest["id"][rates == rates.max()]), int((fits["sample_rate"] >= floor).sum())


STATED: dict[str, Any] = {"error": 0.2, "offload": True, "unmeasured": True}


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("calibrated", {}),
        ("calculon", {}),
        ("unmeasured everywhere", {}),
        ("calibrated", {"headroom": 0.5}),
        ("calculon", STATED),
        ("unmeasured everywhere", STATED),
    ],
    ids=str,
)
def test_it_is_the_simplest_that_is_allowed_and_too_close_to_call(name: str, asked: dict[str, Any]) -> None:
    found = recommended(name, **asked)
    assert found.execution is not None
    expected, close = by_looking_at_all(name, found)
    assert found.execution["id"] in expected
    assert found.close == close
    again = recommend(scenario(name), **asked)
    assert again.execution is not None
    assert again.execution["id"] == found.execution["id"]
    assert [(one.id, one.reason) for one in again.contenders] == [(one.id, one.reason) for one in found.contenders]


def evaluated(name: str, execution: Any) -> dict[str, Any]:
    """An execution with its outcome and figures."""
    return {str(column): value for column, value in scenario(name).row(int(execution["id"])).items()}


@pytest.mark.parametrize("name", ASKED)
def test_what_is_known_of_a_scenario_changes_the_time_of_its_recommendation_only(name: str) -> None:
    asked, found = scenario(name), recommended(name)
    optimum = engine.best_of(asked)
    for near in (None, evaluated(name, found.execution), evaluated(name, found.fastest)):
        again = recommend(asked, contenders=0, best=ProvenBest.of(optimum), prepared=ready(asked), near=near)
        assert again.execution == found.execution
        assert again.fastest == found.fastest
        assert (again.close, again.terms, again.waived, again.why) == (
            found.close,
            found.terms,
            found.waived,
            found.why,
        )


@pytest.mark.parametrize("name", ASKED)
def test_every_contender_but_the_recommended_one_has_a_reason_that_holds(name: str) -> None:
    found, asked = recommended(name), scenario(name)
    assert found.execution is not None
    own = float(found.execution["sample_rate"])
    table = everything(name)
    layouts = table[[*(field for field in LAYOUT if field in table)]].assign(offloads=table[[*OFFLOADS]].any(axis=1))
    assert len(found.contenders) == min(10, len(layouts.drop_duplicates()))
    rates = [float(one.execution["sample_rate"]) for one in found.contenders]
    assert rates == sorted(rates, reverse=True)
    assert rates[0] == table["sample_rate"].max()
    for one in found.contenders:
        row = one.execution
        if one.id == found.execution["id"]:
            assert one.reason == ""
        elif "host memory" in one.reason:
            assert any(row[offload] for offload in OFFLOADS)
        elif "may not fit" in one.reason:
            assert fit_of(asked, float(row["proc_mem_tier1_cap_req"]), found.terms.headroom) == "may not fit"
        elif "never measured" in one.reason:
            assert set(asked.not_measured(row)) - set(found.waived)
        elif "within the error" in one.reason:
            assert own <= float(row["sample_rate"]) <= own * (1 + found.terms.error)
            assert more_than(row, found.execution)
            assert percent_of(one.reason) == pytest.approx(100 * (float(row["sample_rate"]) / own - 1), abs=0.0501)
            assert "% faster" in one.reason
        else:
            assert percent_of(one.reason) == pytest.approx(100 * (1 - float(row["sample_rate"]) / own), abs=0.0501)
            assert "% slower" in one.reason
            assert float(row["sample_rate"]) < own


@pytest.mark.parametrize("name", ASKED)
def test_how_many_contenders_are_told_changes_nothing_else(name: str) -> None:
    """However much is read for the contenders, the same are allowed."""
    for asked in (scenario(name), explored_with_rows(scenario(name))):
        one, every = recommend(asked, contenders=1), recommend(asked, contenders=10**6)
        assert (one.execution, one.fastest, one.close) == (every.execution, every.fastest, every.close)
        assert one.contenders == every.contenders[:1]


def test_the_terms_come_from_measured_runs_or_are_stated() -> None:
    found = recommended("calibrated").terms
    assert found.time is not None
    assert found.memory is not None
    assert found.error == pytest.approx((found.time.high - found.time.low) / 2)
    assert found.headroom == pytest.approx(0.1361)
    assert (found.memory.rows, found.memory.sources) == (74, 4)
    stated = recommended("calculon").terms
    assert (stated.error, stated.headroom) == (UNTOLD_ERROR, UNTOLD_HEADROOM)
    assert (stated.time, stated.memory) == (None, None)
    for wrong in ({"error": 1.0}, {"error": -0.1}, {"headroom": float("nan")}, {"headroom": 10.0}):
        with pytest.raises(ValueError, match="must be a share"):
            recommend(scenario("calculon"), **wrong)  # type: ignore[arg-type]


def percent_of(reason: str) -> float:
    """The percentage that a reason begins with."""
    return float(reason.split(" %")[0])


def test_what_nothing_does_without_counts_against_nothing() -> None:
    found = recommended("unmeasured everywhere")
    assert "this generation of processors" in found.waived
    assert found.execution is not None


def test_errors_of_memory_are_those_of_the_measured_runs() -> None:
    now = current_memory_residuals(mapped(), outcomes())
    assert list(now["id"]) == list(memory_residuals()["id"])
    np.testing.assert_allclose(now["ratio"], memory_residuals()["ratio"], rtol=1e-4)
    # Each of a source's n dense runs weighs n^(-1/4), and one more run of mean weight is beyond all.
    dense = memory_residuals().query("not experts")
    weight = dense["source"].map(dense["source"].value_counts()) ** -0.25
    runs = sorted(zip(np.abs(np.log(dense["ratio"])), weight, strict=True))
    reached = np.cumsum([each for _, each in runs])
    error = runs[int(np.argmax(reached >= 0.8 * (weight.sum() + weight.mean())))][0]
    found = memory_interval_of(scenario("calibrated"))
    assert found is not None
    assert found.high == pytest.approx(np.exp(error))


def test_mechanisms_of_a_table_are_those_of_its_rows() -> None:
    table = everything("calibrated").sample(200, random_state=1)
    found = mechanisms(table)
    for place, row in enumerate(table.to_dict("records")):
        assert [name for name in found if found[name][place]] == list(mechanisms_of(row))


def test_the_command_tells_the_same() -> None:
    command = ["best", "llama-3.1-8B", "h100_80g_sxm", "--procs", "4", "--max-batch", "16", "--datatype", "bfloat16"]
    found = recommended("calibrated")
    assert found.execution is not None
    told = json.loads(CliRunner().invoke(app, [*command, "--recommended", "--json"]).stdout)["recommended"]
    assert told["execution"]["id"] == found.execution["id"]
    assert [one["reason"] for one in told["contenders"]] == [one.reason for one in found.contenders]
    command[command.index("16")] = "4"
    text = CliRunner().invoke(app, [*command, "--recommended", "--headroom", "0.3"]).stdout
    assert "Memory kept free: 30 % of what is predicted." in text
    assert "and why each is not recommended" in text
    refused = CliRunner().invoke(app, [*command, "--figures-of", "fastest", "--headroom", "0.3"])
    assert refused.exit_code == 2
    assert "go with --figures-of recommended" in refused.output


def test_less_from_more_is_explained_and_only_then() -> None:
    """A recommended execution may be slower on better hardware; the fastest never is."""
    base = engine.Scenario.of("gpt3-13B", "h100_80g_sxm", num_procs=8, max_batch_size=32, datatype="bfloat16")
    more = {"hbm_capacity": 2 * base.system.mem1.capacity_gib}
    found = reoptimise_shown(base, more)
    own = recommend(whatif.changed(base, more)).execution
    assert found.best is not None
    assert own is not None
    assert found.best["id"] == own["id"]
    assert found.of_fastest.gain >= 0.0 > found.gain
    assert "another execution is the simplest within the error" in explain_less_from_more(found)
    assert not explain_less_from_more(reoptimise_shown(base, more, "fastest"))
    assert not explain_less_from_more(reoptimise_shown(base, {"hbm_bandwidth": 6700.0}))


def test_where_nothing_is_recommended_the_fastest_stands_with_the_reason() -> None:
    asked = scenario("calibrated")
    found = reoptimise_shown(asked, {"hbm_bandwidth": 6700.0}, limits=RecommendationLimits(headroom=9.0))
    assert found.best is not None
    assert found.best["id"] == engine.best_of(found.scenario)["id"] or found.best["id"] in found.tied
    assert (found.figures_of, found.base_figures_of) == ("fastest", "fastest")
    assert found.remark == found.base_remark == NOTHING_RECOMMENDED


def test_usual_settings_of_frameworks_cost_no_simplicity() -> None:
    """A sharded optimizer, sequence parallelism and the overlap of the gradient exchange count for nothing."""
    rows = pd.DataFrame({"tensor_par": [2, 2], "data_par": [4, 4], "optimizer_sharding": [False, True]})
    rows = rows.assign(data_par_overlap=[False, True], tensor_par_comm_type=["ar", "rs_ag"])
    assert number_of_mechanisms(rows).tolist() == [1, 1]
    assert more_than(rows.iloc[1].to_dict(), rows.iloc[0].to_dict()) == ()


def test_the_rival_is_worth_a_measurement_and_its_stake_is_the_difference_of_two_costs() -> None:
    base = engine.Scenario.of("llama-3-70B", "h100_80g_sxm", num_procs=256, max_batch_size=1024, datatype="bfloat16")
    found = recommend(base)
    assert found.execution is not None
    assert found.rival is not None
    lead = found.rival["sample_rate"] / found.execution["sample_rate"] - 1
    assert 0.005 <= lead <= found.terms.error
    names = [column.name for column in fields_of(base.cost_model)]
    costs = []
    for row in (found.execution, found.rival):
        fields = {name: row[name] for name in names}
        question = {
            "model": "llama-3-70B",
            "system": "h100_80g_sxm",
            "execution": fields,
            "tokens": 1e12,
            "mtbf_h": 1e12,
        }
        cost = answer("cost", {**question, "interval_s": 1e9})
        costs.append(sum(cost["usd"]) / 2)
    assert found.stake_usd == pytest.approx(costs[0] - costs[1], rel=1e-2)  # failures and checkpoints are next to none
    assert found.advice.endswith(f"{found.stake_usd:,.0f} USD per 1 T tokens depend on it.")
