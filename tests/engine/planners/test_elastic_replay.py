"""Replays of workloads: the published averages and per-job figures, the other policies, and input that is wrong."""

from __future__ import annotations

import json
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner

import engine.reproductions  # noqa: F401 - adds the artifact's policy
from engine.cli.main import app
from engine.planners.contract import PlanCancelledError, PlanError
from engine.planners.elastic import load_card, replay
from engine.planners.elastic.cards import changed_card
from engine.planners.elastic.cluster import (
    Cluster,
    asked_models,
    compared,
    library_applications,
    summaries,
    workload_from,
)
from engine.planners.elastic.cluster.applications import application, applications
from engine.planners.elastic.cluster.policies import POLICIES
from engine.planners.elastic.cluster.policies.published import LENIENCE
from engine.planners.elastic.library_models import model_point
from models import load

REFERENCE = Path(__file__).parents[2] / "reference" / "elastic" / "replays"
WORKLOADS = Path(__file__).parents[3] / "engine" / "planners" / "elastic" / "cluster" / "data"
GOLDEN = json.loads((REFERENCE / "replays.json").read_text(encoding="utf-8"))


@cache
def replayed(name: str, policy: str) -> Any:
    """A packaged workload under a policy, replayed once for all who only read it."""
    return replay(name, "8x8", policy)


@pytest.mark.parametrize("name", ["naive", "base", "mt"])
def test_the_artifact_s_replay_is_reproduced_job_by_job_and_round_by_round(name: str) -> None:
    result = replayed(name, "artifact")
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
    found = replay(WORKLOADS / "workload_base.csv", policy="artifact", pause=0).summary
    for key in ("avg_jct_s", "makespan_s", "total_restarts", "jobs_restarted"):
        assert found[key] == pytest.approx(expected[key], rel=1e-9), key


@pytest.mark.parametrize("policy", list(POLICIES))
def test_every_policy_finishes_the_jobs_within_the_cluster(policy: str) -> None:
    result = replayed("naive", policy)
    assert result.jobs["completion_s"].notna().all()
    assert (result.jobs["jct_s"] > 0).all()
    assert result.utilisation["gpus_allocated"].max() <= 64


def test_guaranteed_jobs_come_first_and_keep_what_they_asked_for_by_the_published_rules() -> None:
    # The first half of the jobs fills the cluster, and is replayed in a quarter of the time.
    lines = (WORKLOADS / "workload_mt.csv").read_text().splitlines(keepends=True)
    result = replay("".join(lines[:200]), "8x8", "published")
    means = result.summary["avg_jct_by_is_sla_s"]
    assert means["1"] < means["0"]
    assert result.utilisation["gpus_occupied"].max() == 64
    guaranteed = result.jobs[result.jobs["is_sla"] == 1].set_index("name")
    known = applications()
    jobs = {each.name: each for each in workload_from("mt").jobs}
    for name, gpus in result.placements[result.placements["name"].isin(guaranteed.index)].groupby("name")["gpus"]:
        job = jobs[str(name)]
        asked = known[job.application].speeds.seconds((job.gpus,), job.plan)
        within = [
            each.gpus
            for each in known[job.application].speeds.options
            if job.gpus <= 8 and asked is not None and each.seconds <= LENIENCE * asked * (1 + 1e-9)
        ]
        if within:
            assert gpus.min() >= min(within), name


def test_what_the_artifact_counts_twice_is_told() -> None:
    result = replayed("base", "artifact")
    assert result.utilisation["gpus_allocated"].max() == 64
    assert result.utilisation["gpus_occupied"].max() == 344
    assert "43 % of all rounds" in result.notes[0]
    assert replayed("naive", "published").notes == ()


def test_policies_side_by_side_and_models_of_one_s_own() -> None:
    found = compared("naive", policies=["fcfs", "artifact", "first-come"])
    assert list(found) == ["first-come", "artifact"]
    table = summaries(found).set_index("policy")
    assert table.loc["artifact", "avg_jct_s"] == pytest.approx(GOLDEN["naive"]["avg_jct_s"], rel=1e-9)
    assert table["guaranteed_avg_jct_s"].isna().all()
    own = application(changed_card(load_card("vit"), {}, "mine"), "vit")
    job = HEADER + "a,0,1,mine,1,ga,5,0\n"
    assert len(replay(job, models={"mine": own}).jobs) == 1
    with pytest.raises(PlanError, match="No run of mine was measured"):
        application(changed_card(load_card("vit"), {}, "mine"))
    with pytest.raises(PlanError, match=r"cannot be read.*base, bp, mt, naive"):
        replay("nonesuch")


def test_models_of_the_library_are_replayed_on_their_proven_optima() -> None:
    job = HEADER + "a,0,1200,llama-3-8B*64,8,any,,1\nb,0,1200,vit,1,ga,,0\n"
    asked = asked_models(workload_from(job), load)
    assert list(asked) == ["llama-3-8B*64"]
    known = library_applications(asked, "h100_80g_sxm", Cluster(2, 8))
    model = known["llama-3-8B*64"]
    best = model_point("llama-3-8B", "h100_80g_sxm", placement="8", batch=64).throughput
    assert model.speeds.seconds((8,), "any") == pytest.approx(64 / best, rel=1e-12)
    assert [each.gpus for each in model.speeds.options] == [1, 2, 4, 8, 16]
    for policy in POLICIES:
        result = replay(job, "2x8", policy, models={**applications(), **known})
        # What it asked for takes 1,200 s; with the first pause and on more GPUs it is within twice that.
        assert 0 < result.jobs["jct_s"].max() < 2400
    with pytest.raises(PlanError, match="no model 'llama-3-8B"):
        replay(job, "2x8")


def test_the_command_prints_text_csv_and_json(tmp_path: Path) -> None:
    def said(*words: str) -> str:
        found = CliRunner().invoke(app, ["plan", "elastic", "replay", *words])
        assert found.exit_code == 0, found.output
        return found.output

    assert "895.6" in said("naive", "--policy", "artifact")
    both = said("naive", "--policy", "artifact", "--policy", "published", "--table", "jobs", "--csv")
    jobs = pd.read_csv(StringIO(both))
    assert jobs.groupby("policy").size().to_dict() == {"artifact": 10, "published": 10}
    summary = json.loads(said("naive", "--policy", "artifact", "--pause", "0", "--json"))
    assert summary["artifact"]["avg_jct_s"] < GOLDEN["naive"]["avg_jct_s"]
    trace = tmp_path / "trace.csv"
    trace.write_text("exec_plan,placement,iter_time\nga,1,0.5\nga,2,0.3\n")
    workload = tmp_path / "jobs.csv"
    workload.write_text(HEADER + "a,0,1,vit,2,ga,100,1\n")
    assert "published" in said(str(workload), "--card", f"vit={trace}", "--cluster", "1x2", "--policy", "published")


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
