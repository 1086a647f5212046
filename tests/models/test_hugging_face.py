"""Reading Hugging Face's config.json: the families agree with the library, the rest is refused in one sentence."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import models
from tests.models.test_published_configurations import CLASS_SHAPES, ROWS
from tests.texts import any_text


def llama(
    hidden: int, ffn: int, layers: int, heads: int, kv_heads: int, vocab: int, seq: int, **more: Any
) -> dict[str, Any]:
    """The keys that most configurations share."""
    return {
        "hidden_size": hidden,
        "intermediate_size": ffn,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "vocab_size": vocab,
        "max_position_embeddings": seq,
        **more,
    }


def pattern(layers: int, every: int, kind: str = "sliding_attention") -> list[str]:
    return ["full_attention" if layer % every == 0 else kind for layer in range(1, layers + 1)]


MLA = {"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}
CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama-3.1-8B": ("llama", llama(4096, 14336, 32, 32, 8, 128256, 131072, rope_theta=500000.0)),
    "llama-3.2-1B": ("llama", llama(2048, 8192, 16, 32, 8, 128256, 131072, head_dim=64, tie_word_embeddings=True)),
    "llama-7B": ("llama", {k: v for k, v in llama(4096, 11008, 32, 32, 32, 32000, 2048).items() if "key" not in k}),
    "mistral-7B-v0.1": ("mistral", llama(4096, 14336, 32, 32, 8, 32000, 32768, sliding_window=4096)),
    "mistral-7B-v0.3": ("mistral", llama(4096, 14336, 32, 32, 8, 32768, 32768, sliding_window=None)),
    "mixtral-8x7B": (
        "mixtral",
        llama(4096, 14336, 32, 32, 8, 32000, 32768, num_local_experts=8, num_experts_per_tok=2),
    ),
    "qwen2.5-7B": (
        "qwen2",
        llama(
            3584,
            18944,
            28,
            28,
            4,
            152064,
            131072,
            use_sliding_window=False,
            sliding_window=131072,
            max_window_layers=28,
        ),
    ),
    "qwen3-8B": ("qwen3", llama(4096, 12288, 36, 32, 8, 151936, 40960, head_dim=128, attention_bias=False)),
    "qwen2-57B-A14B": (
        "qwen2_moe",
        llama(
            3584,
            18944,
            28,
            28,
            4,
            151936,
            131072,
            num_experts=64,
            num_experts_per_tok=8,
            moe_intermediate_size=2560,
            shared_expert_intermediate_size=20480,
            decoder_sparse_step=1,
        ),
    ),
    "qwen3-30B-A3B": (
        "qwen3_moe",
        llama(
            2048,
            6144,
            48,
            32,
            4,
            151936,
            40960,
            head_dim=128,
            num_experts=128,
            num_experts_per_tok=8,
            moe_intermediate_size=768,
            decoder_sparse_step=1,
            mlp_only_layers=[],
        ),
    ),
    "gemma-7B": ("gemma", llama(3072, 24576, 28, 16, 16, 256000, 8192, head_dim=256)),
    "gemma-2-9B": ("gemma2", llama(3584, 14336, 42, 16, 8, 256000, 8192, head_dim=256, sliding_window=4096)),
    "gemma-3-1B": (
        "gemma3_text",
        llama(1152, 6912, 26, 4, 1, 262144, 32768, head_dim=256, sliding_window=512, layer_types=pattern(26, 6)),
    ),
    "phi-2": ("phi", llama(2560, 10240, 32, 32, 32, 51200, 2048)),
    "phi-3-mini": ("phi3", llama(3072, 8192, 32, 32, 32, 32064, 4096, sliding_window=2048)),
    "phi-4-mini": (
        "phi3",
        llama(3072, 8192, 32, 24, 8, 200064, 131072, tie_word_embeddings=True, sliding_window=262145),
    ),
    "falcon-7B": (
        "falcon",
        {
            "hidden_size": 4544,
            "num_hidden_layers": 32,
            "num_attention_heads": 71,
            "vocab_size": 65024,
            "multi_query": True,
            "parallel_attn": True,
            "new_decoder_architecture": False,
            "bias": False,
            "alibi": False,
        },
    ),
    "falcon-40B": (
        "falcon",
        {
            "hidden_size": 8192,
            "num_hidden_layers": 60,
            "num_attention_heads": 128,
            "num_kv_heads": 8,
            "vocab_size": 65024,
            "parallel_attn": True,
            "new_decoder_architecture": True,
            "bias": False,
            "alibi": False,
        },
    ),
    "gpt2-xl": (
        "gpt2",
        {"n_embd": 1600, "n_layer": 48, "n_head": 25, "n_inner": None, "n_positions": 1024, "vocab_size": 50257},
    ),
    "pythia-12B": (
        "gpt_neox",
        llama(5120, 20480, 36, 40, 40, 50688, 2048, tie_word_embeddings=False, rotary_emb_base=10000),
    ),
    "opt-6.7B": (
        "opt",
        {
            "hidden_size": 4096,
            "ffn_dim": 16384,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "vocab_size": 50272,
            "max_position_embeddings": 2048,
            "word_embed_proj_dim": 4096,
        },
    ),
    "bloom-7B1": (
        "bloom",
        {"hidden_size": 4096, "n_layer": 30, "n_head": 32, "vocab_size": 250880, "seq_length": 2048},
    ),
    "mpt-30B-released": (
        "mpt",
        {
            "d_model": 7168,
            "n_layers": 48,
            "n_heads": 64,
            "vocab_size": 50432,
            "max_seq_len": 8192,
            "expansion_ratio": 4,
            "no_bias": True,
            "attn_config": {"alibi": True, "qk_ln": False},
        },
    ),
    "nemotron-4-15B": ("nemotron", llama(6144, 24576, 32, 48, 8, 256000, 4096, head_dim=128)),
    "olmo-7B": ("olmo", llama(4096, 11008, 32, 32, 32, 50304, 2048)),
    "olmo-2-7B": ("olmo2", llama(4096, 11008, 32, 32, 32, 100352, 4096)),
    "olmo-3-32B": (
        "olmo3",
        llama(5120, 27648, 64, 40, 8, 100278, 65536, sliding_window=4096, layer_types=pattern(64, 4)),
    ),
    "smollm3-3B": ("smollm3", llama(2048, 11008, 36, 16, 4, 128256, 65536, layer_types=["full_attention"] * 36)),
    "deepseek-v2-lite": (
        "deepseek_v2",
        llama(
            2048,
            10944,
            27,
            16,
            16,
            102400,
            163840,
            q_lora_rank=None,
            **MLA,
            n_routed_experts=64,
            num_experts_per_tok=6,
            moe_intermediate_size=1408,
            n_shared_experts=2,
            first_k_dense_replace=1,
            moe_layer_freq=1,
        ),
    ),
    "deepseek-v3": (
        "deepseek_v3",
        llama(
            7168,
            18432,
            61,
            128,
            128,
            129280,
            163840,
            q_lora_rank=1536,
            **MLA,
            n_routed_experts=256,
            num_experts_per_tok=8,
            moe_intermediate_size=2048,
            n_shared_experts=1,
            first_k_dense_replace=3,
            num_nextn_predict_layers=1,
            n_group=8,
            topk_group=4,
        ),
    ),
    "glm-5": (
        "glm_moe_dsa",
        llama(
            6144,
            12288,
            78,
            64,
            64,
            154880,
            202752,
            q_lora_rank=2048,
            **{**MLA, "qk_nope_head_dim": 192, "v_head_dim": 256},
            n_routed_experts=256,
            num_experts_per_tok=8,
            moe_intermediate_size=2048,
            n_shared_experts=1,
            head_dim=64,
            first_k_dense_replace=3,
            num_nextn_predict_layers=1,
            index_n_heads=32,
            index_head_dim=128,
            index_topk=2048,
        ),
    ),
    "gpt-oss-20B": (
        "gpt_oss",
        llama(
            2880,
            2880,
            24,
            64,
            8,
            201088,
            131072,
            head_dim=64,
            num_local_experts=32,
            num_experts_per_tok=4,
            sliding_window=128,
            layer_types=pattern(24, 2),
            attention_bias=True,
        ),
    ),
    "llama-4-maverick": (
        "llama4",
        {
            "text_config": llama(
                5120,
                8192,
                48,
                40,
                8,
                202048,
                1048576,
                head_dim=128,
                intermediate_size_mlp=16384,
                num_local_experts=128,
                num_experts_per_tok=1,
                interleave_moe_layer_step=2,
                attention_chunk_size=8192,
                use_qk_norm=False,
                no_rope_layers=[int(layer % 4 > 0) for layer in range(1, 49)],
            )
        },
    ),
    "dbrx-132B": (
        "dbrx",
        {
            "d_model": 6144,
            "n_layers": 40,
            "n_heads": 48,
            "vocab_size": 100352,
            "max_seq_len": 32768,
            "attn_config": {"kv_n_heads": 8, "rope_theta": 500000},
            "ffn_config": {"ffn_hidden_size": 10752, "moe_num_experts": 16, "moe_top_k": 4},
        },
    ),
}
"""By library name: what the released config.json says of the same model, its other keys left out."""

LLAMA = {"model_type": "llama", **CONFIGS["llama-3.1-8B"][1]}
PHI = {**LLAMA, "model_type": "phi3"}
UNSHAPED = {"vocab", "max_seq", "rope_theta", "params_published_b", "params_active_published_b"}


def fault(document: object, where: str = "config.json") -> str:
    with pytest.raises(models.ModelFileError) as caught:
        models.from_hugging_face(document, where=where)
    message = str(caught.value)
    assert message.startswith(where)
    assert message.endswith(".")
    assert "\n" not in message
    assert len(message) < 1200
    return message


@pytest.mark.parametrize("name", CONFIGS)
def test_a_config_gives_the_shape_that_the_library_has_from_elsewhere(name: str) -> None:
    model_type, content = CONFIGS[name]
    read = models.from_hugging_face({"model_type": model_type, **content}, name)
    recorded = models.load(name)
    assert read.architecture is not None
    assert recorded.architecture is not None
    ours, theirs = read.architecture.model_dump(), recorded.architecture.model_dump()
    compared = {key for key in theirs if key not in UNSHAPED and theirs[key] is not None}
    assert {key: ours[key] for key in compared} == {key: theirs[key] for key in compared}
    # nothing that the library does not have, unless it does not say
    said = {key for key in ours if ours[key] not in (None, False) and theirs[key] is None}
    assert said <= {"qkv_bias", "linear_bias", "norm", "positions", "rope_theta"}
    assert models.load_document(models.to_document(read)) == read


def test_gemma_3_leaves_defaults_out_of_its_language_part() -> None:
    part = {"hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34, "sliding_window": 1024}
    model = models.from_hugging_face({"model_type": "gemma3", "text_config": part}, "gemma")
    recorded = models.load("gemma-3-4B").architecture
    assert model.architecture is not None
    assert recorded is not None
    for key in ("heads", "kv_heads", "head_dim", "windows", "qk_norm", "norms_per_block", "tied_embeddings"):
        assert getattr(model.architecture, key) == getattr(recorded, key)
    assert model.left_out == ("Only the language model is counted: what reads images or sound is left out.",)
    assert (
        "num_attention_heads is not in the file; 8 is assumed, the default of its configuration class." in model.notes
    )


def test_files_are_recognised_by_their_keys(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**LLAMA, "_name_or_path": "meta-llama/Llama-3.1-8B/", "torch_dtype": "bfloat16"}))
    model = models.load(file)
    assert (model.name, model.family, model.hidden) == ("Llama-3.1-8B", "Llama", 4096)
    assert model.source == "a Hugging Face config.json (model_type llama)"
    other = tmp_path / "mine.json"
    other.write_text(json.dumps(LLAMA))
    assert models.load(other).name == "mine"


@pytest.mark.parametrize(
    ("classes", "model_type"),
    [
        ("LlamaForCausalLM", "llama"),
        ("GPTNeoXForCausalLM", "gpt_neox"),
        ("GPT2LMHeadModel", "gpt2"),
        ("DeepseekV3ForCausalLM", "deepseek_v3"),
        ("GptOssForCausalLM", "gpt_oss"),
        ("Qwen3MoeForCausalLM", "qwen3_moe"),
    ],
)
def test_architectures_stand_in_for_a_model_type(classes: str, model_type: str) -> None:
    content = next(content for kind, content in CONFIGS.values() if kind == model_type)
    named = models.from_hugging_face({"architectures": [classes], **content}, "x")
    assert named == models.from_hugging_face({"model_type": model_type, **content}, "x")


@pytest.mark.parametrize(("longest", "taken"), [(2048, 2048), (8192, 8192), (16384, 4096), (10485760, 4096)])
def test_a_long_context_is_not_taken_for_the_training_length(longest: int, taken: int) -> None:
    model = models.from_hugging_face({**LLAMA, "max_position_embeddings": longest})
    assert model.seq_size == taken
    assert model.seq_size_basis
    assert models.from_hugging_face({**LLAMA, "max_position_embeddings": longest}, seq_size=1024).seq_size == 1024


def test_every_type_is_tested() -> None:
    tested = {kind for kind, _ in CONFIGS.values()}
    also = {"deepseek_v32", "kimi_k2", "gemma3", "llama4_text", "gpt_bigcode", "starcoder2"}
    also |= {"glm4_moe", "minimax_m2", "qwen3_vl_moe_text", "qwen3_vl_text"}  # see test_saved_configurations
    also |= {kind for row in ROWS for kind in _types(row["config"])}  # see test_published_configurations
    also |= {"minimax_m3_vl_text"}
    also |= {"bailing_moe_v2", "glm4v_moe", "glm5_next", "mistral_large4"}  # there, too
    also |= {config["model_type"] for config, _, _ in CLASS_SHAPES}
    also |= {
        "minimax",
        "step3p5",
        "gemma3n",
        "gemma4",
        "qwen3_5",
        "qwen3_5_moe",
        "minimax_m3_vl",
    }  # other spellings of those
    assert set(models.hugging_face_types()) <= tested | also


def _types(config: dict[str, Any]) -> set[str]:
    return {str(each["model_type"]) for each in (config, config.get("text_config") or {}) if "model_type" in each}


def test_starcoders() -> None:
    first = {"n_embd": 6144, "n_layer": 40, "n_head": 48, "n_inner": 24576, "n_positions": 8192, "vocab_size": 49152}
    model = models.from_hugging_face({"model_type": "gpt_bigcode", **first})
    assert model.parameters == pytest.approx(15.5e9, rel=0.01)
    second = llama(3072, 12288, 30, 24, 2, 49152, 16384, sliding_window=4096, use_bias=True)
    model = models.from_hugging_face({"model_type": "starcoder2", **second})
    assert model.parameters == pytest.approx(3.03e9, rel=0.01)


# --- refusals


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"model_type": "mamba2"}, "key 'num_heads' is missing (read as a Hugging Face config, model_type 'mamba2')"),
        ({"model_type": "rwkv"}, "model_type 'rwkv' is not among the families that can be read; supported are apertus"),
        ({"model_type": "bert"}, "model_type 'bert' is not among the families that can be read"),
        ({"model_type": "qwen3moe"}, "did you mean 'qwen3_moe'"),
        ({"architectures": ["T5ForConditionalGeneration"]}, "model_type 'T5ForConditionalGeneration' is not among"),
        ({"model_type": 5}, "'model_type' is 5; it must be one of apertus"),
        ({"architectures": []}, "'model_type' is null; it must be one of"),
        ([], "is []; a config.json must be an object"),
        ({"model_type": "llama"}, "key 'hidden_size' is missing (read as a Hugging Face config, model_type 'llama')"),
        ({**LLAMA, "hidden_size": "4096"}, "'hidden_size' is '4096'; it must be a whole number"),
        ({**LLAMA, "hidden_size": True}, "'hidden_size' is true; it must be a whole number"),
        ({**LLAMA, "hidden_size": 0}, "'hidden_size' is 0; it must be a whole number from 1"),
        ({**LLAMA, "hidden_size": 10**30}, "it must be a whole number from 1 to 1,073,741,824"),
        ({**LLAMA, "num_attention_heads": 0}, "'num_attention_heads' is 0; it must be a whole number from 1"),
        ({**LLAMA, "num_attention_heads": 33}, "'num_attention_heads' is 33, which does not divide 'hidden_size' 4096"),
        ({**LLAMA, "num_key_value_heads": 5}, "has 5 key/value heads for 32 query heads"),
        ({**LLAMA, "tie_word_embeddings": "no"}, "'tie_word_embeddings' is 'no'; it must be true or false"),
        ({**LLAMA, "rope_parameters": 5}, "'rope_parameters' is 5; it must be an object with named keys"),
        ({**LLAMA, "rope_theta": "big"}, "'rope_theta' is 'big'; it must be a number"),
        ({**LLAMA, "mlp_bias": True}, "'mlp_bias' is true; these biases are not covered"),
        ({**PHI, "layer_types": "all"}, "'layer_types' is 'all'; it must be a list"),
        ({**PHI, "layer_types": ["full_attention"]}, "'layer_types' has 1 entries for 'num_hidden_layers' 32"),
        ({**PHI, "layer_types": ["linear_attention"] * 32}, "'layer_types' has 'linear_attention'"),
        (
            {**PHI, "layer_types": pattern(32, 2)},
            "'layer_types' has windowed layers, but there is no window",
        ),
        (
            {**PHI, "sliding_window": 9, "layer_types": pattern(32, 2)[::-1]},
            "'layer_types' does not repeat with full attention in every n-th layer",
        ),
        (
            {**LLAMA, "model_type": "qwen2", "use_sliding_window": True, "sliding_window": 9, "max_window_layers": 8},
            "a window only from layer 9 on cannot be represented",
        ),
        (
            {"model_type": "qwen3_moe", **CONFIGS["qwen3-30B-A3B"][1], "mlp_only_layers": [0, 5]},
            "'mlp_only_layers' lists other than the first layers",
        ),
        ({"model_type": "opt", **CONFIGS["opt-6.7B"][1], "word_embed_proj_dim": 512}, "'word_embed_proj_dim' is 512"),
        ({"model_type": "deepseek_v3", **CONFIGS["deepseek-v3"][1], "moe_layer_freq": 2}, "'moe_layer_freq' is not 1"),
        (
            {"model_type": "llama4_text", **CONFIGS["llama-4-maverick"][1]["text_config"], "no_rope_layers": [1, 0]},
            "'no_rope_layers' does not repeat every 4 layers",
        ),
        (
            {"model_type": "llama4_text", **CONFIGS["llama-4-maverick"][1]["text_config"], "moe_layers": [0, 1, 5]},
            "'moe_layers' does not repeat every 2 layers",
        ),
        ({"model_type": "mpt", **CONFIGS["mpt-30B-released"][1], "attn_config": []}, "'attn_config' is []"),
    ],
)
def test_what_cannot_be_read_is_said(document: object, words: str) -> None:
    assert words in fault(document)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | any_text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(any_text(max_size=12), inner, max_size=4),
    max_leaves=8,
)


@settings(max_examples=13 * settings.default.max_examples)
@given(st.data())
def test_any_change_to_a_config_is_a_model_or_a_clear_sentence(data: st.DataObject) -> None:
    model_type, content = data.draw(st.sampled_from(list(CONFIGS.values())))
    document = {"model_type": model_type, **copy.deepcopy(content)}
    place: dict[str, Any] = document
    key = data.draw(st.sampled_from(list(place)))
    if isinstance(place[key], dict) and data.draw(st.booleans()):
        place = place[key]
        key = data.draw(st.sampled_from(list(place)))
    place[key] = data.draw(JSON | st.integers(0, 2**40))
    try:
        model = models.load_document(document, "config.json")
    except models.ModelFileError:
        with pytest.raises(models.ModelFileError) as caught:
            models.load_document(document, "config.json")
        assert str(caught.value).startswith("config.json")
        assert str(caught.value).endswith(".")
    else:
        assert models.load_document(models.to_document(model)) == model
