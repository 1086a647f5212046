"""Configurations of published models: every weight, and every byte kept of a sequence, as their own modules count."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import models

ROWS = json.loads((Path(__file__).parent / "data" / "published_configurations.json").read_text())["rows"]
MEASURED_OTHERWISE = {"kimi-linear-48B-A3B": {"state_bytes_per_sequence"}}
"""The row counts 4,096 elements of state per layer; 32 heads of 128 x 128 hold 524,288 (Kimi Linear, section 2)."""
FIGURES = (
    "total",
    "active",
    "embedding",
    "lm_head",
    "layer_kinds",
    "cache_bytes_per_token",
    "window_bytes_per_sequence",
    "state_bytes_per_sequence",
)


def read(row: dict[str, Any], tmp_path: Path) -> models.Model:
    path = tmp_path / "published.json"
    path.write_text(json.dumps(row["config"]))
    return models.load(path)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_counts_are_those_of_the_published_modules(row: dict[str, Any], tmp_path: Path) -> None:
    found = models.parameter_counts(read(row, tmp_path))
    expected = {
        name: row[name] for name in FIGURES if name in row and name not in MEASURED_OTHERWISE.get(row["name"], ())
    }
    assert {name: getattr(found, name) for name in expected} == expected


WITH_TOWERS = [row for row in ROWS if row.get("tower") and "vision_config" in row["config"]]


@pytest.mark.parametrize("row", WITH_TOWERS, ids=lambda row: row["name"])
def test_a_tower_for_images_is_counted_apart(row: dict[str, Any], tmp_path: Path) -> None:
    found = read(row, tmp_path)
    assert found.tower is not None
    assert models.parameter_counts(found).tower == row["tower"]
    assert f"{row['tower']:,} weights" in found.left_out[0]
    without = {key: value for key, value in row["config"].items() if key != "vision_config"}
    assert models.parameter_counts(read({"config": without}, tmp_path)).total == models.parameter_counts(found).total


@pytest.mark.parametrize(
    ("name", "outer", "vision", "weights"),
    [  # counted by their modules, of the shapes of Llama 4 and Mistral Small 3.2
        (
            "llama-4-scout",
            {},
            {
                "hidden_size": 1408,
                "intermediate_size": 5632,
                "num_hidden_layers": 34,
                "num_attention_heads": 16,
                "image_size": 336,
                "patch_size": 14,
                "vision_output_dim": 4096,
                "projector_input_dim": 4096,
                "projector_output_dim": 4096,
            },
            871_932_416,
        ),
        (
            "mistral-small-3.2-24B",
            {"model_type": "mistral3", "spatial_merge_size": 2},
            {
                "hidden_size": 1024,
                "intermediate_size": 4096,
                "num_hidden_layers": 24,
                "num_attention_heads": 16,
                "patch_size": 14,
            },
            438_958_080,
        ),
    ],
)
def test_towers_of_other_families(
    name: str, outer: dict[str, Any], vision: dict[str, Any], weights: int, tmp_path: Path
) -> None:
    config = changed(name)["config"]
    whole = {**config, **outer, "text_config": config.get("text_config", config), "vision_config": vision}
    assert models.parameter_counts(read({"config": whole}, tmp_path)).tower == weights
    for key in vision:  # a tower that lacks a number is left out, and its key is said
        cut = read({"config": {**whole, "vision_config": {**vision, key: None}}}, tmp_path)
        assert cut.tower is None
        assert f"'vision_config.{key}' is missing" in cut.left_out[0]


def test_a_pattern_survives_as_a_document(tmp_path: Path) -> None:
    found = [read(row, tmp_path) for row in ROWS]
    assert [models.load_document(json.loads(json.dumps(models.to_document(each)))) for each in found] == found


def test_an_unread_family_is_named_with_the_families_that_are_read(tmp_path: Path) -> None:
    with pytest.raises(models.ModelFileError, match=r"'rwkv' is not among the families .*supported are apertus"):
        read({"config": {"model_type": "rwkv"}}, tmp_path)


LIBRARY = {
    name: row for row in ROWS for name in (row["name"], *row.get("same_shape", ())) if name in set(models.names())
}


@pytest.mark.parametrize("name", LIBRARY)
def test_a_library_model_has_the_counts_of_its_published_modules(name: str) -> None:
    row, found = LIBRARY[name], models.parameter_counts(models.load(name))
    expected = {
        each: row[each] for each in FIGURES if each in row and each not in MEASURED_OTHERWISE.get(row["name"], ())
    }
    assert {each: getattr(found, each) for each in expected} == expected


def test_every_published_model_is_in_the_library() -> None:
    missing = [row for row in ROWS if not {row["name"], *row.get("same_shape", ())} & set(LIBRARY)]
    assert {row["identity"] for row in missing} == {"class default, no published total compared"}


@pytest.mark.parametrize("name", models.names())
def test_a_library_model_has_the_weights_of_its_pattern(name: str) -> None:
    model = models.load(name)
    counts = models.parameter_counts(model)
    layers = model.architecture.layers if model.architecture is not None else model.layers and model.layers.layers
    assert sum(counts.layer_kinds.values()) == layers
    assert counts.products < counts.active <= counts.total


@pytest.mark.parametrize(
    ("name", "key", "value", "words"),
    [
        ("qwen3-next-80B-A3B", "layer_types", ["linear_attention"], "has 1 entries for 'num_hidden_layers' 48"),
        ("qwen3-next-80B-A3B", "layer_types", ["quantum_attention"] * 48, "'quantum_attention'; it may have"),
        ("nemotron-3-nano-30B-A3B", "hybrid_override_pattern", "MEX", "must be text of M, \\*, - and E"),
        ("nemotron-3-nano-30B-A3B", "hybrid_override_pattern", "ME*", "has 3 layers and 'num_hidden_layers' says 52"),
        ("nemotron-3-nano-30B-A3B", "moe_intermediate_size", None, "key 'moe_intermediate_size' is missing"),
        (
            "kimi-linear-48B-A3B",
            "linear_attn_config",
            {"kda_layers": [1], "full_attn_layers": []},
            "each of the layers",
        ),
        ("bamba-9B", "attn_layer_indices", [99], "from 0 to 31"),
        ("bamba-9B", "mamba_d_head", 65, "'mamba_d_head' is 128 x 65; it must be Mamba's inner width of 8192"),
        ("jamba-v0.1", "num_hidden_layers", 10**6, "must be from 1 to 10,000"),
        ("jamba-v0.1", "attn_layer_offset", 8, "'attn_layer_offset' is 8 and 'attn_layer_period' 8"),
        ("lfm2-1.2B", "full_attn_idxs", [99], "'full_attn_idxs' is \\[99\\]; it must list layers"),
        ("gemma-3n-E4B", "num_kv_shared_layers", 99, "'num_kv_shared_layers' is 99; it must be below"),
        ("minimax-M3", "attention_output_gate", True, "'attention_output_gate' is true"),
        ("command-a-111B", "sliding_window_pattern", 0, "'sliding_window_pattern' is 0"),
        (
            "nemotron-3-nano-30B-A3B",
            "num_key_value_heads",
            5,
            "'num_attention_heads' is 32, 'num_key_value_heads' is 5",
        ),
        ("nemotron-3-nano-30B-A3B", "n_groups", 3, "'mamba_num_heads' is 64, 'n_groups' is 3"),
        ("qwen3-next-80B-A3B", "num_experts_per_tok", 999, "'num_experts' is 512, 'num_experts_per_tok' is 999"),
        ("step-3.7-flash", "attention_other_setting", None, "'attention_other_setting' is missing"),
        ("deepseek-v4-flash", "compress_ratios", [7] * 43, "must have 0, 4 or 128"),
        ("hunyuan-A13B", "moe_topk", [8] * 31 + [4], "the same one for each of 32 layers"),
        ("exaone-4.0-32B", "layer_types", ["sliding_attention"] * 63 + ["odd"], "only full, sliding and chunked"),
    ],
)
def test_a_wrong_pattern_is_one_sentence_with_key_and_value(
    name: str, key: str, value: Any, words: str, tmp_path: Path
) -> None:
    row = next(each for each in ROWS if each["name"] == name)
    config = dict(row["config"])
    if value is None:
        del config[key]
    else:
        config[key] = value
    with pytest.raises(models.ModelFileError, match=words) as found:
        read({"config": config}, tmp_path)
    assert str(found.value).count("\n") == 0


def changed(name: str, **keys: Any) -> dict[str, Any]:
    """A published configuration of a language model with other values; `...` leaves a key out."""
    config = json.loads(json.dumps(next(each for each in ROWS if each["name"] == name)["config"]))
    inner = config.get("text_config", config)
    inner.update(keys)
    for key in [key for key, value in keys.items() if value is ...]:
        del inner[key]
    return {"config": config}


# Counted as above from the configuration that transformers 5.24.0 completes.
@pytest.mark.parametrize(
    ("name", "key", "total"),
    [
        ("qwen3.5-122B-A10B", "num_key_value_heads", 122_111_526_912),
        ("qwen3.5-397B-A17B", "head_dim", 396_346_350_336),
        ("qwen3-next-80B-A3B", "num_experts", 79_674_391_296),
        ("minimax-M2.5", "head_dim", 228_689_748_992),
        ("mixtral-8x7B (control)", "num_key_value_heads", 46_702_792_704),
        ("deepseek-v3", "first_k_dense_replace", 671_026_404_352),
        ("deepseek-v3", "n_routed_experts", 671_026_404_352),
        ("deepseek-v3.2", "index_topk", 671_877_929_216),
        ("glm-5", "q_lora_rank", 743_911_199_232),
        ("glm-4.5-air", "n_shared_experts", 106_852_245_504),
        ("smollm3-3B", "num_key_value_heads", 3_075_098_624),
        ("gemma-3n-E4B", "num_kv_shared_layers", 6_835_235_568),
        ("ernie-4.5-300B-A47B", "moe_num_shared_experts", 308_468_362_432),
        ("granite-3.3-8B", "tie_word_embeddings", 8_372_219_904),
        ("hunyuan-7B", "tie_word_embeddings", 8_029_540_352),
        ("longcat-flash-560B", "zero_expert_num", 560_664_958_976),
        ("kimi-linear-48B-A3B", "num_shared_experts", 49_122_675_072),
    ],
)
def test_a_key_left_out_is_the_default_of_its_configuration_class(
    name: str, key: str, total: int, tmp_path: Path
) -> None:
    found = read(changed(name, **{key: ...}), tmp_path)
    assert models.parameter_counts(found).total == total
    assert any(note.startswith(f"{key} is not in the file; ") for note in found.notes)


def test_the_whole_model_says_whether_head_and_embedding_are_one(tmp_path: Path) -> None:
    row = changed("qwen3-vl-2B", tie_word_embeddings=None)
    assert models.parameter_counts(read(row, tmp_path)).lm_head == 0  # tied outside
    row = changed("qwen3-vl-30B-A3B", tie_word_embeddings=True)  # version 5 writes its class default here
    assert models.parameter_counts(read(row, tmp_path)).total == 30_532_122_624


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("llama-3.1-8B (control)", "attention_bias", True),  # of the output product too
        ("granite-3.3-8B", "mlp_bias", True),
        ("smollm3-3B", "mlp_bias", True),
        ("bamba-9B", "mlp_bias", True),
        ("falcon-h1-7B", "projectors_bias", True),
        ("deepseek-v3", "attention_bias", True),
        ("longcat-flash-560B", "attention_bias", True),
        ("longcat-flash-560B", "router_bias", True),
        ("kimi-linear-48B-A3B", "attention_bias", True),
        ("ernie-4.5-21B-A3B", "use_bias", True),
        ("nemotron-h-56B", "use_bias", True),
        ("nemotron-h-56B", "use_conv_bias", False),
        ("gpt-oss-20b", "attention_bias", False),
    ],
)
def test_biases_that_are_not_counted_are_refused(name: str, key: str, value: bool, tmp_path: Path) -> None:
    with pytest.raises(models.ModelFileError, match=f"'{key}' is {str(value).lower()}[;,]"):
        read(changed(name, **{key: value}), tmp_path)


def test_biases_of_queries_keys_and_values_leave_the_output_without(tmp_path: Path) -> None:
    rows = [changed("mimo-v2-flash", attention_bias=each) for each in (False, True)]
    found = [models.parameter_counts(read(each, tmp_path)) for each in rows]
    assert found[1].total - found[0].total == 9 * (64 * 192 + 4 * 320) + 39 * (64 * 192 + 8 * 320)


def resaved(name: str) -> dict[str, Any]:
    """A published configuration with the keys under which version 5 of Transformers saves it again."""
    row = changed(name)
    config = row["config"].get("text_config", row["config"])
    match config["model_type"]:
        case "nemotron_h":
            del config["num_hidden_layers"]
            words = {"M": "linear_attention", "*": "full_attention", "-": "mlp", "E": "moe"}
            config["layers_block_type"] = [words[each] for each in config.pop("hybrid_override_pattern")]
        case "granitemoehybrid":
            words = {"mamba": "linear_attention", "attention": "full_attention"}
            config["layer_types"] = [words[each] for each in config["layer_types"]]
        case "deepseek_v4":
            rates = {0: "sliding_attention", 4: "compressed_sparse_attention", 128: "heavily_compressed_attention"}
            config["layer_types"] = [
                rates[each] for each in config.pop("compress_ratios")[: config["num_hidden_layers"]]
            ]
            config["compress_rates"] = {rates[4]: 4, rates[128]: 128}
        case "gemma4_text":
            change = {"head_dim": config.pop("global_head_dim"), "num_key_value_heads": 2}
            del config["num_global_key_value_heads"]
            config["attention_k_eq_v"] = True
            full = [place for place, kind in enumerate(config["layer_types"]) if kind == "full_attention"]
            config["per_layer_config"] = {f"{place:02}": change for place in full}
        case "mimo_v2_flash":
            config["sliding_window"] = config.pop("sliding_window_size") + 1
        case "step3p7":
            del config["attention_other_setting"], config["first_k_dense_replace"]
            config["num_sliding_attention_heads"] = 96
            config["mlp_layer_types"] = ["dense"] * 3 + ["sparse"] * 42
        case "minimax_m3":
            config["model_type"] = "minimax_m3_vl_text"
            sparse, chosen = config.pop("sparse_attention_config"), config.pop("moe_layer_freq")
            words = ("full_attention", "minimax_m3_sparse")
            config["layer_types"] = [words[each] for each in sparse["sparse_attention_freq"]]
            config["mlp_layer_types"] = [("dense", "sparse")[each] for each in chosen]
            config |= {"index_n_heads": 4, "index_head_dim": 128, "index_block_size": 128, "index_topk_blocks": 16}
        case "kimi_linear":
            config["model_max_length"] = config.pop("max_position_embeddings")
    return row


RESAVED = (
    "nemotron-3-super-120B-A12B",
    "granite-4.0-h-small",
    "deepseek-v4-flash",
    "gemma-4-26B-A4B",
    "mimo-v2-flash",
    "step-3.7-flash",
    "minimax-M3",
    "kimi-k3",
)


@pytest.mark.parametrize("name", RESAVED)
def test_a_file_that_version_5_saved_again_is_the_same_model(name: str, tmp_path: Path) -> None:
    assert resaved(name) != changed(name)
    assert read(resaved(name), tmp_path).layers == read(changed(name), tmp_path).layers


def test_step_files_as_published_pad_lists_and_name_layers_with_experts(tmp_path: Path) -> None:
    row = changed("step-3.7-flash", first_k_dense_replace=..., num_nextn_predict_layers=3, num_key_value_heads=...)
    row["config"] |= {"moe_layers_enum": ",".join(map(str, range(3, 45))), "num_attention_groups": 8}
    row["config"]["layer_types"] += ["sliding_attention"] * 3
    assert read(row, tmp_path).layers == read(changed("step-3.7-flash"), tmp_path).layers
    row["config"]["moe_layers_enum"] = "3,x"
    with pytest.raises(models.ModelFileError, match="'moe_layers_enum' is '3,x'; it must list layers"):
        read(row, tmp_path)


def refusal(document: dict[str, Any]) -> str:
    """The sentence with which a document is refused; empty where it is read."""
    try:
        models.from_hugging_face(document)
    except models.ModelFileError as refused:
        return str(refused)
    return ""


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_a_refused_number_is_named_by_its_key(row: dict[str, Any]) -> None:
    config = row["config"].get("text_config", row["config"])
    numbers = [key for key, value in config.items() if isinstance(value, int) and not isinstance(value, bool)]
    for key in numbers:
        for value in (0, -1, 10**12):
            changes = {key: value}
            document = {**row["config"], **changes}
            if "text_config" in row["config"]:
                document = {**row["config"], "text_config": {**config, **changes}}
            words = refusal(document)
            assert f"{key}'" in words or not words, (key, value)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_a_language_model_inside_a_quantised_multimodal_file_is_the_same(row: dict[str, Any], tmp_path: Path) -> None:
    inner = row["config"].get("text_config", row["config"])
    quantised = {"quant_method": "compressed-tensors", "num_bits": 4, "ignore": ["lm_head"]}
    outer = {"model_type": "mistral3", "vision_config": {"hidden_size": 1024}, "quantization_config": quantised}
    tied = {key: row["config"][key] for key in ("tie_word_embeddings",) if key in row["config"]}
    inner = {"model_type": row["config"]["model_type"], **inner}
    wrapped, plain = read({"config": {**outer, **tied, "text_config": inner}}, tmp_path), read(row, tmp_path)
    assert (wrapped.architecture, wrapped.layers) == (plain.architecture, plain.layers)


# Shapes of the configuration classes, which are those of GLM-4.7-Flash and Hy3; counted by their modules.
CLASS_SHAPES: list[tuple[dict[str, Any], int, int]] = [
    (
        {
            "model_type": "glm4_moe_lite",
            "hidden_size": 2048,
            "intermediate_size": 10240,
            "moe_intermediate_size": 1536,
            "num_hidden_layers": 47,
            "num_attention_heads": 20,
            "kv_lora_rank": 512,
            "qk_nope_head_dim": 192,
            "qk_rope_head_dim": 64,
            "v_head_dim": 256,
            "num_experts_per_tok": 4,
            "vocab_size": 154880,
            "max_position_embeddings": 202752,
        },
        29_943_390_976,
        3_896_763_136,
    ),
    (
        {
            "model_type": "hy_v3",
            "hidden_size": 4096,
            "intermediate_size": 13312,
            "moe_intermediate_size": 1536,
            "num_hidden_layers": 80,
            "num_attention_heads": 64,
            "num_experts": 192,
            "num_experts_per_tok": 8,
            "vocab_size": 120832,
            "max_position_embeddings": 131072,
        },
        295_033_528_320,
        20_675_715_072,
    ),
    (  # Granite 3.1 3B-A800M, by hand
        {
            "model_type": "granitemoe",
            "hidden_size": 1536,
            "intermediate_size": 512,
            "num_hidden_layers": 32,
            "num_attention_heads": 24,
            "num_key_value_heads": 8,
            "num_local_experts": 40,
            "num_experts_per_tok": 8,
            "vocab_size": 49155,
            "max_position_embeddings": 4096,
            "tie_word_embeddings": True,
        },
        3_298_793_472,
        882_874_368,
    ),
]


@pytest.mark.parametrize(("config", "total", "active"), CLASS_SHAPES)
def test_files_that_leave_class_defaults_out_are_whole(
    config: dict[str, Any], total: int, active: int, tmp_path: Path
) -> None:
    found = models.parameter_counts(read({"config": config}, tmp_path))
    assert (found.total, found.active) == (total, active)


def test_weights_that_differ_from_the_published_count_are_said(tmp_path: Path) -> None:
    decoder = {"hidden_size": 2560, "num_hidden_layers": 32, "num_attention_heads": 32, "vocab_size": 51200}
    shared = {**decoder, "intermediate_size": 10240, "max_position_embeddings": 2048}
    phi = read({"config": {**shared, "model_type": "phi"}}, tmp_path)
    assert models.parameter_counts(phi).total == 2_779_683_840 - 51_200  # microsoft/phi-2
    assert "The bias of its LM head, 51,200 weights, is not counted." in phi.left_out
    olmo = read({"config": {**shared, "model_type": "olmo"}}, tmp_path)
    assert models.parameter_counts(olmo).total == 3_617_587_200
    blocks = {"d_model": 7168, "n_heads": 64, "n_layers": 48, "vocab_size": 50432, "max_seq_len": 8192}
    mpt = read({"config": {**blocks, "model_type": "mpt"}}, tmp_path)  # mosaicml/mpt-30b: norms without shift
    assert models.parameter_counts(mpt).total == 29_957_200_896 == models.load("mpt-30B-released").parameters
    # databricks/dbrx-base, released weights: norms without shift
    assert models.parameter_counts("dbrx-132B").total == 131_596_523_520
    with pytest.raises(models.ModelFileError, match="'is_encoder_decoder' is true"):
        read({"config": {**shared, "model_type": "phi", "is_encoder_decoder": True}}, tmp_path)


@pytest.mark.parametrize(
    ("name", "keys", "first", "second"),
    [
        (
            "qwen3-next-80B-A3B",
            {"full_attention_interval": 4, "layer_types": ["linear_attention"] * 48},
            "layer_types",
            "full_attention_interval",
        ),
        (
            "command-a-111B",
            {"sliding_window_pattern": 4, "layer_types": (["sliding_attention"] * 7 + ["full_attention"]) * 8},
            "layer_types",
            "sliding_window_pattern",
        ),
        (
            "exaone-4.0-32B",
            {"sliding_window_pattern": "LLLG", "layer_types": ["sliding_attention", "full_attention"] * 32},
            "layer_types",
            "sliding_window_pattern",
        ),
        ("lfm2-1.2B", {"full_attn_idxs": [0], "layer_types": ["conv"] * 16}, "layer_types", "full_attn_idxs"),
        (
            "minimax-M1",
            {"attn_type_list": [0] * 80, "layer_types": ["full_attention"] * 80},
            "attn_type_list",
            "layer_types",
        ),
        (
            "minimax-M3",
            {"mlp_layer_types": ["dense"] * 60, "moe_layer_freq": [1] * 60},
            "mlp_layer_types",
            "moe_layer_freq",
        ),
        (
            "step-3.7-flash",
            {"mlp_layer_types": ["dense"] * 45, "moe_layers_enum": "3,4"},
            "mlp_layer_types",
            "moe_layers_enum",
        ),
        (
            "deepseek-v4-flash",
            {"layer_types": ["sliding_attention"] * 43, "compress_ratios": [4] * 43},
            "layer_types",
            "compress_ratios",
        ),
        (
            "nemotron-3-nano-30B-A3B",
            {"layers_block_type": ["mlp"] * 52},
            "layers_block_type",
            "hybrid_override_pattern",
        ),
    ],
)
def test_keys_that_contradict_each_other_about_a_layer_are_one_sentence_naming_both(
    name: str, keys: dict[str, Any], first: str, second: str, tmp_path: Path
) -> None:
    with pytest.raises(models.ModelFileError, match=f"'{first}' and '{second}' contradict each other: layer ") as found:
        read(changed(name, **keys), tmp_path)
    assert str(found.value).count("\n") == 0


@pytest.mark.parametrize(
    ("name", "model_type", "key", "published"),
    [
        ("deepseek-v3", "kimi_k2", "first_k_dense_replace", "Kimi K2 has 1."),
        ("kimi-linear-48B-A3B", "kimi_linear", "first_k_dense_replace", "Kimi Linear 48B and K3 have 1."),
        ("dots.llm1", "dots1", "first_k_dense_replace", "dots.llm1 has 1."),
    ],
)
def test_an_assumed_value_that_is_not_the_published_one_names_both(
    name: str, model_type: str, key: str, published: str, tmp_path: Path
) -> None:
    config = changed(name, **{key: ..., "model_type": model_type})["config"]
    (note,) = [each for each in read({"config": config}, tmp_path).notes if each.startswith(key)]
    assert " is assumed, the default of its configuration class. " in note
    assert note.endswith(published)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_heads_and_layers_that_a_file_leaves_out_are_noted_or_refused(row: dict[str, Any]) -> None:
    """Number of key-value heads, dense first layers, experts of every token: no default of them is silent."""
    published = models.parameter_counts(models.from_hugging_face(row["config"]))
    inner = row["config"].get("text_config", row["config"])
    for key in ("num_key_value_heads", "first_k_dense_replace", "n_shared_experts", "q_lora_rank", "index_topk"):
        if inner.get(key) is None:
            continue
        left = {each: value for each, value in inner.items() if each != key}
        document = {**row["config"], "text_config": left} if "text_config" in row["config"] else left
        if reason := refusal(document):
            assert key in reason
            continue
        found = models.from_hugging_face(document)
        is_noted = any(note.startswith(f"{key} is not in the file; ") for note in found.notes)
        assert is_noted or models.parameter_counts(found) == published, key


SILENT = {
    "head_dim": "latent attention has widths of its own",
    "num_key_value_heads": "latent attention has as many as query heads",
    "intermediate_size": "no layer has an ordinary MLP",
    "n_group": "groups limit the choice of experts",
    "topk_group": "groups limit the choice of experts",
    "max_position_embeddings": "positions have no weights",
    "sliding_window": "no layer has a window",
    "mamba_expand": "the inner width is stated",
    "first_k_dense_replace": "the file lists the layers",
    "index_topk_freq": "the file lists the layers with indexers",
    "index_skip_topk_offset": "the file lists the layers with indexers",
    "intermediate_size_mlp": "no layer has an ordinary MLP",
    "n_shared_experts": "share_expert_dim is the width of all of them",
    "short_conv_kernel_size": "linear_conv_kernel_dim is stated",
    "qk_head_dim": "the sum of both parts of a head, which are stated",
    "qk_rope_head_dim": "a part of the stated width of a head",
    "time_step_rank": "Mamba-2 has no such rank",
    "top_k": "of the choice of words",
    "vocab_size_per_layer_input": "no layer has an input of its own",
}
"""Keys of shapes without effect in some families, and why."""
OF_SHAPES = re.compile(
    r"hidden_size|num_hidden_layers|num_layers|vocab_size|heads|head_dim|intermediate|ffn_hidden|rank|experts$|_state|"
    r"conv|kernel|d_model|n_layer|first_k_dense|moe_k$|top_?k|per_tok"
)
"""Names of numbers that weights, or the weights that a token passes, depend on."""
UNREAD_KEYS = re.compile(
    r"_token|mtp|predict|routed_scaling|image|vision|audio|output_router|num_experts_to_offload|moe_router"
)


def describe_change(config: dict[str, Any], changes: dict[str, Any]) -> Any:
    """What a changed configuration is read as: its shape, or the sentence of its refusal."""
    inner = {**config.get("text_config", config), **changes}
    document = {**config, "text_config": inner} if "text_config" in config else inner
    try:
        found = models.from_hugging_face(document)
        return found.architecture or found.layers
    except models.ModelFileError as refused:
        return str(refused)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_a_changed_shape_is_another_model_or_refused(row: dict[str, Any]) -> None:
    """Never the same shape: a number that is not read would give another model's figures."""
    config = {key: value for key, value in row["config"].items() if key != "vision_config"}
    inner, before = config.get("text_config", config), describe_change(config, {})
    assert not isinstance(before, str)
    silent = []
    for key, value in inner.items():
        if isinstance(value, bool) or not isinstance(value, int) or not value:
            continue
        if not OF_SHAPES.search(key) or UNREAD_KEYS.search(key):
            continue
        after = describe_change(config, {key: 2 * value})
        if after == before:
            silent.append(key)
        elif isinstance(after, str):
            assert after.count("\n") == 0
    assert set(silent) <= set(SILENT), silent


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_a_list_of_layers_that_does_not_fit_is_refused(row: dict[str, Any]) -> None:
    config = {key: value for key, value in row["config"].items() if key != "vision_config"}
    inner, before = config.get("text_config", config), describe_change(config, {})
    layers = inner.get("num_hidden_layers", 0)
    for key, value in inner.items():
        if isinstance(value, list) and len(value) >= layers > 0 and key != "no_rope_layers":
            for other in ([*value, *value], [*value[:-1], "quantum"], value[: len(value) // 2]):
                words = describe_change(config, {key: other})
                assert words == before or (isinstance(words, str) and key in words), (key, words)
    for many in (10**6, 10**9):
        key = next((each for each in ("num_hidden_layers", "num_layers") if each in inner), None)
        assert key is None or f"'{key}'" in str(describe_change(config, {key: many}))[:400].replace("text_config.", "")


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("ling-1T", "bailing_moe_v2"),
        ("glm-5.3-flash", "glm5_next"),
        ("glm4v_moe_text (class defaults)", "glm4v_moe"),
        ("mistral-large-4-1T-A52B", "mistral_large4"),
    ],
)
def test_a_language_model_may_be_named_by_the_whole(name: str, other: str, tmp_path: Path) -> None:
    config = changed(name)["config"]
    inner = {key: value for key, value in config.items() if key not in ("model_type", "attention_bias")}
    inside = read({"config": {"model_type": other, "text_config": inner}}, tmp_path)
    own = read({"config": {**inner, "model_type": config["model_type"]}}, tmp_path)
    assert (inside.architecture, inside.layers) == (own.architecture, own.layers)
