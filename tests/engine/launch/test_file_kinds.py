"""Whose a file is: unmistakable formats first, guesses last, one sentence for the configurations of other programs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engine import launch

QUANTISED: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "transformers_version": "5.0.0",
    "quantization_config": {"quant_method": "fp8", "modules_to_not_convert": ["model.layers.0.mlp", "lm_head"]},
}


@pytest.mark.parametrize("indent", [None, 1, 2])
@pytest.mark.parametrize("left_out", ["model_type", "architectures", "transformers_version"])
def test_the_configuration_of_a_model_is_no_recipe(left_out: str, indent: int | None) -> None:
    text = json.dumps({key: value for key, value in QUANTISED.items() if key != left_out}, indent=indent)
    for name in ("config.json", "What was pasted", "config"):
        with pytest.raises(launch.OnlyModelError):
            launch.read_text(text, name)


FOREIGN = {
    "FlagScale": "experiment:\n  exp_name: a\n  task:\n    type: train\n",
    "FlagScale, its parts": "system:\n  tensor_model_parallel_size: 4\nmodel:\n  num_layers: 16\n",
    "Primus": "work_group: a\nmodules:\n  pre_trainer:\n    overrides:\n      tensor_model_parallel_size: 2\n",
    "Nanotron": "model: {model_config: {hidden_size: 64}}\nparallelism: {dp: 2, tp: 2}\ntokens: {steps: 4}\n",
    "GPT-NeoX": '{"pipe-parallel-size": 2, "train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 1}}',
    "verl": "actor_rollout_ref:\n  model:\n    path: a\ntrainer:\n  nnodes: 2\n",
}


@pytest.mark.parametrize("program", FOREIGN)
def test_configurations_of_other_programs_get_one_sentence(program: str) -> None:
    with pytest.raises(
        launch.LaunchError, match=f"is a configuration of {program.partition(',')[0]}, which is not read"
    ):
        launch.read_text(FOREIGN[program], "train.yaml")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.yaml", "policy:\n  model_name: a\ngrpo:\n  num_prompts_per_step: 4\n"),
        ("a.sh", "python3 -m verl.trainer.main_ppo data.train_batch_size=8\n"),
        ("a.sh", "python3 train.py --tensor-model-parallel-size 2 --num-layers 4 --rollout-batch-size 8\n"),
    ],
)
def test_reinforcement_learning_is_not_read_as_training(name: str, text: str) -> None:
    with pytest.raises(launch.LaunchError, match="open it on Post-train"):
        launch.read_text(text, name)


@pytest.mark.parametrize(
    "text",
    [
        "model:\n  name: x\n",
        '{"model": {"num_layers": 4}}',
        "model: gpt\nlr: 1\n",
        "train:\n  model:\n    tensor_model_parallel_size: 4\n",
    ],
)
def test_a_file_that_merely_has_a_model_is_no_recipe(text: str) -> None:
    for name in ("a.yaml", "a.json"):
        with pytest.raises(launch.LaunchError, match="no launch configuration that is known"):
            launch.read_text(text, name)


@pytest.mark.parametrize(
    ("name", "text", "framework"),
    [
        ("run.toml", "[model]\nname = 'llama3'\nflavor = '8B'\n[training]\nseq_len = 8192\n", "torchtitan"),
        ("start", "#!/bin/bash\ntorchrun pretrain_gpt.py --num-layers 8 --hidden-size 64\n", "megatron"),
        (
            "What was pasted",
            "trainer:\n  devices: 8\nmodel:\n  tensor_model_parallel_size: 2\n  num_layers: 8\n",
            "megatron-bridge",
        ),
        (
            "a.yaml",
            "{trainer: {devices: 8, num_nodes: 2}, model: {num_layers: 8, micro_batch_size: 1}}",
            "megatron-bridge",
        ),
        ("a.yml", "{MODEL_ARGS: {--num-layers: 4, --bf16: true}, ENV_VARS: {A: 1}}", "megatron"),
        ("a.yml", "{base_config: base.yml, remat_policy: full, ici_fsdp_parallelism: 8}", "maxtext"),
    ],
)
def test_a_file_is_of_the_framework_that_its_form_shows(name: str, text: str, framework: str) -> None:
    assert launch.read_text(text, name).framework == framework


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("a.yaml", "trainer: &t {devices: 8}\nmodel: *t\n", "an anchor"),
        ("a.yaml", "trainer: {devices: 8}\nmodel: {num_layers: 8, num_layers: 9}\n", "'num_layers' stands there twice"),
        ("a.yaml", "trainer: {devices: 8\nmodel: [\n", r"is not YAML \(line"),
        ("a.yaml", "trainer:\n  devices: " + "[" * 200 + "]" * 200 + "\n", "nested more than"),
        ("a.yaml", "trainer:\n  devices: 8\n" + "# x\n" * 200_000, "YAML of up to"),
        ("a.toml", "[model]\n" + "a." * 30_000 + "b = 1\n", "has a key of 30,00. parts in line 2"),
        ("a.toml", "[model]\nx = {" + "a . " * 30_000 + "b = 1}\n", "has a key of 30,00. parts in line 2"),
        ("a.toml", "[training]\nseq_len = " + "9" * 5_000 + "\n[model]\n", "has a number of 5,000 digits"),
        ("a.py", "".join(f"if x{i}:\n  cfg.model.k{i} = {i}\n" for i in range(20_000)), "conditions that are open"),
        (
            "a.py",
            "".join(f"a{i} = 1\ndef f{i}():\n  cfg.model.k = a{i}\n" for i in range(20_000)),
            "functions; at most",
        ),
        ("a.json", '{"train_batch_size": ' + "9" * 5_000 + "}", "has a number of 5,000 digits"),
    ],
)
def test_files_beyond_bounds_are_refused_in_one_sentence(name: str, text: str, told: str) -> None:
    with pytest.raises(launch.LaunchError, match=told):
        launch.read_text(text, name)
