"""Number keys of each family of Hugging Face configurations, and the choices that its model code fixes.

Keys, defaults and fixed choices come from the family's configuration and modelling files in Hugging Face Transformers;
each function turns one config.json into the fields of an `Architecture`.
"""

from __future__ import annotations

from typing import Any

from models.documents import shown
from models.hugging_face_config import HuggingFaceConfig

Fields = dict[str, Any]


def decoder(
    config: HuggingFaceConfig,
    *,
    tied: bool,
    norm: str = "RMSNorm",
    head_dim: int | None = None,
    ffn: int | None = None,
    biased_output: bool = True,
) -> Fields:
    """Return the keys that most families share.

    Args:
        config: the file.
        tied: the family's default for one matrix of embedding and head.
        norm: kind of norm.
        head_dim: width of a head by the family's own rule [elements].
        ffn: width of the MLP by the family's own rule [elements].
        biased_output: whether `attention_bias` is about the output of attention too.
    """
    bias = config.flag("attention_bias", False)
    if bias and biased_output:
        raise config.refuse(
            "'attention_bias' is true; a bias of the output of attention without one of the MLP cannot be represented"
        )
    hidden, heads = config.whole("hidden_size"), config.whole("num_attention_heads")
    vocab = config.whole("vocab_size")
    return {
        "hidden": hidden,
        "ffn": config.whole("intermediate_size") if ffn is None else ffn,
        "layers": config.whole("num_hidden_layers"),
        "heads": heads,
        "kv_heads": config.assumed("num_key_value_heads", heads, "one per attention head"),
        "head_dim": config.head_dim(hidden, heads) if head_dim is None else head_dim,
        "vocab": vocab,
        "vocab_padded": vocab,
        "max_seq": config.whole("max_position_embeddings"),
        "gated_mlp": True,
        "tied_embeddings": config.flag("tie_word_embeddings", tied),
        "qkv_bias": bias,
        "norm": norm,
        "parallel_residual": False,
        "positions": "rotary",
        "rope_theta": config.rope_theta(),
    }


def window(config: HuggingFaceConfig) -> int | None:
    """Return the sliding window [tokens]; None without one."""
    return config.whole("sliding_window") if config.has("sliding_window") else None


def read_llama(config: HuggingFaceConfig) -> Fields:
    """LLaMA and models of the same form: SmolLM2, TinyLlama, Falcon 3, CodeLlama."""
    return decoder(config, tied=False)


def read_smollm3(config: HuggingFaceConfig) -> Fields:
    """SmolLM3: as LLaMA, with tied embeddings; every fourth layer leaves out the rotation."""
    fields = decoder(config, tied=True)
    return {**fields, **config.windows(fields["layers"], window(config), 0)}


def read_mistral(config: HuggingFaceConfig) -> Fields:
    """Mistral: as LLaMA, with a window in all layers unless it is null."""
    fields = decoder(config, tied=False)
    seen = window(config) if "sliding_window" in config.content else config.usual("sliding_window", 4096)
    return {**fields, **config.windows(fields["layers"], seen)}


def read_qwen2(config: HuggingFaceConfig) -> Fields:
    """Qwen2 and 2.5: biases on query, key and value."""
    fields = decoder(config, tied=False, biased_output=False)
    return {**fields, "qkv_bias": config.flag("qkv_bias", True), **_qwen_windows(config, fields["layers"])}


def read_qwen3(config: HuggingFaceConfig) -> Fields:
    """Qwen3: norms on query and key."""
    fields = decoder(config, tied=False)
    return {**fields, "qk_norm": True, **_qwen_windows(config, fields["layers"])}


def _qwen_windows(config: HuggingFaceConfig, layers: int) -> Fields:
    if not config.flag("use_sliding_window", False):
        return {}
    first = config.whole("max_window_layers", default=layers)
    if 0 < first < layers and config.items("layer_types") is None:
        raise config.refuse(
            f"'max_window_layers' is {first}: a window only from layer {first + 1} on cannot be represented"
        )
    return config.windows(layers, window(config), None if first == 0 else 0)


def read_gemma(config: HuggingFaceConfig) -> Fields:
    """Gemma 1."""
    return decoder(config, tied=True)


def read_gemma2(config: HuggingFaceConfig) -> Fields:
    """Gemma 2: norms before and after attention and MLP, every second layer without window."""
    fields = decoder(config, tied=True)
    return {**fields, "norms_per_block": 4, **config.windows(fields["layers"], window(config), 2)}


