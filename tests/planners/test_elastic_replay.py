"""Replays of workloads: the published averages and per-job figures, the other policies, and input that is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from engine.planners.contract import PlanCancelledError, PlanError
from engine.planners.elastic import replay
from engine.planners.elastic.cluster.policies import POLICIES

REFERENCE = Path(__file__).parents[1] / "reference" / "elastic" / "replays"
WORKLOADS = Path(__file__).parents[2] / "engine" / "planners" / "elastic" / "cluster" / "data"
GOLDEN = json.loads((REFERENCE / "replays.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", ["naive", "base", "mt"])
def test_the_artifact_s_replay_is_reproduced_job_by_job_and_round_by_round(name: str) -> None:
    result = replay(WORKLOADS / f"workload_{name}.csv", "8x8", "artifact")
    for key, expected in GOLDEN[name].items():
        assert result.summary[key] == pytest.approx(expected, rel=1e-9), key
    jobs = pd.read_csv(REFERENCE / f"sim_{name}_jobs.csv").set_index("name")
    made = result.jobs.set_index("name").loc[jobs.index]
    for column in ("first_alloc_seen_s", "last_seen_restarts", "n_placements"):
        assert (made[column] == jobs[column]).all(), column
    assert (made["jct_s"] - jobs["jct_s"]).abs().max() < 6e-4
    rounds = pd.read_csv(REFERENCE / f"sim_{name}_util.csv")
    assert (result.utilisation[list(rounds.columns)] == rounds).all().all()


def test_without_a_pause_the_artifact_s_averages_fall_as_published() -> None:
    expected = GOLDEN["reconfig_cost_ablation_base"][0]
    found = replay(WORKLOADS / "workload_base.csv", pause=0).summary
    for key in ("avg_jct_s", "makespan_s", "total_restarts", "jobs_restarted"):
        assert found[key] == pytest.approx(expected[key], rel=1e-9), key


@pytest.mark.parametrize("policy", list(POLICIES))
def test_every_policy_finishes_the_jobs_within_the_cluster(policy: str) -> None:
    result = replay(WORKLOADS / "workload_naive.csv", "8x8", policy)
    assert result.jobs["completion_s"].notna().all()
    assert (result.jobs["jct_s"] > 0).all()
    assert result.utilisation["gpus_allocated"].max() <= 64


HEADER = "name,submission_time,duration,application,num_gpus,exec_plan,steps,is_sla\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (HEADER, "no jobs"),
        (HEADER + "a,nan,1,vit,1,ga,5,0\n", "submission_time"),
        (HEADER + "a,-1,1,vit,1,ga,5,0\n", "submission_time is -1"),
        (HEADER + "a,0,1,nonesuch,1,ga,5,0\n", "nonesuch"),
        (HEADER + "a,0,1,vit,1.5,ga,5,0\n", "num_gpus is 1.5"),
        (HEADER + "a,0,,vit,1,ga,,0\n", "neither steps nor a duration"),
        (HEADER + "a,0,1,vit,1,ga,5,0\na,0,1,vit,1,ga,5,0\n", "already"),
        ("name,application\na,vit\n", "no column"),
        (HEADER + "a,0,1,vit,1,ga,5,0\n" * 20_001, "20,001 jobs"),
    ],
)
def test_a_bad_workload_gets_one_sentence(text: str, words: str) -> None:
    with pytest.raises(PlanError, match=words):
        replay(text)


def test_a_cluster_that_is_too_small_a_policy_that_is_none_and_a_cancel() -> None:
    job = HEADER + "a,0,1,llama30,24,641,5,0\n"
    with pytest.raises(PlanError, match="Nothing runs any more"):
        replay(job, "2x8")
    with pytest.raises(PlanError, match="no policy"):
        replay(job, policy="nonesuch")
    with pytest.raises(PlanError, match="nodes"):
        replay(job, "0x8")
    with pytest.raises(PlanCancelledError):
        replay(job, cancel=lambda: True)
