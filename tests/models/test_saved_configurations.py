"""Configurations as different versions of Hugging Face Transformers save them: one model under several spellings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import models
from tests.models.test_hugging_face import CONFIGS, MLA, llama

EXPERT_KEYS = ("num_experts", "num_local_experts", "n_routed_experts")


def spellings(config: dict[str, Any]) -> list[dict[str, Any]]:
    """The same file as version 5 saves it, and with every other name of the number of experts."""
    newer = {key: value for key, value in config.items() if key not in ("rope_theta", "torch_dtype")}
    if "rope_theta" in config:
        newer["rope_parameters"] = {"rope_theta": config["rope_theta"], "rope_type": "default"}
    newer |= {"dtype": "bfloat16", "transformers_version": "5.24.0"}
    found = [newer]
    for key in EXPERT_KEYS:
        if key in config:
            rest = {name: value for name, value in newer.items() if name != key}
            found += [{**rest, other: config[key]} for other in EXPERT_KEYS]
    return found


@pytest.mark.parametrize("name", CONFIGS)
def test_every_family_reads_both_spellings_with_the_same_result(name: str) -> None:
    model_type, content = CONFIGS[name]
    config = {"model_type": model_type, "torch_dtype": "bfloat16", "rope_theta": 10000.0, **content}
    if model_type in ("gpt2", "gpt_bigcode", "opt", "bloom", "mpt", "dbrx", "falcon", "gpt_neox"):
        config.pop("rope_theta")  # they have none, or under a key of their own
    wanted = models.from_hugging_face(config, name)
    for other in spellings(config):
        assert models.from_hugging_face(other, name) == wanted, other


def test_two_names_of_one_number_must_agree() -> None:
    config = {"model_type": "mixtral", **CONFIGS["mixtral-8x7B"][1]}
    assert models.from_hugging_face({**config, "num_experts": 8})
    with pytest.raises(models.ModelFileError, match=r"'num_local_experts' is 8 but 'num_experts', .* is 16"):
        models.from_hugging_face({**config, "num_experts": 16})


# Counted from the modules of transformers 5.24.0 on the meta device, every weight of the text model without prediction
# layers; all and those that a token visits. Keys: zai-org's GLM-4.5-Air and GLM-5.2, MiniMax-M2.5, Qwen3-VL-8B,
# Kimi-K2.5 and DeepSeek-V3.2 as published.
GLM_5: dict[str, Any] = {
    "model_type": "glm_moe_dsa",
    "hidden_size": 6144,
    "intermediate_size": 12288,
    "moe_intermediate_size": 2048,
    "num_hidden_layers": 78,
    "num_attention_heads": 64,
    "q_lora_rank": 2048,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 192,
    "qk_rope_head_dim": 64,
    "v_head_dim": 256,
    "index_n_heads": 32,
    "index_head_dim": 128,
    "index_topk": 2048,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 3,
    "vocab_size": 154880,
    "max_position_embeddings": 202752,
    "num_nextn_predict_layers": 1,
}
SHARED = ["full"] * 3 + (["shared"] * 3 + ["full"]) * 18 + ["shared"] * 3
KIMI: dict[str, Any] = {
    "model_type": "kimi_k2",
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "num_hidden_layers": 61,
    "num_attention_heads": 64,
    "q_lora_rank": 1536,
    **MLA,
    "n_routed_experts": 384,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "first_k_dense_replace": 1,
    "vocab_size": 163840,
    "max_position_embeddings": 262144,
}
GLM_45: dict[str, Any] = {
    "model_type": "glm4_moe",
    **llama(4096, 10944, 46, 96, 8, 151552, 131072),
    "moe_intermediate_size": 1408,
    "n_routed_experts": 128,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "first_k_dense_replace": 1,
}
COUNTS: dict[str, tuple[dict[str, Any], int, int]] = {
    "glm-5": (GLM_5, 743_911_199_232, 41_784_709_632),
    "glm-5.2": ({**GLM_5, "indexer_types": SHARED}, 743_377_000_704, 41_250_511_104),
    "glm-4.5-air": ({**GLM_45, "head_dim": 128, "attention_bias": True}, 106_852_245_504, 13_424_123_904),
    "minimax-m2.5": (
        {
            "model_type": "minimax_m2",
            **llama(3072, 1536, 62, 48, 8, 200064, 196608),
            "head_dim": 128,
            "num_local_experts": 256,
            "num_experts_per_tok": 8,
        },
        228_689_748_992,
        11_030_537_216,
    ),
    "qwen3-vl-8b": (
        {
            "model_type": "qwen3_vl",
            "text_config": {
                "model_type": "qwen3_vl_text",
                **llama(4096, 12288, 36, 32, 8, 151936, 262144),
                "head_dim": 128,
            },
        },
        8_190_735_360,
        8_190_735_360,
    ),
    "qwen3-vl-2b": (  # says outside only that head and embedding are one matrix
        {
            "model_type": "qwen3_vl",
            "tie_word_embeddings": True,
            "vision_config": {"depth": 24},
            "text_config": {
                "model_type": "qwen3_vl_text",
                **llama(2048, 6144, 28, 16, 8, 151936, 262144),
                "head_dim": 128,
            },
        },
        1_720_574_976,
        1_720_574_976,
    ),
    "qwen3-vl-30b-a3b": (
        {
            "model_type": "qwen3_vl_moe",
            "text_config": {"model_type": "qwen3_vl_moe_text", **CONFIGS["qwen3-30B-A3B"][1]},
        },
        30_532_122_624,
        3_353_032_704,
    ),
    "kimi-k2.5": ({"model_type": "kimi_k25", "text_config": KIMI}, 1_026_408_209_408, 32_861_477_888),
}


@pytest.mark.parametrize("name", COUNTS)
def test_the_counts_are_those_of_the_published_modules(name: str) -> None:
    config, total, active = COUNTS[name]
    found = models.from_hugging_face(config)
    assert (found.parameters, found.active_parameters) == (total, active)
    assert models.load_document(models.to_document(found), "again") == found
    tower = "text_config" in config
    assert any("images or sound is left out" in each for each in found.left_out) == tower


def test_glm_4_5_without_a_width_of_heads_has_what_its_code_takes() -> None:
    found = models.from_hugging_face(GLM_45)
    assert found.architecture is not None
    assert found.architecture.head_dim == 42  # 4096 // 96
    assert 103.4e9 < (found.parameters or 0) < 103.6e9
    assert any("head_dim is not in the file" in note for note in found.notes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"indexer_types": SHARED[:-1]}, "'indexer_types' has 77 entries for 'num_hidden_layers' 78"),
        ({"indexer_types": ["none", *SHARED[1:]]}, "'indexer_types' has 'none'"),
        ({"indexer_types": ["shared", *SHARED[1:]]}, "begins with 'shared'"),
        ({"index_topk_freq": 4}, "does not say which"),
        ({"mlp_layer_types": ["dense"] * 2 + ["sparse"] * 76}, "they must agree"),
        ({"mlp_layer_types": ["sparse", "dense"] * 39}, "the only pattern"),
    ],
)
def test_lists_per_layer_that_cannot_be_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(models.ModelFileError, match=message):
        models.from_hugging_face({**GLM_5, **changes})


def test_dense_layers_are_read_from_the_list_that_version_5_saves() -> None:
    config = {key: value for key, value in GLM_5.items() if key != "first_k_dense_replace"}
    config["mlp_layer_types"] = ["dense"] * 3 + ["sparse"] * 75
    assert models.from_hugging_face(config, "a").architecture == models.from_hugging_face(GLM_5, "a").architecture


@pytest.mark.parametrize("word", ["Infinity", "-Infinity", "NaN"])
def test_pythons_numbers_in_a_published_file_do_not_hide_what_the_file_is(tmp_path: Path, word: str) -> None:
    file = tmp_path / "config.json"
    good = {"model_type": "qwen3", **CONFIGS["qwen3-8B"][1]}
    text = json.dumps({**good, "time_step_limit": [0.0, 1.5]}).replace("1.5", word)
    file.write_text(text)
    assert models.load(file).parameters == models.from_hugging_face(good).parameters
    file.write_text(text.replace('"qwen3"', '"rwkv"'))
    with pytest.raises(models.ModelFileError, match="'rwkv' is not among the families that can be read"):
        models.load(file)
    # where the number is one of the model, or the file one of ours, it is refused
    file.write_text(text.replace('"hidden_size": 4096', f'"hidden_size": {word}'))
    with pytest.raises(models.ModelFileError, match="hidden_size"):
        models.load(file)
    file.write_text(json.dumps({"hidden": 1.5}).replace("1.5", word))
    with pytest.raises(models.ModelFileError, match=f"{word} is not a number that JSON allows"):
        models.load(file)


@pytest.mark.parametrize(
    ("model_type", "hint"),
    [
        ("qwen3moe", "did you mean 'qwen3_moe'"),
        ("GPT-OSS", "did you mean 'gpt_oss'"),
        ("glm4", ""),
        ("olmoe", ""),
        ("gemma3n", ""),
        ("deepseek_v5", ""),
        ("llama5", ""),
    ],
)
def test_only_another_way_to_write_a_family_is_a_hint(model_type: str, hint: str) -> None:
    with pytest.raises(models.ModelFileError) as refused:
        models.from_hugging_face({"model_type": model_type})
    assert hint in str(refused.value)
    assert ("did you mean" in str(refused.value)) == bool(hint)