def read_gemma3(text: HuggingFaceConfig) -> Fields:
    """Gemma 3, the language model: five windowed layers to one that sees everything.

    Files of its multimodal sizes leave out what equals the default of `Gemma3TextConfig`.
    """
    if text.flag("attention_bias", False):
        raise text.refuse("'attention_bias' is true, which is not covered for this family")
    heads, vocab = text.usual("num_attention_heads", 8), text.usual("vocab_size", 262_208)
    layers = text.whole("num_hidden_layers")
    every = text.whole("sliding_window_pattern", "_sliding_window_pattern", default=6)
    return {
        "hidden": text.whole("hidden_size"),
        "ffn": text.whole("intermediate_size"),
        "layers": layers,
        "heads": heads,
        "kv_heads": text.usual("num_key_value_heads", 4),
        "head_dim": text.usual("head_dim", 256),
        "vocab": vocab,
        "vocab_padded": vocab,
        "max_seq": text.usual("max_position_embeddings", 131_072),
        "gated_mlp": True,
        "tied_embeddings": text.flag("tie_word_embeddings", True),
        "qkv_bias": False,
        "qk_norm": True,
        "norm": "RMSNorm",
        "norms_per_block": 4,
        "parallel_residual": False,
        "positions": "rotary",
        "rope_theta": text.rope_theta(),
        **text.windows(layers, text.usual("sliding_window", 4096), every, "sliding_window_pattern"),
    }


def read_phi(config: HuggingFaceConfig) -> Fields:
    """Phi-1, 1.5 and 2: biases everywhere, one norm before attention and MLP side by side."""
    fields = decoder(config, tied=False, norm="LayerNorm", biased_output=False)
    config.left_out.append(f"The bias of its LM head, {fields['vocab']:,} weights, is not counted.")
    fixed = {"gated_mlp": False, "qkv_bias": True, "linear_bias": True, "parallel_residual": True, "norms_per_block": 1}
    return {**fields, **fixed, "qk_norm": config.flag("qk_layernorm", False)}


def read_phi3(config: HuggingFaceConfig) -> Fields:
    """Phi-3 and Phi-4: as LLaMA, with a window in all layers where one is given."""
    fields = decoder(config, tied=False)
    return {**fields, **config.windows(fields["layers"], window(config))}


def read_falcon(config: HuggingFaceConfig) -> Fields:
    """Falcon 7B, 40B and 180B."""
    hidden, heads = config.whole("hidden_size"), config.whole("num_attention_heads", "n_head")
    vocab = config.whole("vocab_size")
    grouped, parallel = config.flag("new_decoder_architecture", False), config.flag("parallel_attn", True)
    if grouped:
        kv_heads = config.whole("num_kv_heads", "n_head_kv", default=heads)
    else:
        kv_heads = 1 if config.flag("multi_query", True) else heads
    bias, alibi = config.flag("bias", False), config.flag("alibi", False)
    return {
        "hidden": hidden,
        "ffn": config.whole("ffn_hidden_size", default=4 * hidden),
        "layers": config.whole("num_hidden_layers", "n_layer"),
        "heads": heads,
        "kv_heads": kv_heads,
        "head_dim": config.head_dim(hidden, heads),
        "vocab": vocab,
        "vocab_padded": vocab,
        "max_seq": config.usual("max_position_embeddings", 2048),
        "gated_mlp": False,
        "tied_embeddings": config.flag("tie_word_embeddings", True),
        "qkv_bias": bias,
        "linear_bias": bias,
        "norm": "LayerNorm",
        "norms_per_block": 1 if parallel and not grouped else 2,
        "parallel_residual": parallel or grouped,
        "positions": "alibi" if alibi else "rotary",
        "rope_theta": None if alibi else config.rope_theta(),
    }


def _gpt2_like(config: HuggingFaceConfig, **keys: Any) -> Fields:
    """GPT-2's descendants: two-matrix MLP, biases, LayerNorm, as many key as query heads unless `keys` says so."""
    fields = {
        "kv_heads": keys["heads"],
        "head_dim": config.head_dim(keys["hidden"], keys["heads"]),
        "vocab_padded": keys["vocab"],
        "gated_mlp": False,
        "tied_embeddings": config.flag("tie_word_embeddings", True),
        "qkv_bias": True,
        "linear_bias": True,
        "norm": "LayerNorm",
        "parallel_residual": False,
    }
    return {**fields, **keys}


