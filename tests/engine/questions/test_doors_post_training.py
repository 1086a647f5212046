"""Reinforcement learning through Python, the command and JSON: the same figures, and a sentence for what cannot be."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Callable
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from pydantic import BaseModel

from dashboard.words.numbers import plain
from engine.questions import VERBS, answer
from engine.questions.documents.post_training import PostTrainingQuestion
from engine.questions.fields import question_fields
from tests.dashboard.page_runs import figure, html, page_alone

MODEL, SYSTEM = "llama-3.1-8B", "h100_80g_sxm"
QUESTION: dict[str, Any] = {
    "format": "shardscape-post-training/1",
    "model": MODEL,
    "system": SYSTEM,
    "num_procs": 16,
    "prompts": 64,
    "group": 32,
    "prompt_tokens": 130,
    "response": {"mean": 1060.0, "cap": 3966, "cv": 1.0},
    "updates": 4,
    "price_usd_per_h": 3.0,
}
OPTIONS = ("--procs", 16, "--prompts", 64, "--group", 32, "--prompt", 130, "--response", "1060:3966", "--updates", 4)


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    Draft202012Validator(VERBS["plan_post_training"].question_schema()).validate(QUESTION)
    found = json.loads(json.dumps(answer("plan_post_training", QUESTION)))
    Draft202012Validator(VERBS["plan_post_training"].answer_schema()).validate(found)
    return dict(found)


def test_figures_follow_from_the_step(found: dict[str, Any]) -> None:
    assert [each["mode"] for each in found["best"]] == sorted(
        (each["mode"] for each in found["best"]),
        key=lambda mode: next(each["step_s"]["value"] for each in found["best"] if each["mode"] == mode),
    )
    for each in found["best"]:
        step = each["step_s"]
        assert step["low"] < step["value"] < step["high"]
        assert each["tokens_per_s_per_gpu"] == pytest.approx(2048 * (130 + 1060) / step["value"] / 16, rel=1e-3)
        assert each["days"]["value"] == pytest.approx(500 * step["value"] / 86_400)
        assert each["usd"]["value"] == pytest.approx(each["days"]["value"] * 24 * 16 * 3.0)
        assert all(row["gib"] <= row["has"] for row in each["memory"])
        curve = [row["step_s"] for row in found["curve"] if row["mode"] == each["mode"] and row["step_s"] is not None]
        assert step["value"] == min(curve)
    shared = next(each for each in found["best"] if each["mode"] == "colocated")
    assert sum(row["seconds"]["value"] for row in shared["phases"]) == pytest.approx(shared["step_s"]["value"])
    # A measured run of this very question is the nearest, and within the interval of its release.
    nearest = next(row for row in found["nearest"] if row["mode"] == "colocated")
    assert nearest["model"] == "LLAMA3.1_8B"
    release = nearest["version"].removeprefix("v").removesuffix(".0")
    (older,) = answer("plan_post_training", {**QUESTION, "mode": "colocated", "release": release})["best"]
    assert older["step_s"]["low"] <= nearest["step_s"] <= older["step_s"]["high"]


def test_every_rank_has_as_many_samples_of_an_update() -> None:
    """As NeMo-RL, verl and slime deal them: on 104 of 192 GPUs no data-parallel degree of 104 for 512 samples."""
    split = {"num_procs": 192, "mode": "asynchronous", "split": [104, 88], "steps": 1}
    (best,) = answer("plan_post_training", {**QUESTION, **split})["best"]
    assert (64 * 32 // 4) % best["execution"]["data_par"] == 0
    degrees = [best["execution"][name] for name in ("tensor_par", "pipeline_par", "data_par", "context_par")]
    assert math.prod(degrees) <= 104


def test_the_command_says_the_same(found: dict[str, Any], shardscape: Callable[..., tuple[int, str, str]]) -> None:
    code, out, _ = shardscape("plan", "post-training", MODEL, SYSTEM, *OPTIONS, "--price", 3, "--json")
    assert code == 0
    assert json.loads(out) == found
    code, out, _ = shardscape("plan", "post-training", MODEL, SYSTEM, *OPTIONS, "--price", 3, "--csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert {float(row["step_s"]) for row in rows} == {row["step_s"] for row in found["curve"]}
    code, out, _ = shardscape("plan", "post-training", MODEL, SYSTEM, *OPTIONS, "--split", "8:8")
    assert code == 0
    assert "Nearest measured runs" in out
    assert found["basis"] in out
    assert "8:8" in out


def test_a_step_of_ones_own_is_met_and_narrows_the_interval(found: dict[str, Any]) -> None:
    own = {**QUESTION, "mode": "one_step_off", "split": [8, 8], "measured_step_s": 123.0}
    best = answer("plan_post_training", own)["best"][0]
    assert best["step_s"]["value"] == pytest.approx(123.0)
    published = next(each for each in found["best"] if each["mode"] == "one_step_off")
    widths = [each["step_s"]["high"] / each["step_s"]["low"] for each in (best, published)]
    assert widths[0] < widths[1]


def test_sizes_say_where_modes_cross() -> None:
    asked = {**QUESTION, "num_procs": 32, "sizes": True}
    rows = answer("plan_post_training", asked)
    assert [row["num_procs"] for row in rows["sizes"]] == [8, 16, 32, 64]
    assert rows["crossing"].endswith(".")
    times = [row["colocated_s"] for row in rows["sizes"] if row["colocated_s"]]
    assert times == sorted(times, reverse=True)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"group": 0}, "group"),
        ({"response": {"mean": 4000.0, "cap": 3000}}, "at most 3,000"),
        ({"response": {"mean": 400.0}}, "mean and cap"),
        ({"response": {"mean": 400.0, "cap": 4_000_000}}, "has positions for"),
        ({"updates": 3}, "must divide the 2,048 samples"),
        ({"split": [4, 12]}, "whole nodes of 8 GPUs"),
        ({"split": [8, 16]}, "it must have all 16"),
        ({"split": [8, 8], "mode": "colocated"}, "colocated shares all GPUs"),
        ({"staleness": 4, "mode": "colocated"}, "`staleness` is for asynchronous mode"),
        ({"pack_to": 1000}, "`pack_to` is 1,000"),
        ({"pass_rate": 0.5}, "`pass_rate` is for DAPO"),
        ({"pass_rate": 1.0, "method": "dapo"}, "at least 0.001"),
        ({"steps": 10**12}, "steps"),
        ({"measured_step_s": 30.0}, "needs the `mode`"),
        ({"measured_step_s": 30.0, "mode": "colocated", "software": 0.9}, "set the same factor"),
        ({"release": "9.9"}, "no release '9.9'"),
        ({"training": {"train_datatype": "float5"}}, "does not compute in 'float5'"),
        ({"response": {"mean": float("nan"), "cap": 10}}, "mean"),
        ({"prompts": -1}, "prompts"),
        ({"prompts": 0}, "prompts"),
        ({"prompts": 2**20, "group": 2**16}, "A step has 68,719,476,736 samples"),
        ({"launched": 1.5, "mode": "asynchronous"}, "wait for the longest response"),
        ({"launched": 0.5}, "launched"),
        ({"helping": True, "mode": "colocated"}, "generates on all GPUs already"),
        ({"judge": {"own_gpus": 8}}, "needs a judge"),
        ({"judge": {"scored_by": "llama-9-8B"}}, "llama-9-8B"),
        ({"judge": {"scored_by": "llama-3-8B", "answer_tokens": 8000}}, "has positions for 8,192"),
        ({"teacher": "qwen3-14B"}, "in its vocabulary"),
        ({"teacher": "llama-3.1-70B", "pack_to": 200_000}, "has positions for"),
        ({"speculation": {"accepted": 4.5, "drafted": 3}}, "gains at most 4"),
        ({"speculation": {"accepted": 0.5}}, "accepted"),
        ({"speculation": {"draft_cost": 0.1}}, "that a step of speculation gains"),
    ],
)
def test_a_question_that_cannot_be_is_one_sentence(
    more: dict[str, Any], words: str, shardscape: Callable[..., tuple[int, str, str]]
) -> None:
    with pytest.raises(ValueError, match=re.escape(words)) as problem:
        answer("plan_post_training", {**QUESTION, **more})
    options = [str(each) for each in options_of({**QUESTION, **more})]
    code, out, err = shardscape("plan", "post-training", MODEL, SYSTEM, *options)
    assert code not in (0, 1)
    assert not out
    for text in (str(problem.value), err.strip()):
        assert text.endswith(".")
        assert "\n" not in text
    # Both say the same; the command names its options.
    assert words.replace("_", "-").split("`")[-1] in err.replace("_", "-")


@pytest.mark.parametrize(
    ("options", "option"),
    [(("--response", text), "--response") for text in ("nan:9", "9:nan", "9:inf", "9:9e999", "9", "-1:9", "9:99:77")]
    + [(("--response", "9:99", "--split", text), "--split") for text in ("²:³", "8:" + "9" * 5000, "8:", "a:b")],
)
def test_texts_of_several_numbers_are_refused_by_their_option(
    options: tuple[str, ...], option: str, shardscape: Callable[..., tuple[int, str, str]]
) -> None:
    """No such option as --mean exists: the sentence names the one that has the text."""
    code, out, told = shardscape("plan", "post-training", MODEL, SYSTEM, "--procs", 16, "--prompts", 64, *options)
    assert (code, out) == (2, "")
    assert told.strip().startswith(option), told
    if option == "--response":
        lengths = ("--samples", 9, "--lengths", options[1])
        code, out, told = shardscape("plan", "fine-tuning", MODEL, SYSTEM, *lengths)
        assert (code, out) == (2, "")
        assert told.strip().startswith("--lengths"), told


def test_modes_that_a_choice_leaves_out_say_so() -> None:
    launched = answer("plan_post_training", {**QUESTION, "launched": 1.5})
    assert "waits for no response" in launched["reasons"]["asynchronous"]
    split = answer("plan_post_training", {**QUESTION, "split": [8, 8]})
    assert "shares all GPUs" in split["reasons"]["colocated"]
    for found in (launched, split):
        assert {each["mode"] for each in found["best"]} | set(found["reasons"]) == {
            "colocated",
            "one_step_off",
            "asynchronous",
        }


def options_of(question: dict[str, Any], document: type[BaseModel] = PostTrainingQuestion) -> list[Any]:
    """Return the options of the command for a question in JSON."""
    found: list[Any] = []
    for name, value in question.items():
        field = question_fields(document)[name]
        if name in ("format", "model", "system"):
            continue
        if name == "response":
            found += ["--response", ":".join(str(each) for each in value.values())]
        elif name == "split":
            found += ["--split", ":".join(map(str, value))]
        elif field.nested is not None:
            found += options_of(value, field.nested)
        else:
            found += [f"--{field.option}"] if value is True else [f"--{field.option}", value]
    return found


def test_what_does_not_fit_says_why_and_ends_with_one(shardscape: Callable[..., tuple[int, str, str]]) -> None:
    few = answer("plan_post_training", {**QUESTION, "model": "llama-3.1-405B", "num_procs": 8, "mode": "one_step_off"})
    assert few["mode"] is None
    assert few["reasons"]["one_step_off"].endswith(".")
    options = ("--procs", 8, "--prompts", 64, "--response", "1060:3966", "--mode", "colocated")
    code, out, _ = shardscape("plan", "post-training", "llama-3.1-405B", SYSTEM, *options)
    assert code == 1
    assert "Colocated: No execution trains on 8 GPUs with 2 GiB" in out
    silent = answer("plan_post_training", {**QUESTION, "system": "b200_180g_sxm", "price_usd_per_h": None})
    assert silent["best"][0]["usd"] is None


def test_the_page_has_the_same_figures(found: dict[str, Any]) -> None:
    app = page_alone("post_training")
    link = {
        "model": MODEL,
        "system": SYSTEM,
        "procs": "16",
        "prompt": "130",
        "mean": "1060",
        "cap": "3966",
        "price": "3",
    }
    app.session_state["_url"] = {f"post_training_{name}": value for name, value in link.items()}
    app.run()
    assert not app.exception
    assert not app.error
    assert not app.warning
    best = found["best"][0]
    text = " ".join(re.sub(r"<[^>]+>", " ", html(app)).split())
    assert f"Step {plain(best['step_s']['value'])} s" in text
    assert f"{best['gpus_train']:,} GPUs train, {best['gpus_rollout']:,} generate" in text
    assert found["basis"] in text
    assert len(figure(app, "post_training_curve")["data"]) >= 3
    phases = next(each.value for each in app.dataframe if "Phase" in each.value and "Colocated" in each.value)
    assert list(phases["Phase"])[-1] == "Step"
    app.session_state["_url"] = {**app.session_state["_url"], "post_training_cap": "900"}
    app.run()
    assert not app.exception
    assert "must be above 0 and at most 900" in " ".join(each.value for each in app.error)


def test_the_page_takes_a_split_and_a_step_of_ones_own_and_applies_changes() -> None:
    app = page_alone("post_training")
    link = {"model": MODEL, "system": SYSTEM, "procs": "16", "mean": "1060", "cap": "3966", "own": "123", "slots": "64"}
    app.session_state["_url"] = {f"post_training_{name}": value for name, value in link.items()}
    app.run()
    # A step of one's own has a mode; the inputs are drawn, so that it can be chosen.
    refused = " ".join(each.value for each in app.error).replace("\\", "")
    assert '"Own step" needs the "Mode"' in refused
    assert any(each.label == "Mean response, tokens" for each in app.number_input)
    more = {"mode": "one_step_off", "split": "8:8", "limit": "tensor_par=1,2; pipeline_par=1"}
    app.session_state["_url"] = {**app.session_state["_url"], **{f"post_training_{k}": v for k, v in more.items()}}
    app.run()
    assert not app.exception
    assert not app.error
    text = " ".join(re.sub(r"<[^>]+>", " ", html(app)).split())
    assert "Step 123 s" in text
    assert "One step off: 8 GPUs train, 8 generate" in text
    lengths = figure(app, "post_training_lengths")["data"]
    # One falling curve from all responses at 0 tokens to none beyond the cap, in two parts.
    points = [point for part in lengths for point in zip(part["x"], part["y"], strict=True)]
    assert points == sorted(points, key=lambda each: (each[0], -each[1]))
    assert points[0] == (0.0, 1.0)
    assert points[-1] == (3966.0, 0.0)
    pools = figure(app, "post_training_pools")["data"]
    for pool in ("8 GPUs train", "8 GPUs generate"):
        pieces = [dx for each in pools for dx, y in zip(each["x"], each["y"], strict=True) if y == pool]
        assert sum(pieces) == pytest.approx(123.0)
    shown = [each.value for each in app.markdown]
    place = shown.index("At most 128 requests at once") // 3
    next(each for each in app.button if each.key == f"post_training_change_{place}").click().run()
    assert not app.exception
    assert app.session_state["_url"]["post_training_slots"] == "128"
    # The step of one's own was measured without the change: its factor stays, not its seconds.
    assert "post_training_own" not in app.session_state["_url"]
    said = float(next(each for each in shown[3 * place :] if each.endswith(" s")).removesuffix(" s"))
    tile = re.search(r"Step ([\d.]+) s", " ".join(re.sub(r"<[^>]+>", " ", html(app)).split()))
    assert tile is not None
    # The link has the factor with four decimals.
    assert float(tile[1]) == pytest.approx(said, rel=2e-3)


def test_changes_are_what_the_changed_question_answers() -> None:
    asked = {**QUESTION, "num_procs": 32, "changes": True}
    found = answer("plan_post_training", asked)
    best, rows = found["best"][0], found["changes"]
    steps = [row["step_s"] for row in rows if row["step_s"] is not None]
    assert steps == sorted(steps)
    assert {"rollout.datatype", "response.cv", "rollout.max_sequences"} <= {
        path for row in rows for path in row["fields"]
    }
    split = [best["gpus_train"], best["gpus_rollout"]]
    at_best = {
        **QUESTION,
        "num_procs": 32,
        "mode": best["mode"],
        "split": None if best["mode"] == "colocated" else split,
    }
    for row in rows:
        changed = json.loads(json.dumps(at_best))
        for path, value in row["fields"].items():
            outer, _, name = path.rpartition(".")
            place = changed.setdefault(outer, {}) if outer else changed
            place[name] = value
        (again,) = answer("plan_post_training", changed)["best"]
        assert again["step_s"]["value"] == pytest.approx(row["step_s"])
        assert row["ratio"] == pytest.approx(row["step_s"] / best["step_s"]["value"])


def test_the_page_opens_with_responses_that_every_model_can_write() -> None:
    for model in ("gpt3-13B", "llama-3-8B"):
        app = page_alone("post_training")
        app.session_state["_url"] = {"model": model, "system": "h100_80g_nvl8", "post_training_procs": "16"}
        app.run()
        assert not app.exception
        assert not [each.value for each in app.error]
