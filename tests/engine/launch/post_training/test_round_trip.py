"""Runs of reinforcement learning written and read back, and files that are damaged on the way."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import models
from engine.launch import LaunchError
from engine.launch.contract import Written
from engine.launch.post_training import RUN_FRAMEWORKS, RunReading, read_run_text, write_run
from engine.questions import answer

MODELS = ("llama-3.1-8B", "qwen3-30B-A3B", "qwen3-235B-A22B")
FRAMEWORKS = ("nemo-rl", "verl", "slime")
LAYOUT = (
    "tensor_par",
    "pipeline_par",
    "context_par",
    "data_par",
    "expert_par",
    "zero_stage",
    "activation_recompute",
    "selective_recompute",
    "optimizer_offload",
    "tensor_par_comm_type",
    "data_par_overlap",
    "gradient_datatype",
    "num_procs",
)
SYNCHRONISATION = {
    "nemo-rl": ("broadcast", "broadcast"),
    "verl": ("plain", "buckets"),
    "slime": ("buckets", "buckets"),
}
"""Way to send weights, one step off and asynchronous."""


@st.composite
def runs(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a framework, and the arguments of `write_run` for a run that it has words for."""
    framework, model = draw(st.sampled_from(FRAMEWORKS)), draw(st.sampled_from(MODELS))
    mode = draw(st.sampled_from(["colocated", "one_step_off", "asynchronous"]))
    powers = st.sampled_from([1, 2, 4])
    tensor, pipeline, context = draw(powers), draw(st.sampled_from([1, 2])), draw(st.sampled_from([1, 2]))
    data = draw(st.sampled_from([2, 4, 8]))
    expert = draw(st.sampled_from([1, 2, 4, 8])) if "A" in model.rpartition("-")[2] else 1
    recompute = draw(st.sampled_from([("none", "attention"), ("full", "attention"), ("attn_only", "attention")]))
    gpus = tensor * pipeline * context * data
    assume(gpus % 8 == 0 and gpus % (expert * pipeline) == 0)
    replica = draw(powers)
    rollout = gpus if mode == "colocated" else draw(st.sampled_from([8, 16, 64]))
    group, updates = draw(st.sampled_from([8, 16])), draw(st.sampled_from([1, 2, 4]))
    offload = draw(st.booleans())
    sequence = tensor > 1 and (expert > 1 or draw(st.booleans()))
    execution = {
        "num_procs": gpus,
        "tensor_par": tensor,
        "pipeline_par": pipeline,
        "context_par": context,
        "data_par": data,
        "expert_par": expert,
        "expert_tensor_par": 1,
        "batch_size": 64 * data,
        "microbatch_size": 1,
        "datatype": "bfloat16",
        "zero_stage": 1,
        "activation_recompute": recompute[0],
        "selective_recompute": recompute[1],
        "optimizer_offload": offload,
        "tensor_par_comm_type": "rs_ag" if sequence else "ar",
        "seq_par_ag_redo": sequence,
        "data_par_overlap": draw(st.booleans()),
        "gradient_datatype": draw(st.sampled_from(["float32", "bfloat16"])) if framework != "slime" else "float32",
        "attention_kernel": "native",
    }
    said = {
        "method": draw(st.sampled_from(["grpo", "dapo"])) if mode == "colocated" else "grpo",
        "prompts": draw(st.sampled_from([32, 64, 128])),
        "group": group,
        "prompt_tokens": draw(st.integers(20, 600)),
        "response.cap": draw(st.integers(300, 30_000)),
        "updates": updates,
        "reference": draw(st.booleans()),
        "old_log_probs": draw(st.booleans()) if framework != "nemo-rl" or updates == 1 else True,
        "steps": draw(st.integers(1, 5_000)),
        "mode": mode,
        "staleness": draw(st.integers(2, 12)),
        "rollout.datatype": draw(st.sampled_from(["bfloat16", "float8"])),
        "rollout.memory_share": draw(st.integers(30, 95)) / 100,
        "rollout.max_sequences": draw(st.sampled_from([64, 256, 500])),
        "synchronisation": SYNCHRONISATION[framework][mode == "asynchronous"],
    }
    # Packs are shared by the ranks of a context-parallel group.
    said["pack_to"] = 2 * draw(st.integers(said["prompt_tokens"] + said["response.cap"], 40_000))
    return {
        "framework": framework,
        "settings": said,
        "execution": execution,
        "replicas": {"tensor_par": replica, "pipeline_par": 1, "expert_par": 1, "replicas": rollout // replica},
        "model": models.load(model),
        "gpus_train": gpus,
        "gpus_rollout": rollout,
        "gpus_per_node": 8,
    }


def write(run: dict[str, Any]) -> Written:
    rest = {name: value for name, value in run.items() if name not in ("settings", "execution", "replicas", "model")}
    return write_run(run["settings"], run["execution"], run["replicas"], run["model"], **rest)


def read(made: Written, **stated: Any) -> RunReading:
    (file,) = made.files
    return read_run_text(file.text, file.name, stated=stated)


@settings(max_examples=60, deadline=None)
@given(run=runs())
def test_a_written_run_is_read_back(run: dict[str, Any]) -> None:
    made = write(run)
    said, model = run["settings"], run["model"]
    found = read(made, prompt_tokens=said["prompt_tokens"])
    assert found.framework == run["framework"]
    assert not found.unread
    assert not found.refused
    has_bound = said["mode"] == "asynchronous" and run["framework"] != "slime"
    expected = {
        **{name: value for name, value in said.items() if name not in ("staleness", "synchronisation")},
        **({"staleness": said["staleness"]} if has_bound else {}),
        "model": model.name,
        "rollout.tensor_par": [run["replicas"]["tensor_par"]],
        "num_procs": run["gpus_train"],
    }
    if said["mode"] != "colocated":
        expected["split"] = [run["gpus_train"], run["gpus_rollout"]]
        expected["num_procs"] = sum(expected["split"])
        expected["synchronisation"] = said["synchronisation"]
    assert found.settings == expected
    assert found.replicas == run["replicas"]
    execution = run["execution"]
    if execution["activation_recompute"] != "attn_only":
        execution = {**execution, "selective_recompute": "attention"}
    assert {name: found.layout[name] for name in LAYOUT} == {name: execution[name] for name in LAYOUT}
    bound = [] if has_bound or said["mode"] != "asynchronous" else [f"Staleness {said['staleness']}"]
    assert [each.partition(":")[0] for each in made.not_expressible] == bound


@pytest.mark.parametrize(
    ("framework", "model", "mode"),
    [
        *((framework, "qwen3-30B-A3B", "one_step_off") for framework in FRAMEWORKS),
        ("verl", "gemma-3-27B", "colocated"),  # stages of unlike size, several of each rank
        ("slime", "falcon-h1-7B", "colocated"),  # unlike layers
    ],
)
def test_the_plan_of_a_written_file_is_the_plan_it_was_written_from(framework: str, model: str, mode: str) -> None:
    lengths = {"mean": 1060.0, "cap": 3966}
    asked = {"model": model, "system": "h100_80g_sxm", "num_procs": 32, "prompts": 64, "group": 32}
    question = {**asked, "prompt_tokens": 130, "response": lengths, "updates": 4, "mode": mode}
    made = answer("export_post_training", {**question, "launch": framework})
    (name,) = made["files"]
    stated = {"mean": 1060.0, "prompt_tokens": 130}
    file = {"text": made["files"][name], "name": name, "model": model}
    found = answer("import_post_training", {**file, "stated": stated, "system": "h100_80g_sxm"})
    best = found["plan"]["best"][0]
    assert (best["mode"], best["step_s"]["value"]) == (made["mode"], made["step_s"])
    assert found["missing"] == []
    assert found["refused"] == ""
    # Without them nothing is planned: a file has no mean and no lengths of prompts.
    bare = answer("import_post_training", {"text": made["files"][name], "name": name})
    assert {"response.mean", "prompt_tokens"} <= set(bare["missing"])
    assert all(row["value"] is None for row in bare["origins"] if row["setting"] == "response.mean")


def written_files() -> list[tuple[str, str]]:
    execution = {"tensor_par": 2, "pipeline_par": 2, "data_par": 4, "batch_size": 64, "microbatch_size": 1}
    execution |= {"datatype": "bfloat16", "num_procs": 16, "zero_stage": 1, "tensor_par_comm_type": "rs_ag"}
    said = {"method": "grpo", "prompts": 64, "group": 8, "prompt_tokens": 100, "response.cap": 1000, "updates": 4}
    said |= {"reference": True, "old_log_probs": True, "steps": 10, "mode": "asynchronous", "staleness": 3}
    said |= {"rollout.datatype": "bfloat16", "rollout.memory_share": 0.8, "rollout.max_sequences": 256}
    found = []
    for framework in RUN_FRAMEWORKS:
        made = write_run(
            {**said, "synchronisation": "buckets"},
            execution,
            {"tensor_par": 2},
            models.load("llama-3.1-8B"),
            framework=framework,
            gpus_train=16,
            gpus_rollout=8,
            gpus_per_node=8,
        )
        found.append((made.files[0].name, made.files[0].text))
    return found


@pytest.mark.parametrize(("name", "text"), written_files(), ids=list(RUN_FRAMEWORKS))
def test_damaged_files_are_refused_in_a_sentence(name: str, text: str) -> None:
    """Values that are no numbers, lines that are cut, doubled or moved: a run or one sentence, never a traceback."""
    chance = random.Random(0)
    lines = text.splitlines()
    junk = ["-1", "0", "1e400", "true", "null", "[1, 2]", "{}", "'", '"', "${X}", "$(nproc)", "\\", "9" * 40, "é", ":"]
    for _ in range(120):
        changed = list(lines)
        for _ in range(chance.randint(1, 3)):
            place = chance.randrange(len(changed))
            line = changed[place]
            match chance.randrange(4):
                case 0:
                    head = max(line.rfind(": "), line.rfind("="), line.rfind(" ")) + 1
                    changed[place] = line[:head] + (" " if line[:head].endswith(":") else "") + chance.choice(junk)
                case 1:
                    changed[place] = line[: chance.randint(0, len(line))]
                case 2:
                    changed.insert(place, changed[chance.randrange(len(changed))])
                case _:
                    del changed[place]
        told = ""
        try:
            assert read_run_text("\n".join(changed), name).framework in RUN_FRAMEWORKS
        except LaunchError as problem:
            told = str(problem)
        assert "\n" not in told
        assert len(told) < 500