def read_gpt2(config: HuggingFaceConfig) -> Fields:
    """GPT-2."""
    hidden = config.whole("n_embd", "hidden_size")
    return _gpt2_like(
        config,
        hidden=hidden,
        ffn=config.whole("n_inner", default=4 * hidden),
        layers=config.whole("n_layer", "num_hidden_layers"),
        heads=config.whole("n_head", "num_attention_heads"),
        vocab=config.whole("vocab_size"),
        max_seq=config.whole("n_positions", "n_ctx"),
        positions="learned",
    )


def read_gpt_bigcode(config: HuggingFaceConfig) -> Fields:
    """StarCoder: GPT-2 with one key and value head."""
    fields = read_gpt2(config)
    return {**fields, "kv_heads": 1 if config.flag("multi_query", True) else fields["heads"]}


def read_gpt_neox(config: HuggingFaceConfig) -> Fields:
    """GPT-NeoX and Pythia."""
    if not config.flag("attention_bias", True):
        raise config.refuse("'attention_bias' is false; biases of the MLP alone cannot be represented")
    fields = decoder(config, tied=False, norm="LayerNorm", biased_output=False)
    theta = config.rope_theta()
    return {
        **fields,
        "gated_mlp": False,
        "qkv_bias": True,
        "linear_bias": True,
        "parallel_residual": config.flag("use_parallel_residual", True),
        "rope_theta": config.number("rotary_emb_base", theta),
    }


def read_opt(config: HuggingFaceConfig) -> Fields:
    """OPT; its table of positions has two rows more than positions, which are left out here."""
    hidden = config.whole("hidden_size")
    projected = config.whole("word_embed_proj_dim", default=hidden)
    if projected != hidden:
        raise config.refuse(f"'word_embed_proj_dim' is {projected}; an embedding narrower than {hidden} is not covered")
    bias = config.flag("enable_bias", True)
    if not config.flag("layer_norm_elementwise_affine", True):
        raise config.refuse("'layer_norm_elementwise_affine' is false; LayerNorms without weights are not covered")
    config.left_out.append(f"Two rows of its table of positions, {2 * hidden:,} weights, are not counted.")
    return _gpt2_like(
        config,
        hidden=hidden,
        ffn=config.whole("ffn_dim"),
        layers=config.whole("num_hidden_layers"),
        heads=config.whole("num_attention_heads"),
        vocab=config.whole("vocab_size"),
        max_seq=config.whole("max_position_embeddings"),
        positions="learned",
        qkv_bias=bias,
        linear_bias=bias,
    )


def read_bloom(config: HuggingFaceConfig) -> Fields:
    """BLOOM."""
    hidden = config.whole("hidden_size", "n_embed")
    config.left_out.append(f"The norm after its embedding, {2 * hidden:,} weights, is not counted.")
    return _gpt2_like(
        config,
        hidden=hidden,
        ffn=4 * hidden,
        layers=config.whole("n_layer", "num_hidden_layers"),
        heads=config.whole("n_head", "num_attention_heads"),
        vocab=config.whole("vocab_size"),
        max_seq=config.usual("seq_length", 2048),
        positions="alibi",
    )


def read_mpt(config: HuggingFaceConfig) -> Fields:
    """MPT."""
    hidden, heads = config.whole("d_model"), config.whole("n_heads")
    attention = config.part("attn_config")
    bias = not config.flag("no_bias", True)
    return _gpt2_like(
        config,
        hidden=hidden,
        ffn=config.whole("expansion_ratio", default=4) * hidden,
        layers=config.whole("n_layers"),
        heads=heads,
        kv_heads=attention.whole("kv_n_heads", default=heads),
        vocab=config.whole("vocab_size"),
        max_seq=config.whole("max_seq_len"),
        positions="alibi" if attention.flag("alibi", True) else "learned",
        qkv_bias=bias,
        linear_bias=bias,
        norm_shift=bias,
        qk_norm=attention.flag("qk_ln", False),
    )


def read_starcoder2(config: HuggingFaceConfig) -> Fields:
    """StarCoder 2."""
    fields = decoder(config, tied=True, norm="LayerNorm", biased_output=False)
    bias = config.flag("use_bias", True)
    windows = config.windows(fields["layers"], window(config))
    return {**fields, "gated_mlp": False, "qkv_bias": bias, "linear_bias": bias, **windows}


def read_nemotron(config: HuggingFaceConfig) -> Fields:
    """Nemotron-4: squared ReLU, so two matrices."""
    fields = decoder(config, tied=False, norm="LayerNorm")
    return {**fields, "gated_mlp": False}


