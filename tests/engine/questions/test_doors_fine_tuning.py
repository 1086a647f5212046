"""Fine-tuning through Python, the command and JSON: the same figures, and a sentence for what cannot be."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

import engine
import models
from dashboard.words.numbers import ABSENT
from engine.fine_tuning import DataSet
from engine.post_training.lengths import LengthLaw
from engine.questions import VERBS, answer
from tests.dashboard.page_runs import figure, html, page_alone

MODEL, SYSTEM = "llama-3.1-8B", "h100_80g_sxm"
QUESTION: dict[str, Any] = {
    "format": "shardscape-fine-tuning/1",
    "model": MODEL,
    "system": SYSTEM,
    "num_procs": 8,
    "samples": 100_000,
    "lengths": {"mean": 600.0, "cap": 4096, "cv": 1.0},
    "epochs": 2,
    "price_usd_per_h": 3.0,
}
OPTIONS = ("--procs", 8, "--samples", 100_000, "--lengths", "600:4096", "--epochs", 2)


def rows_of(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {each["method"]: each for each in document["methods"]}


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    Draft202012Validator(VERBS["plan_fine_tuning"].question_schema()).validate(QUESTION)
    found = json.loads(json.dumps(answer("plan_fine_tuning", QUESTION)))
    Draft202012Validator(VERBS["plan_fine_tuning"].answer_schema()).validate(found)
    return dict(found)


def test_figures_follow_from_the_step(found: dict[str, Any]) -> None:
    assert found["tokens"] == pytest.approx(2 * 100_000 * 600, rel=1e-3)
    assert found["packs"] * found["pack_to"] * found["packing"] == pytest.approx(100_000 * 600, rel=0.01)
    assert found["steps"] == math.ceil(2 * found["packs"] / found["batch"])
    for name in ("full", "lora"):
        row = rows_of(found)[name]
        assert row["step_s"]["low"] < row["step_s"]["value"] < row["step_s"]["high"]
        hours = row["hours"]["value"]
        assert hours == pytest.approx(row["step_s"]["value"] * found["steps"] / 3600, rel=0.01)
        assert row["tokens_per_s"] == pytest.approx(found["tokens"] / hours / 3600, rel=0.01)
        assert row["usd"]["value"] == pytest.approx(hours * 8 * 3.0)
        assert sum(row["memory_parts"].values()) == pytest.approx(row["memory_gib"])
        assert row["memory_gib"] <= row["capacity_gib"]
    assert found["method"] == min(("full", "lora"), key=lambda name: rows_of(found)[name]["hours"]["value"])


def test_adapters_need_less_than_all_weights(found: dict[str, Any]) -> None:
    rows = rows_of(found)
    fewest = [rows[name]["fewest_gpus"] for name in ("full", "lora", "qlora")]
    assert fewest == sorted(fewest, reverse=True)
    # Weights alone of 8.03 G parameters: 15.0 GiB in 16 bits, 3.7 GiB in 4 bits with embedding and head in 16.
    assert rows["lora"]["memory_parts"]["weights"] == pytest.approx(15.0, abs=0.2)
    assert 3.7 < rows["qlora"]["memory_parts"]["weights"] < 7.5
    # 16 bytes per trained weight: no weight gradient and no optimizer of frozen ones.
    assert rows["lora"]["memory_parts"]["optimizer"] < 0.1
    # No run was measured with weights of 4 bits.
    assert rows["qlora"]["hours"] is None
    assert "not calibrated" in rows["qlora"]["reason"]


def test_the_best_is_that_of_the_space(found: dict[str, Any]) -> None:
    """The plan is the optimum of a plain search with the same tuning."""
    lengths = {"sample_lengths": DataSet(100_000, LengthLaw.lognormal(600.0, 4096, 1.0)).lengths}
    model = models.tuned(models.edited(models.load(MODEL), {"seq_size": found["pack_to"]}), lengths)
    limits = {"weight_offload": False, "activations_offload": False, "optimizer_offload": False}
    best = engine.best(
        *(model, SYSTEM),
        num_procs=8,
        max_batch_size=found["batch"],
        datatype="bfloat16",
        limits={**limits, "uneven_pipelines": True},
    )
    assert rows_of(found)["full"]["step_s"]["value"] == pytest.approx(best["total_time"])


def test_without_a_number_of_gpus_each_method_has_its_fewest(found: dict[str, Any]) -> None:
    fewest = answer("plan_fine_tuning", {**QUESTION, "num_procs": None})
    for name, row in rows_of(fewest).items():
        assert row["num_procs"] == row["fewest_gpus"] == rows_of(found)[name]["fewest_gpus"]
        assert row["execution"] is not None


def test_the_safe_number_has_room_for_the_error_of_memory(found: dict[str, Any]) -> None:
    for row in found["methods"]:
        assert row["safe_gpus"] >= row["fewest_gpus"]
        safe = rows_of(answer("plan_fine_tuning", {**QUESTION, "num_procs": row["safe_gpus"], "headroom": 0.136}))
        assert safe[row["method"]]["fit"] == "fits"
        assert safe[row["method"]]["memory_gib"] * 1.136 <= row["capacity_gib"]


def test_measured_lengths_come_from_a_file(tmp_path: Path, shardscape: Callable[..., tuple[int, str, str]]) -> None:
    lengths = [300, 900, 1500, 4000]
    file = tmp_path / "lengths.txt"
    file.write_text("\n".join(map(str, lengths)))
    command = ("plan", "fine-tuning", MODEL, SYSTEM, "--procs", 8, "--samples", 1000, "--method", "lora", "--lengths")
    code, out, _ = shardscape(*command, file, "--json")
    assert code == 0
    assert json.loads(out)["tokens"] == pytest.approx(sum(lengths) / 4 * 1000)
    file.write_text("300 many")
    code, _, problem = shardscape(*command, file)
    assert code == 2
    assert "lengths.txt has 'many', which is no length" in problem


def test_other_sizes_are_their_own_answers(found: dict[str, Any]) -> None:
    rows = answer("plan_fine_tuning", {**QUESTION, "sizes": True})["sizes"]
    for name in ("full", "lora"):
        own = {row["num_procs"]: row for row in rows if row["method"] == name}
        assert own[8]["hours"]["value"] == rows_of(found)[name]["hours"]["value"]
        assert min(own) == rows_of(found)[name]["fewest_gpus"]
        four = rows_of(answer("plan_fine_tuning", {**QUESTION, "num_procs": 4}))[name]
        assert own[4]["usd"] == four["usd"]


def test_packing_is_the_share_of_real_tokens() -> None:
    # No two samples of 3,000 tokens fit into 4,096; four of 1,024 fill it.
    for lengths, share in (([3000.0], 3000 / 4096), ([1024.0], 1.0)):
        asked = {**QUESTION, "lengths": {"lengths": lengths}, "pack_to": 4096, "method": "full"}
        assert answer("plan_fine_tuning", asked)["packing"] == pytest.approx(share)


def test_what_does_not_fit_says_what_would(shardscape: Callable[..., tuple[int, str, str]]) -> None:
    asked = {**QUESTION, "model": "llama-3-70B", "method": "full"}
    row = rows_of(answer("plan_fine_tuning", asked))["full"]
    assert row["fit"] == "does not fit"
    assert row["memory_gib"] > row["capacity_gib"]
    assert row["change"] == "move the optimizer to host memory"
    helped = {**asked, "limits": {"optimizer_offload": True}}
    assert rows_of(answer("plan_fine_tuning", helped))["full"]["execution"] is not None
    code, out, _ = shardscape("plan", "fine-tuning", "llama-3-70B", SYSTEM, *OPTIONS, "--method", "full")
    assert code == 1
    assert "Smallest change that fits: move the optimizer to host memory." in out


def test_a_number_of_gpus_without_a_layout_names_one_near_it() -> None:
    """37 GPUs divide neither batch nor heads; 32 do, and are nearer than the single one that suffices."""
    row = rows_of(answer("plan_fine_tuning", {**QUESTION, "num_procs": 37, "method": "lora"}))["lora"]
    assert (row["execution"], row["fewest_gpus"], row["change"]) == (None, 1, "use 32 GPUs")
    helped = answer("plan_fine_tuning", {**QUESTION, "num_procs": 32, "method": "lora"})
    assert rows_of(helped)["lora"]["execution"] is not None


def test_a_run_takes_at_least_a_step() -> None:
    row = rows_of(answer("plan_fine_tuning", {**QUESTION, "samples": 1, "epochs": 0.001, "method": "full"}))["full"]
    assert row["hours"]["value"] == row["step_s"]["value"] / 3600


def test_the_command_says_the_same(found: dict[str, Any], shardscape: Callable[..., tuple[int, str, str]]) -> None:
    code, out, _ = shardscape("plan", "fine-tuning", MODEL, SYSTEM, *OPTIONS, "--price", 3, "--json")
    assert code == 0
    assert json.loads(out) == found
    code, out, _ = shardscape("plan", "fine-tuning", MODEL, SYSTEM, *OPTIONS, "--price", 3, "--csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [float(row["hours"]) for row in rows[:2]] == [each["hours"]["value"] for each in found["methods"][:2]]
    code, out, _ = shardscape("plan", "fine-tuning", MODEL, SYSTEM, *OPTIONS)
    assert code == 0
    assert "Nearest measured runs" in out
    assert found["basis"] in out


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"adapter_rank": 5000}, "`adapter_rank` must be at most that, not 5,000"),
        ({"adapter_rank": 0}, "adapter_rank"),
        ({"adapter_targets": "experts_up"}, "has no linear layer 'experts_up'"),
        ({"lengths": {"mean": 5000.0, "cap": 4096}}, "at most the cap, 4,096"),
        ({"lengths": {"mean": 500.0}}, "needs mean and cap, or lengths"),
        ({"lengths": {"mean": 500.0, "cap": 200_000}}, "has positions for 131,072"),
        ({"lengths": {"mean": float("nan"), "cap": 4096}}, "mean"),
        ({"lengths": {"lengths": []}}, "lengths"),
        ({"pack_to": 1000}, "`pack_to` is 1,000; the longest sample has 4,096"),
        ({"pack_to": 200_000}, "`pack_to` is 200,000"),
        ({"samples": 0}, "samples"),
        ({"samples": 10**13}, "samples"),
        ({"batch": 20_000}, "`batch` is 20,000 packs; the data set fills"),
        ({"batch_samples": 200_000}, "the data set has 100,000 samples"),
        ({"batch": 8, "batch_samples": 64}, "either `batch` or `batch_samples`"),
        ({"epochs": -1}, "epochs"),
        ({"num_procs": 0}, "num_procs"),
        ({"datatype": "float5"}, "does not compute in 'float5'"),
        ({"limits": {"nothing": 3}}, "no limit on 'nothing'"),
        ({"method": "dora"}, "method"),
        ({"price_usd_per_h": -1}, "price_usd_per_h"),
    ],
)
def test_a_question_that_cannot_be_is_one_sentence(more: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)) as problem:
        answer("plan_fine_tuning", {**QUESTION, **more})
    assert str(problem.value).endswith(".")
    assert "\n" not in str(problem.value)


def test_the_page_has_the_same_figures(found: dict[str, Any], shardscape: Callable[..., tuple[int, str, str]]) -> None:
    app = page_alone("post_training")
    link = {
        "kind": "tuning",
        "model": MODEL,
        "system": SYSTEM,
        "procs": "8",
        "samples": "100000",
        "epochs": "2",
        "price": "3",
    }
    app.session_state["_url"] = {f"post_training_{name}": value for name, value in link.items()}
    app.run()
    assert not app.exception
    assert not app.error
    assert not app.warning
    best = rows_of(found)[found["method"]]
    text = " ".join(re.sub(r"<[^>]+>", " ", html(app)).split())
    assert "Fastest: LoRA on 8 GPUs" in text
    assert f"{best['memory_gib']:,.1f} GiB" in text
    assert found["basis"] in text
    table = next(each.value for each in app.dataframe if "Figure" in each.value).set_index("Figure")
    assert [*table.columns] == ["All weights", "LoRA", "QLoRA"]
    assert table.loc["Fewest GPUs"].tolist() == [f"{each['fewest_gpus']:,}" for each in found["methods"]]
    assert table.loc["Time", "QLoRA"] == ABSENT
    # The command that the page shows answers the same.
    command = next(each.value for each in app.code if each.value.startswith("shardscape plan fine-tuning"))
    code, out, _ = shardscape(*shlex.split(command)[1:], "--json")
    assert code == 0
    assert {**json.loads(out), "sizes": []} == found  # the page asks for other sizes, too
    assert len(figure(app, "fine_tuning_sizes")["data"]) == 2
    app.session_state["_url"] = {**app.session_state["_url"], "post_training_sample_cap": "300"}
    app.run()
    assert not app.exception
    assert "at most the cap, 300" in " ".join(each.value for each in (*app.error, *app.warning))
    app.session_state["_url"] = {**app.session_state["_url"], "post_training_sample_cap": "900"}
    app.session_state["_url"] |= {"post_training_sample_pack": "800"}
    app.run()
    assert "Pack length is 800; the longest sample has 900" in " ".join(each.value for each in app.error)
