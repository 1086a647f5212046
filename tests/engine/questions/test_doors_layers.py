"""Plans of layers asked through Python, the command, JSON and the page: the same figures to the last digit."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from jsonschema import Draft202012Validator

from engine import ExplorationCancelled
from engine.planners.layerwise import plan
from engine.planners.layerwise.cluster import PRESETS, cluster_of, hierarchical
from engine.planners.layerwise.library_models import plan_model
from engine.planners.layerwise.profiles.examples import example
from engine.planners.layerwise.profiles.tables import csv_text
from engine.questions import VERBS, Context, answer
from tests.dashboard.page_runs import page_alone

Run = Callable[..., tuple[int, str, str]]


def shown_candidates(link: dict[str, str]) -> pd.DataFrame:
    """Return the table of candidates of the page."""
    page = page_alone("layerwise")
    page.session_state["_url"] = link
    page.run()
    assert not page.exception
    assert not page.error, [each.value for each in page.error]
    (found,) = [table.value for table in page.dataframe if "found by" in table.value or "speedup" in table.value]
    return found


def same_speedups(found: dict[str, Any], table: pd.DataFrame) -> None:
    """Check that the candidates of an answer are those of a table."""
    assert [each["speedup"] for each in found["candidates"] if each["speedup"] is not None] == (
        table["speedup"].dropna().tolist()
    )


def test_a_profile_on_a_cluster_of_ones_own(shardscape: Run, tmp_path: Path) -> None:
    question = {
        "profile": "vgg19",
        "profile_batch": 32.0,
        "global_batch": 512,
        "microbatch": 4,
        "machines": [4, 8, 12],
        "inside_gb_per_s": 40.0,
        "all_reduce_gb_per_s": 5.0,
        "transfer_gb_per_s": 2.5,
        "memory_gb": 24.0,
        "optimizer": 2.0,
        "mode": "released",
    }
    Draft202012Validator(VERBS["plan_layers"].question_schema()).validate(question)
    found = answer("plan_layers", question)
    Draft202012Validator(VERBS["plan_layers"].answer_schema()).validate(json.loads(json.dumps(found)))
    machines = hierarchical(3, 4, inside=40e9, all_reduce=5e9, transfer=2.5e9, memory=24e9)
    python = plan(
        example("vgg19"),
        profile_batch=32,
        global_batch=512,
        machines=machines,
        microbatch=4,
        mode="released",
        optimizer=2.0,
    )
    assert found["speedup"] == python.speedup
    assert found["strategy"]["figures"]["step_time"] == python.figure("step_time").value

    rates = ("--inside", 40, "--all-reduce", 5, "--transfer", 2.5, "--memory", 24, "--optimizer", 2)
    options = ("--batch", 512, "--profile-batch", 32, "--microbatch", 4, "--machines", "4,8,12", "--mode", "released")
    file = tmp_path / "vgg19.csv"
    file.write_text(csv_text(example("vgg19")))
    for source in ("vgg19", file):
        code, out, err = shardscape("plan", "layers", source, *options, *rates, "--json")
        assert (code, err) == (0, "")
        same_speedups(found, pd.DataFrame(json.loads(out)["candidates"]))
    as_text = {**question, "profile": file.read_text(), "profile_name": "vgg19"}
    assert answer("plan_layers", as_text)["candidates"] == found["candidates"]

    link = {"profile": "vgg19", "batch": "512", "taken": "32", "microbatch": "4", "mode": "released", "cluster": "own"}
    own = {"machines": "3", "devices": "4", "inside": "40", "reduce": "5", "transfer": "2.5", "memory": "24"}
    page = shown_candidates({f"layerwise_{name}": text for name, text in {**link, **own, "optimizer": "2"}.items()})
    same_speedups(found, page)


def test_a_library_model_on_two_systems(shardscape: Run) -> None:
    shares = [{"system": name, "num_procs": 8} for name in ("h100_80g_sxm", "a100_80g_sxm")]
    question = {"model": "llama-3-8B", "systems": shares, "tensor_par": 2, "global_batch": 64}
    found = answer("plan_layers", question)
    pairs = [(each["system"], each["num_procs"]) for each in shares]
    assert found["speedup"] == plan_model("llama-3-8B", pairs, global_batch=64, tensor_par=2).plan.speedup
    systems = ("--system", "h100_80g_sxm:8", "--system", "a100_80g_sxm:8")
    code, out, _ = shardscape("plan", "layers", "llama-3-8B", "--batch", 64, *systems, "--tensor-par", 2, "--csv")
    assert code == 0
    same_speedups(found, pd.read_csv(io.StringIO(out)))
    link = {"from": "model", "model": "llama-3-8B", "second": "a100_80g_sxm", "gpus": "8", "tensor": "2", "batch": "64"}
    same_speedups(found, shown_candidates({f"layerwise_{name}": text for name, text in link.items()}))
    with pytest.raises(ExplorationCancelled):
        answer("plan_layers", question, Context(stops=lambda: True))


def test_clusters_of_the_paper_and_refusals() -> None:
    slow = answer("plan_layers", {"profile": "bert_48", "global_batch": 64, "cluster": "c", "mode": "released"})
    expected = plan(
        example("bert_48"), profile_batch=2, global_batch=64, machines=cluster_of(PRESETS["C"]), mode="released"
    )
    assert slow["speedup"] == expected.speedup
    for wrong, words in (
        ({"cluster": "D"}, "no cluster 'D'"),
        ({"cluster": "A", "machines": [2]}, "not both"),
        ({"profile": "/etc/passwd"}, "one of the examples"),
        ({"model": "llama-3-8B"}, "or a profile"),
        ({"memory_gb": 0}, "a number from"),
    ):
        with pytest.raises(ValueError, match=words) as problem:
            answer("plan_layers", {"profile": "bert_48", "global_batch": 64, **wrong})
        assert "\n" not in str(problem.value)