def read_olmo(config: HuggingFaceConfig) -> Fields:
    """OLMo 1; its norms have no weights."""
    return {**decoder(config, tied=False, norm="LayerNorm"), "norm_scale": False}


def read_olmo2(config: HuggingFaceConfig) -> Fields:
    """OLMo 2 and 3: norms after attention and MLP, and on query and key; OLMo 3 with windows but every fourth layer."""
    fields = decoder(config, tied=False)
    windows = config.windows(fields["layers"], window(config), 4)
    return {**fields, "qk_norm": True, "qk_norm_over": "heads", **windows}


def read_mimo(config: HuggingFaceConfig) -> Fields:
    """MiMo 7B: as Qwen2, with blocks for multi-token prediction."""
    fields = {**read_qwen2(config), "qkv_bias": config.flag("attention_bias", True)}
    return {**fields, "prediction_layers": config.whole("num_nextn_predict_layers", default=0)}


def read_seed_oss(config: HuggingFaceConfig) -> Fields:
    """Seed-OSS: as LLaMA, with heads of their own width and biases of queries, keys and values."""
    fields = decoder(config, tied=False, biased_output=False)
    if config.flag("attention_out_bias", False):
        raise config.refuse("'attention_out_bias' is true; a bias of this product alone cannot be represented")
    return {**fields, "qkv_bias": config.flag("attention_bias", True)}


def read_hunyuan(config: HuggingFaceConfig) -> Fields:
    """Hunyuan V1: as LLaMA, with norms of queries and keys and tied embeddings."""
    fields = decoder(config, tied=True)
    return {**fields, "qk_norm": config.flag("use_qk_norm", True)}


def read_cohere2(config: HuggingFaceConfig) -> Fields:
    """Command A and R7B: attention and MLP in parallel after one LayerNorm without shift, every fourth layer full."""
    fields = decoder(config, tied=True, norm="LayerNorm")
    every = config.whole("sliding_window_pattern", default=4)
    if every == 0:
        raise config.refuse("'sliding_window_pattern' is 0; it must be at least 1, and every such layer is full")
    fixed = {"norm_shift": False, "parallel_residual": True, "norms_per_block": 1}
    seen = config.windows(fields["layers"], config.usual("sliding_window", 4096), every, "sliding_window_pattern")
    return {**fields, **fixed, **seen}


def read_exaone4(config: HuggingFaceConfig) -> Fields:
    """EXAONE 4.0: norms after attention and MLP and of queries and keys; windows by a pattern such as LLLG."""
    fields = decoder(config, tied=False)
    pattern, every = config.get("sliding_window_pattern"), 0
    if isinstance(pattern, str):
        if pattern != "L" * (len(pattern) - 1) + "G":
            raise config.refuse(
                f"'sliding_window_pattern' is {shown(pattern)}; only a pattern such as 'LLLG' is covered"
            )
        every = len(pattern)
    elif pattern is not None:
        every = config.whole("sliding_window_pattern")
    seen = config.windows(fields["layers"], window(config), every, "sliding_window_pattern")
    return {**fields, "qk_norm": True, **seen}


def read_granite(config: HuggingFaceConfig) -> Fields:
    """Granite 3: as LLaMA, with tied embeddings; its multipliers have no weights."""
    return {**read_llama(config), "tied_embeddings": config.flag("tie_word_embeddings", True)}


def read_arcee(config: HuggingFaceConfig) -> Fields:
    """AFM: as LLaMA, with a squared ReLU, so two matrices."""
    return {**read_llama(config), "gated_mlp": False}


def read_apertus(config: HuggingFaceConfig) -> Fields:
    """Apertus: norms of queries and keys, two matrices around xIELU with its two trained numbers (arXiv:2411.13010)."""
    fields = read_llama(config)
    return {**fields, "qk_norm": True, "gated_mlp": False, "activation_weights": 2}


def read_glm4(config: HuggingFaceConfig) -> Fields:
    """GLM-4 of 2025: norms before and after attention and MLP, biases of queries, keys and values."""
    fields = decoder(config, tied=False, biased_output=False)
    return {**fields, "qkv_bias": config.flag("attention_bias", True), "norms_per_block": 4}


def read_ernie_dense(config: HuggingFaceConfig) -> Fields:
    """ERNIE 4.5 without experts: as LLaMA, with tied embeddings."""
    if config.flag("use_bias", False):
        raise config.refuse("'use_bias' is true, which is not covered for this family")
    return decoder(config, tied=True)
