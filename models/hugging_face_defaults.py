"""Shapes that a config.json leaves out, by family.

Hugging Face Transformers then takes the default of the family's configuration class, which is seldom a rule such as "as
many key as query heads". Source: its version 5.24.0 (`models/*/configuration_*.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["CLASS_DEFAULTS", "PUBLISHED_OTHERWISE"]

CLASS_DEFAULTS: Final[Mapping[str, Mapping[str, int | bool]]] = {
    "axk1": {"q_lora_rank": 1536, "n_routed_experts": 192, "n_shared_experts": 1, "first_k_dense_replace": 1},
    "bailing_hybrid": {
        "num_experts": 512,
        "num_experts_per_tok": 8,
        "n_shared_experts": 1,
        "first_k_dense_replace": 2,
        "num_nextn_predict_layers": 1,
    },
    "bamba": {"num_key_value_heads": 8},
    "deepseek_v2": {
        "q_lora_rank": 1536,
        "n_routed_experts": 64,
        "n_shared_experts": 2,
        "first_k_dense_replace": 0,
    },
    "deepseek_v3": {
        "q_lora_rank": 1536,
        "n_routed_experts": 256,
        "n_shared_experts": 1,
        "n_group": 8,
        "topk_group": 4,
        "first_k_dense_replace": 3,
    },
    "deepseek_v32": {
        "q_lora_rank": 1536,
        "n_routed_experts": 256,
        "n_shared_experts": 1,
        "n_group": 8,
        "topk_group": 4,
        "first_k_dense_replace": 3,
        "index_topk": 2048,
    },
    "deepseek_v4": {"n_shared_experts": 1, "hc_mult": 4},
    "dots1": {"num_key_value_heads": 32, "n_shared_experts": 0, "first_k_dense_replace": 0},
    "ernie4_5": {"num_key_value_heads": 2, "head_dim": 128},
    "ernie4_5_moe": {"num_key_value_heads": 4, "moe_num_shared_experts": 2},
    "exaone4": {"num_key_value_heads": 32, "sliding_window_pattern": 4},
    "exaone_moe": {
        "num_key_value_heads": 32,
        "num_experts": 64,
        "n_shared_experts": 1,
        "first_k_dense_replace": 1,
        "sliding_window_pattern": 4,
        "sliding_window": 4096,
    },
    "falcon_h1": {"num_key_value_heads": 8},
    "gemma": {"num_key_value_heads": 16, "head_dim": 256},
    "gemma2": {"num_key_value_heads": 4, "head_dim": 256, "sliding_window": 4096},
    "gemma3n_text": {"num_key_value_heads": 2, "head_dim": 256, "num_kv_shared_layers": 15},
    "gemma4_text": {"num_key_value_heads": 4, "head_dim": 256, "global_head_dim": 512},
    "glm4": {"num_key_value_heads": 2, "head_dim": 128},
    "glm4_moe": {"num_key_value_heads": 8, "n_shared_experts": 1, "first_k_dense_replace": 1},
    "glm4_moe_lite": {
        "q_lora_rank": 768,
        "n_routed_experts": 64,
        "n_shared_experts": 1,
        "first_k_dense_replace": 1,
    },
    "glm4v_moe_text": {
        "num_key_value_heads": 8,
        "n_shared_experts": 1,
        "first_k_dense_replace": 1,
        "attention_bias": True,
    },
    "glm_moe_dsa": {
        "q_lora_rank": 2048,
        "n_routed_experts": 256,
        "n_shared_experts": 1,
        "first_k_dense_replace": 3,
        "index_topk": 2048,
    },
    "gpt_oss": {"num_key_value_heads": 8, "head_dim": 64},
    "granite": {"tie_word_embeddings": False},
    "granitemoehybrid": {"tie_word_embeddings": False, "num_local_experts": 8},
    "hunyuan_v1_dense": {"tie_word_embeddings": False},
    "hunyuan_v1_moe": {"tie_word_embeddings": False},
    "hy_v3": {
        "num_key_value_heads": 8,
        "head_dim": 128,
        "num_shared_experts": 1,
        "first_k_dense_replace": 1,
    },
    "jamba": {"num_key_value_heads": 8},
    "kimi_linear": {"num_shared_experts": 1, "first_k_dense_replace": 0},
    "kimi_k2": {"q_lora_rank": 1536, "n_shared_experts": 1, "first_k_dense_replace": 3},  # DeepSeek-V3's class
    "lfm2": {"num_key_value_heads": 8},
    "lfm2_moe": {
        "num_key_value_heads": 8,
        "num_dense_layers": 2,
        "conv_L_cache": 3,
        "num_experts": 32,
        "num_experts_per_tok": 4,
    },
    "llama4_text": {"num_key_value_heads": 8, "head_dim": 128, "attention_chunk_size": 8192},
    "longcat_flash": {"q_lora_rank": 1536, "zero_expert_num": 256},
    "mimo_v2_flash": {"num_key_value_heads": 4, "head_dim": 192},
    "minimax": {"num_key_value_heads": 8},
    "minimax_m2": {"num_key_value_heads": 8, "head_dim": 128},
    "ministral3": {"num_key_value_heads": 8, "head_dim": 128},
    "mistral": {"num_key_value_heads": 8},
    "mistral4": {"q_lora_rank": 1024, "n_routed_experts": 128, "n_shared_experts": 1},
    "mixtral": {"num_key_value_heads": 8},
    "nemotron_h": {
        "num_key_value_heads": 8,
        "n_shared_experts": 1,
        "moe_shared_expert_intermediate_size": 7688,
    },
    "phimoe": {"num_key_value_heads": 8},
    "qwen2": {"num_key_value_heads": 32},
    "qwen2_moe": {"num_key_value_heads": 16},
    "qwen3": {"num_key_value_heads": 32, "head_dim": 128},
    "qwen3_5_moe_text": {"num_key_value_heads": 2, "head_dim": 256},
    "qwen3_5_text": {"num_key_value_heads": 4, "head_dim": 256},
    "qwen3_moe": {"num_key_value_heads": 4},
    "qwen3_next": {"num_key_value_heads": 2, "head_dim": 256, "num_experts": 512},
    "qwen3_vl_moe_text": {"num_key_value_heads": 16},
    "qwen3_vl_text": {"num_key_value_heads": 32, "head_dim": 128},
    "sarvam_mla": {"n_routed_experts": 128, "n_shared_experts": 1, "first_k_dense_replace": 1},
    "sarvam_moe": {
        "num_key_value_heads": 4,
        "n_routed_experts": 128,
        "n_shared_experts": 1,
        "first_k_dense_replace": 1,
        "head_dim": 64,
    },
    "seed_oss": {"num_key_value_heads": 8, "head_dim": 128},
    "smollm3": {"num_key_value_heads": 4},
    "solar_open": {"num_key_value_heads": 8, "n_shared_experts": 1, "head_dim": 128},
    "starcoder2": {"num_key_value_heads": 2},
    "step3p5": {"num_key_value_heads": 8, "head_dim": 128, "share_expert_dim": 1280},
    "youtu": {"q_lora_rank": 1536, "tie_word_embeddings": True},
}
"""By `model_type`: keys that this package would otherwise take from a rule of its own."""

PUBLISHED_OTHERWISE: Final[Mapping[str, Mapping[str, str]]] = {
    "deepseek_v2": {"first_k_dense_replace": "DeepSeek-V2 and V2-Lite have 1"},
    "dots1": {"first_k_dense_replace": "dots.llm1 has 1", "n_shared_experts": "dots.llm1 has 2"},
    "kimi_k2": {"first_k_dense_replace": "Kimi K2 has 1"},
    "kimi_linear": {"first_k_dense_replace": "Kimi Linear 48B and K3 have 1"},
}
"""By `model_type`: published values that differ from the class default. Source: the models' own config.json."""
