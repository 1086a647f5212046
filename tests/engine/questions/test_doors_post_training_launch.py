"""Launch files of reinforcement learning through the commands, and what frameworks cannot express."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from engine.launch import LaunchError
from engine.questions import VERBS, answer
from engine.questions.documents.post_training import PostTrainingQuestion
from engine.questions.errors import QuestionError
from engine.questions.post_training_launch import write_planned_run

QUESTION: dict[str, Any] = {
    "model": "llama-3.1-8B",
    "system": "h100_80g_sxm",
    "num_procs": 16,
    "prompts": 64,
    "group": 32,
    "prompt_tokens": 130,
    "response": {"mean": 1060.0, "cap": 3966},
    "updates": 4,
}
OPTIONS = ("--procs", 16, "--prompts", 64, "--group", 32, "--prompt", 130, "--response", "1060:3966", "--updates", 4)
Command = Callable[..., tuple[int, str, str]]


def test_the_command_writes_a_file_that_import_plans(shardscape: Command, tmp_path: Path) -> None:
    words = ("plan", "post-training", QUESTION["model"], QUESTION["system"], *OPTIONS)
    code, out, err = shardscape(*words, "--launch", "nemo-rl", "--checkpoint", "my/llama-3.1-8B")
    assert code == 0
    assert "my/llama-3.1-8B" in out
    assert "s per step" in err
    code, listed, _ = shardscape(*words, "--launch", "nemo-rl", "--out", tmp_path, "--json")
    made = json.loads(listed)
    Draft202012Validator(VERBS["export_post_training"].answer_schema()).validate(made)
    code, listed, _ = shardscape(*words, "--launch", "nemo-rl", "--out", tmp_path)
    file = Path(listed.strip())
    assert file.read_text("utf-8") == made["files"][file.name]
    assert made == answer("export_post_training", {**QUESTION, "launch": "nemo-rl"})
    # A recipe beside it that starts from it: what it changes counts, the rest comes from the file.
    recipe = tmp_path / "longer.yaml"
    recipe.write_text(f"defaults: {file.name}\ngrpo:\n  max_num_steps: 900\n", "utf-8")
    assert shardscape("import", file)[0] == 0
    code, out, err = shardscape("import", file, "--system", QUESTION["system"])
    assert code != 0
    assert "mean response (response.mean)" in err
    assert "--set mean=1200" in err
    stated = ("--set", "mean=1060", "--set", "prompt_tokens=130", "--system", QUESTION["system"], "--json")
    code, out, _ = shardscape("import", recipe, *stated)
    assert code == 0
    read = json.loads(out)
    Draft202012Validator(VERBS["import_post_training"].answer_schema()).validate(read)
    assert read["question"]["steps"] == 900
    assert read["plan"]["best"][0]["step_s"]["value"] == made["step_s"]
    by_setting = {row["setting"]: row for row in read["origins"]}
    assert (by_setting["steps"]["file"], by_setting["steps"]["line"]) == ("longer.yaml", 3)
    assert by_setting["prompts"]["file"] == file.name
    code, out, err = shardscape("import", recipe, *stated[:-1])
    assert "Nearest measured runs" in out


@pytest.mark.parametrize(
    ("framework", "more", "told"),
    [
        ("slime", {"mode": "asynchronous", "staleness": 6}, "Staleness 6: slime's asynchronous rollout has no bound"),
        ("nemo-rl", {"mode": "asynchronous", "staleness": 1}, "NeMo-RL runs it as one step off"),
        ("nemo-rl", {"mode": "colocated", "old_log_probs": False}, "leaves them out with one update per step only"),
        ("verl", {"mode": "one_step_off", "method": "dapo"}, "verl has it on shared GPUs only"),
        ("verl", {"mode": "one_step_off", "synchronisation": "shards"}, "verl sends tensor by tensor there"),
        ("slime", {"training": {"limits": {"zero_stage": [2]}}, "mode": "colocated"}, "always shards the optimizer's"),
    ],
)
def test_settings_without_a_word_are_named_in_a_sentence(framework: str, more: dict[str, Any], told: str) -> None:
    made = answer("export_post_training", {**QUESTION, **more, "launch": framework})
    assert len([each for each in made["not_expressible"] if told in each]) == 1
    (text,) = made["files"].values()
    assert told in text


def test_runs_that_a_framework_refuses_are_not_written() -> None:
    with pytest.raises(LaunchError, match="no critic for PPO"):
        answer("export_post_training", {**QUESTION, "method": "ppo", "mode": "colocated", "launch": "nemo-rl"})
    with pytest.raises(QuestionError, match="Nothing runs that slime can start"):
        answer("export_post_training", {**QUESTION, "num_procs": 1, "mode": "one_step_off", "launch": "slime"})
    row = answer("plan_post_training", {**QUESTION, "mode": "colocated"})["best"][0]
    uneven = PostTrainingQuestion.model_validate({**QUESTION, "prompts": 63, "group": 1, "updates": 1})
    with pytest.raises(LaunchError, match="no multiple of 16 replicas"):
        write_planned_run(uneven, row, "slime")
    asked = PostTrainingQuestion.model_validate(QUESTION)
    for split, told in (((16, 4), "4 GPUs of rollout are no whole nodes of 8"), ((8, 8), "16 of 8 GPUs")):
        pools = {**row, "mode": "one_step_off", "gpus_train": split[0], "gpus_rollout": split[1]}
        with pytest.raises(LaunchError, match=told):
            write_planned_run(asked, pools, "verl")


@pytest.mark.parametrize("framework", ["nemo-rl", "verl", "slime"])
def test_what_the_plan_counts_and_the_file_lacks_is_said(framework: str) -> None:
    """The step has the time of all parts: a file without them runs another step."""
    parts = {
        "judge": {"scored_by": "llama-3.1-8B"},
        "teacher": "llama-3.1-8B",
        "speculation": {"accepted": 2},
        "launched": 1.5,
        "helping": True,
    }
    asked = {
        "model": "llama-3.1-8B",
        "system": "h100_80g_sxm",
        "num_procs": 16,
        "prompts": 64,
        "response": {"mean": 1200, "cap": 4096},
        "launch": framework,
    }
    plain, full = (json.dumps(answer("export_post_training", {**asked, **more})) for more in ({}, parts))
    for words in ("Judge", "Teacher", "Speculative decoding", "More launched", "Training GPUs that help"):
        assert f"{words}" in full, words
        assert f"{words}: counted" not in plain
