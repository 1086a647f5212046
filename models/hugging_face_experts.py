"""As `hugging_face_families`, for the families with mixtures of experts."""

from __future__ import annotations

from models.hugging_face_config import Config
from models.hugging_face_families import Fields, decoder, language_part, qwen2, qwen3, window


def mixtral(config: Config) -> Fields:
    """Mixtral: every layer has experts, of the width that is given."""
    fields = decoder(config, tied=False)
    fields.update(config.windows(fields["layers"], window(config)))
    routed, top_k = config.whole("num_local_experts"), config.whole("num_experts_per_tok")
    return {**fields, "experts": {"routed": routed, "top_k": top_k, "ffn": fields["ffn"]}}


def _qwen_experts(config: Config, layers: int, *, shared: bool) -> Fields:
    experts: Fields = {
        "routed": config.whole("num_experts"),
        "top_k": config.whole("num_experts_per_tok"),
        "ffn": config.whole("moe_intermediate_size"),
        "every": config.whole("decoder_sparse_step", default=1),
    }
    dense = config.items("mlp_only_layers") or []
    if dense != list(range(len(dense))) or (dense and len(dense) >= layers):
        raise config.refuse("'mlp_only_layers' lists other than the first layers, which cannot be represented")
    experts["leading_dense_layers"] = len(dense)
    if shared:
        experts.update(shared=1, shared_ffn=config.whole("shared_expert_intermediate_size"))
    return experts


def qwen2_moe(config: Config) -> Fields:
    """Qwen2 with experts, one of them shared."""
    fields = qwen2(config)
    return {**fields, "experts": _qwen_experts(config, fields["layers"], shared=True)}


def qwen3_moe(config: Config) -> Fields:
    """Qwen3 with experts, none shared."""
    fields = qwen3(config)
    return {**fields, "experts": _qwen_experts(config, fields["layers"], shared=False)}


def deepseek(config: Config) -> Fields:
    """DeepSeek-V2, V3, V3.2 and what copies them: Kimi K2, GLM-5."""
    nope, rope = config.whole("qk_nope_head_dim"), config.whole("qk_rope_head_dim")
    heads, vocab = config.whole("num_attention_heads"), config.whole("vocab_size")
    latent: Fields = {
        "kv_rank": config.whole("kv_lora_rank"),
        "nope_head_dim": nope,
        "rope_head_dim": rope,
        "v_head_dim": config.whole("v_head_dim"),
    }
    if config.whole("q_lora_rank", default=0):
        latent["q_rank"] = config.whole("q_lora_rank")
    fields: Fields = {
        "hidden": config.whole("hidden_size"),
        "ffn": config.whole("intermediate_size"),
        "layers": config.whole("num_hidden_layers"),
        "heads": heads,
        "kv_heads": heads,
        "head_dim": nope + rope,
        "latent_attention": latent,
        "vocab": vocab,
        "vocab_padded": vocab,
        "max_seq": config.whole("max_position_embeddings"),
        "gated_mlp": True,
        "tied_embeddings": config.flag("tie_word_embeddings", False),
        "norm": "RMSNorm",
        "parallel_residual": False,
        "positions": "rotary",
        "rope_theta": config.rope_theta(),
        "prediction_layers": config.whole("num_nextn_predict_layers", default=0),
    }
    if config.has("index_topk"):
        sparse = {"heads": "index_n_heads", "head_dim": "index_head_dim", "top_k": "index_topk"}
        fields["sparse_attention"] = {ours: config.whole(key) for ours, key in sparse.items()}
    if config.has("n_routed_experts"):
        if config.whole("moe_layer_freq", default=1) != 1:
            raise config.refuse("'moe_layer_freq' is not 1, which is all that is covered for this family")
        fields["experts"] = {
            "routed": config.whole("n_routed_experts"),
            "top_k": config.whole("num_experts_per_tok"),
            "ffn": config.whole("moe_intermediate_size"),
            "shared": config.whole("n_shared_experts", default=0),
            "leading_dense_layers": config.whole("first_k_dense_replace", default=0),
        }
        # Without groups, all experts are one.
        if config.whole("n_group", default=1) > 1:
            fields["experts"] |= {
                "groups": config.whole("n_group"), "groups_per_token": config.whole("topk_group")
            }  # fmt: skip
    return fields


def gpt_oss(config: Config) -> Fields:
    """gpt-oss: experts in every layer, biases everywhere, every second layer without window."""
    fields = decoder(config, tied=False)
    experts = {
        "routed": config.whole("num_local_experts"),
        "top_k": config.whole("num_experts_per_tok", "experts_per_token"),
        "ffn": fields["ffn"],
    }
    windows = config.windows(fields["layers"], window(config), 2)
    fields.update(experts=experts, qkv_bias=config.flag("attention_bias", True), linear_bias=True)
    return {**fields, **windows}


def llama4(config: Config) -> Fields:
    """Llama 4, the language model: attention in chunks but for the layers without rotation, one shared expert."""
    text = language_part(config)
    fields = decoder(text, tied=False)
    layers = fields["layers"]
    rotated = text.items("no_rope_layers")
    every = text.whole("no_rope_layer_interval", default=4)
    # the list first: layers may be any number
    if rotated and rotated != [int(every > 0 and layer % every > 0) for layer in range(1, len(rotated) + 1)]:
        raise text.refuse(f"'no_rope_layers' does not repeat every {every} layers, the only pattern that is covered")
    windows: Fields = {}
    if text.has("attention_chunk_size"):
        windows = {"window_kind": "chunked", **text.windows(layers, text.whole("attention_chunk_size"), every)}
    step = text.whole("interleave_moe_layer_step", default=1)
    listed = text.items("moe_layers")
    if listed is not None and (step < 1 or listed != list(range(step - 1, layers, step))):
        raise text.refuse(f"'moe_layers' does not repeat every {step} layers, the only pattern that is covered")
    experts = {
        "routed": text.whole("num_local_experts"),
        "top_k": text.whole("num_experts_per_tok"),
        "ffn": fields["ffn"],
        "shared": 1,
        "every": step,
    }
    fields.update(ffn=text.whole("intermediate_size_mlp"), experts=experts, qk_norm=text.flag("use_qk_norm", True))
    return {**fields, **windows}


def dbrx(config: Config) -> Fields:
    """DBRX."""
    attention, mlp = config.part("attn_config"), config.part("ffn_config")
    hidden, heads, vocab = config.whole("d_model"), config.whole("n_heads"), config.whole("vocab_size")
    ffn = mlp.whole("ffn_hidden_size")
    return {
        "hidden": hidden,
        "ffn": ffn,
        "layers": config.whole("n_layers"),
        "heads": heads,
        "kv_heads": attention.whole("kv_n_heads"),
        "head_dim": config.head_dim(hidden, heads),
        "experts": {"routed": mlp.whole("moe_num_experts"), "top_k": mlp.whole("moe_top_k"), "ffn": ffn},
        "vocab": vocab,
        "vocab_padded": vocab,
        "max_seq": config.whole("max_seq_len"),
        "gated_mlp": True,
        "tied_embeddings": config.flag("tie_word_embeddings", False),
        "qkv_bias": False,
        "norm": "LayerNorm",
        "parallel_residual": False,
        "positions": "rotary",
        "rope_theta": attention.number("rope_theta"),
    }
