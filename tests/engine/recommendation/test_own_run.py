"""A person's own run: its place, and the steps from it to the recommended execution or the fastest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from engine import Scenario, launch, recommendation
from engine.columns import fields_of
from engine.launch.improvement_steps import LEAST_GAIN
from engine.launch.standing import evaluate_execution
from engine.questions.documents.executions import StandingQuestion
from engine.questions.standings import find_standing
from engine.recommendation.own_run import describe_distance, describe_steps, place_run, quick_steps
from tests.engine.explored_with_rows import explored_with_rows

SCENARIO = Scenario.of(
    "llama-3-8B",
    "h100_80g_sxm",
    num_procs=16,
    max_batch_size=64,
    datatype="bfloat16",
    limits={"tensor_par": [1, 2, 4], "microbatch_size": [1, 2], "weight_offload": False, "activations_offload": False},
)
START = launch.evaluable(
    {"tensor_par": 4, "pipeline_par": 2, "data_par": 2, "batch_size": 64, "microbatch_size": 1, "datatype": "bfloat16"}
    | {"activation_recompute": "full", "tensor_par_comm_type": "rs_ag"}
)


def drawn_runs() -> list[dict[str, Any]]:
    """Return executions all over the space, of which some do not run, and one that a person might have."""
    ids = np.random.default_rng(7).integers(0, SCENARIO.space.total, 5)
    names = [column.name for column in fields_of(SCENARIO.cost_model)]
    return [START, *({name: row[name] for name in names} for row in SCENARIO.space.table(ids).to_dict("records"))]


def as_shown(row: Mapping[str, Any], role: str) -> launch.StandingTarget:
    return launch.StandingTarget(row, role)


def test_steps_are_executions_that_run_each_faster_than_the_one_before() -> None:
    """Every step has the engine's own throughput, gains multiply to the whole, and the last reaches the target."""
    advice = recommendation.recommend(SCENARIO)
    assert advice.execution is not None
    assert advice.fastest is not None
    starts = launch.starts_with("megatron", SCENARIO.model)
    walked = 0
    for run in drawn_runs():
        own = evaluate_execution(SCENARIO, run)
        for target in (advice.execution, advice.fastest):
            rate = float(own["sample_rate"]) if own["status"] == "ok" else 0.0
            steps = launch.find_steps(SCENARIO, own, target, accepts=starts)
            fields = {name: own[name] for name in steps[0].execution} if steps else {}
            for step in steps:
                (found,) = SCENARIO.evaluate(pd.DataFrame([dict(step.execution)])).to_dict("records")
                assert (found["status"], found["sample_rate"]) == ("ok", step.rate)
                assert step.rate > rate * (1 + LEAST_GAIN)
                assert rate == 0 or step.rate == pytest.approx(rate * (1 + step.gain), rel=1e-12)
                assert step.changes
                for change in step.changes:
                    assert (fields[change.field], step.execution[change.field]) == (change.old, change.new)
                fields, rate = dict(step.execution), step.rate
                walked += 1
            assert rate >= float(target["sample_rate"]) * (1 - LEAST_GAIN)
    assert walked > 12


def test_a_step_that_the_framework_cannot_start_comes_only_without_another() -> None:
    own = evaluate_execution(SCENARIO, START)
    changed = {"activation_recompute": "none", "data_par_overlap": True, "zero_stage": 1, "optimizer_sharding": True}
    target = evaluate_execution(SCENARIO, {**START, **changed})
    assert target["sample_rate"] > own["sample_rate"]
    free = launch.find_steps(SCENARIO, own, target)
    kept = launch.find_steps(SCENARIO, own, target, accepts=lambda one: one["activation_recompute"] == "full")
    assert free[0].execution["activation_recompute"] == "none"
    assert kept[0].execution["activation_recompute"] == "full"
    assert free[-1].rate == kept[-1].rate == pytest.approx(target["sample_rate"], rel=LEAST_GAIN)


def test_the_place_by_stored_rows_is_that_of_the_whole_space() -> None:
    explored = explored_with_rows(SCENARIO)
    best = explored.best
    assert best is not None
    ran = 0
    for run in drawn_runs()[:4]:
        target = as_shown(best, "fastest")
        found = place_run(explored, run, target, framework="megatron")
        whole = launch.standing(run, SCENARIO.model, SCENARIO.system, limits=SCENARIO.limits, framework="megatron")
        assert (found.runs, found.faster, found.feasible, found.total, found.id) == (
            whole.runs,
            whole.faster,
            whole.feasible,
            whole.total,
            whole.id,
        )
        assert [step.rate for step in found.steps] == [step.rate for step in whole.steps]
        ran += found.runs
    assert ran > 1


def test_the_recommended_execution_and_a_faster_one_have_no_steps() -> None:
    limits = {name: values for name, values in SCENARIO.limits.items() if name != "weight_offload"}
    explored = explored_with_rows(replace(SCENARIO, limits=limits))
    advice = recommendation.recommend(explored)
    assert advice.execution is not None
    assert advice.fastest is not None
    question = {"model": "llama-3-8B", "system": "h100_80g_sxm", "limits": limits}
    names = [column.name for column in fields_of(SCENARIO.cost_model)]

    def stands(row: Mapping[str, Any]) -> launch.Standing:
        return find_standing(StandingQuestion(execution={name: row[name] for name in names}, **question))

    own = stands(explored.evaluate_ids([advice.execution["id"]]).iloc[0].to_dict())
    assert (own.steps, own.id) == ((), advice.execution["id"])
    assert describe_distance(own).startswith("Nothing that counts is faster: it is the recommended")
    faster = stands(explored.evaluate_ids([advice.fastest["id"]]).iloc[0].to_dict())
    assert faster.steps == ()
    assert faster.target is not None
    assert faster.target.objection == advice.why
    assert describe_distance(faster) == f"It is not the recommended one: {advice.why}."


def test_the_sentence_counts_flags_before_steps_that_change_the_layout() -> None:
    question = StandingQuestion(execution=START, model="llama-3-8B", system="h100_80g_sxm")
    found = find_standing(question)
    flags = launch.flag_changes(found, framework="megatron")
    quick = quick_steps(found, flags)
    assert 0 < quick < len(found.steps)
    assert found.steps[quick].execution["tensor_par"] != START["tensor_par"]
    number = len({change.flag for step in flags[:quick] for change in step})
    gain = 100 * (found.steps[quick - 1].rate / float(found.row["sample_rate"]) - 1)
    assert found.gain is not None
    told = describe_steps(found, flags)
    assert told == f"{number} flags bring {gain:.1f} %; {len(found.steps)} steps bring {100 * found.gain:.1f} %."
