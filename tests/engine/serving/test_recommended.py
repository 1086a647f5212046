"""The recommended deployment is the simplest inside a measured error, with room; changes and comparisons add up."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pandas as pd
import pytest

from engine import serving
from engine.serving import ServingExploration
from engine.serving.recommended import COMPARISON_ERROR, count_options, deployment_options
from engine.validation.serving.nearest_servers import predicted_servers

OUTPUT = "tokens_per_s_per_processor"
SAME = {"num_procs": 8, "prompt": 1024, "output": 256}
LEVEL = {"time_to_first_token": 1.0, "time_per_output_token": 0.05}


@pytest.fixture(scope="module")
def found() -> ServingExploration:
    return serving.explore("llama-3.1-70B", "h100_80g_sxm", **SAME, **LEVEL)


def simplest(table: pd.DataFrame, room: float) -> tuple[int, int]:
    """The recommended deployment and the number of close ones, row by row: an independent statement."""
    rows = table.to_dict("records")
    roomy = [row for row in rows if row["batch"] * (1 + room) <= row["largest_batch"] + 1e-9] or rows
    best = max(row[OUTPUT] for row in roomy)
    near = [row for row in roomy if row[OUTPUT] * (1 + COMPARISON_ERROR) >= best]

    def effort(row: dict) -> tuple:
        options = (row["tensor_par"] > 1) + (row["pipeline_par"] > 1) + (row["expert_par"] > 1)
        options += (row["weight_bits"] < 16) + (row["kv_bits"] < 16) + (row["launch"] != "graphs")
        return options, row["tensor_par"] * row["pipeline_par"], -row[OUTPUT], row["id"]

    return min(near, key=effort)["id"], len(near)


@pytest.mark.parametrize("room", [0.0, 0.1, 3.0, 9.0])
def test_the_recommended_is_the_simplest_of_those_that_are_close(found: ServingExploration, room: float) -> None:
    advice = serving.recommend_deployment(found, room)
    assert advice.row is not None
    assert (advice.row["id"], advice.close) == simplest(found.table, room)
    (again,) = found.evaluate_ids([int(advice.row["id"])]).to_dict("records")
    assert again[OUTPUT] == advice.row[OUTPUT]
    assert all(each.row["id"] != advice.row["id"] and each.reason for each in advice.rejected)
    assert tuple(deployment_options(advice.row).values()) == advice.options


def test_experts_and_a_model_without_room(found: ServingExploration) -> None:
    experts = serving.explore("deepseek-v3", "h200_141g_sxm", **SAME, **LEVEL)
    advice = serving.recommend_deployment(experts)
    assert advice.row is not None
    assert advice.row["id"] == simplest(experts.table, 0.1)[0]
    full = serving.explore("llama-3.1-70B", "h100_80g_sxm", **SAME, limits={"batch": [352], "tensor_par": 2})
    tight = serving.recommend_deployment(full, 10.0)
    assert not tight.has_room
    assert "No deployment has room in its cache for 1,000 % more" in tight.reason
    nothing = serving.explore("deepseek-v3", "l40s_48g", **SAME)
    assert serving.recommend_deployment(nothing).reason == ""
    for wrong in (-0.1, 11, True, "x"):
        with pytest.raises(ValueError, match="a share from 0 to 10"):
            serving.recommend_deployment(found, wrong)  # type: ignore[arg-type]


def test_a_cache_with_exactly_the_room_asked_for_is_not_said_to_lack_it(found: ServingExploration) -> None:
    seen = 0
    for other in serving.recommend_deployment(found, 0.0).rejected:
        # 0.2 and 12 / 10 - 1 differ by as much.
        room = float(np.nextafter(other.row["largest_batch"] / other.row["batch"] - 1.0, 11.0))
        if 0 <= room <= 10:
            listed = {each.row["id"]: each.reason for each in serving.recommend_deployment(found, room).rejected}
            seen += other.row["id"] in listed
            assert "more requests only" not in listed.get(other.row["id"], "")
    assert seen


def test_options_are_counted_as_they_are_listed(found: ServingExploration) -> None:
    some = found.table.iloc[::7]
    assert count_options(some).tolist() == [len(deployment_options(row)) for row in some.to_dict("records")]


def test_the_error_of_a_comparison_is_that_of_measured_servers() -> None:
    table = predicted_servers()
    errors = []
    keys = ["gpu", "engine", "model", "weight_bits", "kv_bits", "prompt", "output"]
    for _, group in table.groupby(keys):
        layouts = list(zip(group["tensor_par"], group["expert_par"], group["replicas"], strict=True))
        error = np.log1p(group["output_error"].to_numpy())
        predicted = np.log((group["predicted_output"] / group["tensor_par"]).to_numpy())
        for one, other in combinations(range(len(group)), 2):
            if layouts[one] != layouts[other] and abs(predicted[one] - predicted[other]) < 0.3:
                errors.append(abs(error[one] - error[other]))
    assert np.quantile(errors, 0.8) == pytest.approx(COMPARISON_ERROR, abs=0.01)


def test_refused_deployments_are_those_that_limits_keep_from_the_frontier(found: ServingExploration) -> None:
    free = serving.explore("llama-3.1-70B", "h100_80g_sxm", **SAME)
    assert set(found.refused["id"]) == set(free.frontier["id"]) - set(found.table["id"])
    assert set(found.refused["status"]) == {"infeasible"}
    assert free.refused_ids == ()
    assert not len(free.refused)


def test_changes_are_explorations_of_their_own(found: ServingExploration) -> None:
    advice = serving.recommend_deployment(found)
    changes = {each.code: each for each in serving.try_changes(found, advice)}
    assert {"one_more_gpu", "one_more_node", "half_the_context", "half_the_time_per_token"} <= set(changes)
    for each in changes.values():
        new = serving.explore("llama-3.1-70B", "h100_80g_sxm", **{**SAME, **LEVEL, **each.settings})
        row = serving.recommend_deployment(new).row
        assert row is not None
        assert advice.row is not None
        assert each.recommendation.row is not None
        assert each.recommendation.row["id"] == row["id"]
        assert each.output == pytest.approx(row["tokens_per_s"] / advice.row["tokens_per_s"])
    assert "No gain" in changes["one_more_gpu"].verdict
    assert changes["half_the_time_per_token"].output_per_gpu < 1  # type: ignore[operator]


def test_a_comparison_turned_round_is_its_inverse(found: ServingExploration) -> None:
    row = serving.recommend_deployment(found).row
    assert row is not None
    assert found.best is not None
    there, back = serving.compare_deployments(row, found.best), serving.compare_deployments(found.best, row)
    assert set(there.differs) == {"kv_bits"}
    for name, ratio in there.ratios.items():
        assert ratio * back.ratios[name] == pytest.approx(1.0)
    assert sum(there.step.values()) == pytest.approx(found.best["decode_step_time"] - row["decode_step_time"])
    assert there.is_too_close
    assert "same deployment" in serving.compare_deployments(row, row).sentence
