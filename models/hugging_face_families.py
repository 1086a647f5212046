"""Number keys of each family of Hugging Face configurations, and the choices that its model code fixes.

Keys, defaults and fixed choices come from the family's configuration and modelling files in Hugging Face Transformers;
each function turns one config.json into the fields of an `Architecture`.
"""

from __future__ import annotations

from typing import Any

from models.hugging_face_config import HuggingFaceConfig

Fields = dict[str, Any]


def decoder(config: HuggingFaceConfig, *, tied: bool, norm: str = "RMSNorm", head_dim: int | None = None) -> Fields:
    """The keys that most families share; `tied` is the family's default, `head_dim` its own rule."""
    hidden, heads = config.whole("hidden_size"), config.whole("num_attention_heads")
    vocab = config.whole("vocab_size")
    return {
        "hidden": hidden,
        "ffn": config.whole("intermediate_size"),
        "layers": config.whole("num_hidden_layers"),
        "heads": heads,
        "kv_heads": config.whole("num_key_value_heads", default=heads),
        "head_dim": config.head_dim(hidden, heads) if head_dim is None else head_dim,
        "vocab": vocab,
        "vocab_padded": vocab,
        "max_seq": config.whole("max_position_embeddings"),
        "gated_mlp": True,
        "tied_embeddings": config.flag("tie_word_embeddings", tied),
        "qkv_bias": config.flag("attention_bias", False),
        "norm": norm,
        "parallel_residual": False,
        "positions": "rotary",
        "rope_theta": config.rope_theta(),
    }


def window(config: HuggingFaceConfig) -> int | None:
    """Return the sliding window [tokens]; None without one."""
    return config.whole("sliding_window") if config.has("sliding_window") else None


def llama(config: HuggingFaceConfig) -> Fields:
    """LLaMA and models of the same form: SmolLM2, TinyLlama, Falcon 3, CodeLlama."""
    fields = decoder(config, tied=False)
    if config.flag("mlp_bias", False):
        raise config.refuse("'mlp_bias' is true; biases in the MLP alone cannot be represented")
    return fields


def smollm3(config: HuggingFaceConfig) -> Fields:
    """SmolLM3: as LLaMA, with tied embeddings; every fourth layer leaves out the rotation."""
    fields = decoder(config, tied=True)
    return {**fields, **config.windows(fields["layers"], window(config), 0)}


def mistral(config: HuggingFaceConfig) -> Fields:
    """Mistral: as LLaMA, with a window in all layers unless it is null."""
    fields = decoder(config, tied=False)
    seen = window(config) if "sliding_window" in config.content else config.usual("sliding_window", 4096)
    return {**fields, **config.windows(fields["layers"], seen)}


def qwen2(config: HuggingFaceConfig) -> Fields:
    """Qwen2 and 2.5: biases on query, key and value."""
    fields = decoder(config, tied=False)
    return {**fields, "qkv_bias": True, **_qwen_windows(config, fields["layers"])}


def qwen3(config: HuggingFaceConfig) -> Fields:
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


def gemma(config: HuggingFaceConfig) -> Fields:
    """Gemma 1."""
    return decoder(config, tied=True)


def gemma2(config: HuggingFaceConfig) -> Fields:
    """Gemma 2: norms before and after attention and MLP, every second layer without window."""
    fields = decoder(config, tied=True)
    return {**fields, "norms_per_block": 4, **config.windows(fields["layers"], window(config), 2)}


def gemma3(text: HuggingFaceConfig) -> Fields:
    """Gemma 3, the language model: five windowed layers to one that sees everything.

    Files of its multimodal sizes leave out what equals the default of `Gemma3TextConfig`.
    """
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
        "qkv_bias": text.flag("attention_bias", False),
        "qk_norm": True,
        "norm": "RMSNorm",
        "norms_per_block": 4,
        "parallel_residual": False,
        "positions": "rotary",
        "rope_theta": text.rope_theta(),
        **text.windows(layers, text.usual("sliding_window", 4096), every),
    }


def phi(config: HuggingFaceConfig) -> Fields:
    """Phi-1, 1.5 and 2: biases everywhere, one norm before attention and MLP side by side."""
    fields = decoder(config, tied=False, norm="LayerNorm")
    fixed = {"gated_mlp": False, "qkv_bias": True, "linear_bias": True, "parallel_residual": True, "norms_per_block": 1}
    return {**fields, **fixed, "qk_norm": config.flag("qk_layernorm", False)}


def phi3(config: HuggingFaceConfig) -> Fields:
    """Phi-3 and Phi-4: as LLaMA, with a window in all layers where one is given."""
    fields = decoder(config, tied=False)
    return {**fields, **config.windows(fields["layers"], window(config))}


def falcon(config: HuggingFaceConfig) -> Fields:
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


def gpt2(config: HuggingFaceConfig) -> Fields:
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


def gpt_bigcode(config: HuggingFaceConfig) -> Fields:
    """StarCoder: GPT-2 with one key and value head."""
    fields = gpt2(config)
    return {**fields, "kv_heads": 1 if config.flag("multi_query", True) else fields["heads"]}


def gpt_neox(config: HuggingFaceConfig) -> Fields:
    """GPT-NeoX and Pythia."""
    fields = decoder(config, tied=False, norm="LayerNorm")
    theta = config.rope_theta()
    return {
        **fields,
        "gated_mlp": False,
        "qkv_bias": config.flag("attention_bias", True),
        "linear_bias": True,
        "parallel_residual": config.flag("use_parallel_residual", True),
        "rope_theta": config.number("rotary_emb_base", theta),
    }


def opt(config: HuggingFaceConfig) -> Fields:
    """OPT; its table of positions has two rows more than positions, which are left out here."""
    hidden = config.whole("hidden_size")
    projected = config.whole("word_embed_proj_dim", default=hidden)
    if projected != hidden:
        raise config.refuse(f"'word_embed_proj_dim' is {projected}; an embedding narrower than {hidden} is not covered")
    bias = config.flag("enable_bias", True)
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


def bloom(config: HuggingFaceConfig) -> Fields:
    """BLOOM."""
    hidden = config.whole("hidden_size", "n_embed")
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


def mpt(config: HuggingFaceConfig) -> Fields:
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
        qk_norm=attention.flag("qk_ln", False),
    )


def starcoder2(config: HuggingFaceConfig) -> Fields:
    """StarCoder 2."""
    fields = decoder(config, tied=True, norm="LayerNorm")
    bias = config.flag("use_bias", True)
    windows = config.windows(fields["layers"], window(config))
    return {**fields, "gated_mlp": False, "qkv_bias": bias, "linear_bias": bias, **windows}


def nemotron(config: HuggingFaceConfig) -> Fields:
    """Nemotron-4: squared ReLU, so two matrices."""
    fields = decoder(config, tied=False, norm="LayerNorm")
    return {**fields, "gated_mlp": False}


def olmo(config: HuggingFaceConfig) -> Fields:
    """OLMo 1; its norms have no weights."""
    return decoder(config, tied=False, norm="LayerNorm")


def olmo2(config: HuggingFaceConfig) -> Fields:
    """OLMo 2 and 3: norms after attention and MLP, and on query and key; OLMo 3 with windows but every fourth layer."""
    fields = decoder(config, tied=False)
    windows = config.windows(fields["layers"], window(config), 4)
    return {**fields, "qk_norm": True, "qk_norm_over": "heads", **windows}
