"""As `hugging_face_families`, for the families with mixtures of experts."""

from __future__ import annotations

from models.documents import shown
from models.hugging_face_config import HuggingFaceConfig
from models.hugging_face_families import (
    Fields,
    decoder,
    read_exaone4,
    read_hunyuan,
    read_phi3,
    read_qwen2,
    read_qwen3,
    window,
)


def read_mixtral(config: HuggingFaceConfig) -> Fields:
    """Mixtral: every layer has experts, of the given width."""
    fields = decoder(config, tied=False)
    fields.update(config.windows(fields["layers"], window(config)))
    routed, top_k = config.whole("num_local_experts"), config.whole("num_experts_per_tok")
    return {**fields, "experts": {"routed": routed, "top_k": top_k, "ffn": fields["ffn"]}}


def _qwen_experts(config: HuggingFaceConfig, layers: int, *, shared: bool) -> Fields:
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


def read_qwen2_moe(config: HuggingFaceConfig) -> Fields:
    """Qwen2 with experts, one of them shared."""
    fields = read_qwen2(config)
    config.left_out.append(f"The gates of its shared experts, {fields['hidden']:,} weights per layer, are not counted.")
    return {**fields, "experts": _qwen_experts(config, fields["layers"], shared=True)}


def read_qwen3_moe(config: HuggingFaceConfig) -> Fields:
    """Qwen3 with experts, none shared."""
    fields = read_qwen3(config)
    return {**fields, "experts": _qwen_experts(config, fields["layers"], shared=False)}


def read_deepseek(config: HuggingFaceConfig) -> Fields:
    """DeepSeek-V2, V3, V3.2 and models of the same form: Kimi K2, GLM-4.7-Flash, 5 and 5.2."""
    config.refuse_latent_biases()
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
        fields["sparse_attention"]["layers"] = _indexer_layers(config, fields["layers"])
    if config.has("n_routed_experts", "moe_intermediate_size"):
        if config.whole("moe_layer_freq", default=1) != 1:
            raise config.refuse("'moe_layer_freq' is not 1, which is all that is covered for this family")
        fields["experts"] = _grouped_experts(config, fields["layers"])
    return fields


def _grouped_experts(config: HuggingFaceConfig, layers: int) -> Fields:
    """Experts by DeepSeek's keys: shared ones, groups, and first layers that have none."""
    dense = config.leading("mlp_layer_types", "dense", "sparse", layers)  # version 5 has both it and the number
    is_listed = dense is not None and "first_k_dense_replace" not in config.content
    stated = dense if dense is not None and is_listed else config.whole("first_k_dense_replace", default=0)
    if dense is None and not config.has("first_k_dense_replace"):
        config.notes.append("first_k_dense_replace is not in the file; experts in every layer are assumed.")
    if dense not in (None, min(stated, layers)):
        raise config.refuse(
            f"'first_k_dense_replace' is {stated} but 'mlp_layer_types' begins with {dense} dense "
            "layers; they must agree"
        )
    experts: Fields = {
        "routed": config.whole("n_routed_experts"),
        "top_k": config.whole("num_experts_per_tok"),
        "ffn": config.whole("moe_intermediate_size"),
        "shared": config.whole("n_shared_experts", "num_shared_experts", default=0),
        "leading_dense_layers": stated,
    }
    # Without groups, all experts are one.
    if config.whole("n_group", default=1) > 1:
        experts |= {"groups": config.whole("n_group"), "groups_per_token": config.whole("topk_group")}
    return experts


def _indexer_layers(config: HuggingFaceConfig, layers: int) -> int | None:
    """Return the layers with an indexer; the others reuse the tokens of the layer before them."""
    kinds = config.items("indexer_types")
    if kinds is None:
        if config.whole("index_topk_freq", default=1) > 1:
            raise config.refuse("'index_topk_freq' lets layers share indexers, but 'indexer_types' does not say which")
        return None
    unknown = next((kind for kind in kinds if kind not in ("full", "shared")), None)
    if len(kinds) != layers or unknown is not None or "full" not in kinds[:1]:
        told = (
            f"has {shown(unknown)}"
            if unknown is not None
            else f"has {len(kinds)} entries for 'num_hidden_layers' {layers}"
        )
        told = told if len(kinds) != layers or unknown is not None else "begins with 'shared'"
        raise config.refuse(f"'indexer_types' {told}; it must be a list of 'full' and 'shared', one per layer")
    own = kinds.count("full")
    return None if own == layers else own


def read_hy_v3(config: HuggingFaceConfig) -> Fields:
    """Hy3: norms of queries and keys, experts after first dense layers, shared ones of the width of one."""
    fields = {**decoder(config, tied=False), "qk_norm": True}
    fields["prediction_layers"] = config.whole("num_nextn_predict_layers", default=0)
    return {**fields, "experts": _grouped_experts(config, fields["layers"])}


def read_granite_moe(config: HuggingFaceConfig) -> Fields:
    """Granite 3 with experts of the given width in every layer."""
    fields = decoder(config, tied=False)
    routed, top_k = config.whole("num_local_experts"), config.whole("num_experts_per_tok")
    return {**fields, "experts": {"routed": routed, "top_k": top_k, "ffn": fields["ffn"]}}


def read_glm4_moe(config: HuggingFaceConfig) -> Fields:
    """Read GLM-4.5 and 4.6: heads of a stated width, biases of queries, keys and values only, DeepSeek's experts."""
    hidden, heads = config.whole("hidden_size"), config.whole("num_attention_heads")
    head_dim = config.whole("head_dim") if config.has("head_dim") else hidden // max(heads, 1)
    if not config.has("head_dim"):
        config.notes.append(f"head_dim is not in the file; {head_dim}, which its model code takes then, is taken.")
    fields = decoder(config, tied=False, head_dim=head_dim, biased_output=False)
    fields["qk_norm"] = config.flag("use_qk_norm", False)
    fields["prediction_layers"] = config.whole("num_nextn_predict_layers", default=0)
    return {**fields, "experts": _grouped_experts(config, fields["layers"])}


def read_minimax_m2(config: HuggingFaceConfig) -> Fields:
    """MiniMax-M2: experts in every layer, queries and keys normalised over all heads together."""
    fields = decoder(config, tied=False)
    if config.whole("shared_intermediate_size", default=0):
        raise config.refuse("'shared_intermediate_size' is not 0; shared experts are not covered for this family")
    kinds = config.items("attn_type_list")
    if kinds is not None and any(kind != 1 for kind in kinds):
        raise config.refuse("'attn_type_list' has layers of linear attention, which cannot be represented")
    fields["prediction_layers"] = config.whole("num_mtp_modules", default=0) * config.whole(
        "mtp_transformer_layers", default=1
    )
    experts = {
        "routed": config.whole("num_local_experts"),
        "top_k": config.whole("num_experts_per_tok"),
        "ffn": fields["ffn"],
    }
    return {**fields, "qk_norm": config.flag("use_qk_norm", True), "qk_norm_over": "heads", "experts": experts}


def read_gpt_oss(config: HuggingFaceConfig) -> Fields:
    """gpt-oss: experts in every layer, biases everywhere, a sink per head, every second layer without window."""
    if not config.flag("attention_bias", True):
        raise config.refuse("'attention_bias' is false; biases of experts alone cannot be represented")
    fields = decoder(config, tied=False, biased_output=False)
    experts = {
        "routed": config.whole("num_local_experts"),
        "top_k": config.whole("num_experts_per_tok", "experts_per_token"),
        "ffn": fields["ffn"],
        "router_bias": True,
    }
    windows = config.windows(fields["layers"], window(config), 2)
    fields["attention_sinks"] = True
    fields.update(experts=experts, qkv_bias=True, linear_bias=True)
    return {**fields, **windows}


def read_llama4(text: HuggingFaceConfig) -> Fields:
    """Llama 4, the language model: attention in chunks but for the layers without rotation, one shared expert."""
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
    return {**fields, "qk_norm_weighted": not fields["qk_norm"], **windows}


def read_dbrx(config: HuggingFaceConfig) -> Fields:
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
        "norm_shift": False,
        "parallel_residual": False,
        "positions": "rotary",
        "rope_theta": attention.number("rope_theta", config.rope_theta()),
    }


def read_ernie(config: HuggingFaceConfig) -> Fields:
    """ERNIE 4.5: experts with a router bias from a first layer on, shared experts of the width of one."""
    fields, layers = decoder(config, tied=True), config.whole("num_hidden_layers")
    if config.flag("use_bias", False):
        raise config.refuse("'use_bias' is true; a bias of the LM head cannot be represented")
    first, last = config.whole("moe_layer_start_index"), config.whole("moe_layer_end_index", default=layers - 1)
    interval = config.whole("moe_layer_interval", default=1)
    if last != layers - 1 or interval != 1:
        raise config.refuse(
            f"'moe_layer_end_index' is {last} and 'moe_layer_interval' {interval} of 'num_hidden_layers' {layers}; "
            f"only experts in every layer up to the last, {layers - 1}, are covered"
        )
    experts = {
        "routed": config.whole("moe_num_experts"),
        "top_k": config.whole("moe_k"),
        "ffn": config.whole("moe_intermediate_size"),
        "shared": config.whole("moe_num_shared_experts", default=0),
        "leading_dense_layers": first,
        "router_bias": True,
    }
    return {**fields, "experts": experts}


def read_olmoe(config: HuggingFaceConfig) -> Fields:
    """OLMoE and FlexOlmo: experts in every layer, queries and keys normalised over all heads together."""
    fields = decoder(config, tied=False)
    experts = {
        "routed": config.whole("num_experts"),
        "top_k": config.whole("num_experts_per_tok"),
        "ffn": fields["ffn"],
    }
    return {**fields, "qk_norm": True, "qk_norm_over": "heads", "experts": experts}


def read_phimoe(config: HuggingFaceConfig) -> Fields:
    """Phi-3.5 with experts: every layer has them, norms are LayerNorms."""
    fields = {**read_phi3(config), "norm": "LayerNorm"}
    if config.flag("lm_head_bias", False):
        raise config.refuse("'lm_head_bias' is true; a bias of the LM head cannot be represented")
    routed, top_k = config.whole("num_local_experts"), config.whole("num_experts_per_tok")
    return {**fields, "experts": {"routed": routed, "top_k": top_k, "ffn": fields["ffn"]}}


def read_dots1(config: HuggingFaceConfig) -> Fields:
    """dots.llm1: norms of queries and keys, DeepSeek's experts."""
    fields = read_qwen3(config)
    return {**fields, "experts": _grouped_experts(config, fields["layers"])}


def read_solar_open(config: HuggingFaceConfig) -> Fields:
    """Solar Open: DeepSeek's experts in every layer, so that there is no width of an ordinary MLP."""
    fields = decoder(config, tied=False, ffn=config.whole("moe_intermediate_size"), biased_output=False)
    return {**fields, "experts": _grouped_experts(config, fields["layers"])}


def read_hunyuan_moe(config: HuggingFaceConfig) -> Fields:
    """Hunyuan with experts of the given width in every layer; numbers may be listed layer by layer."""
    fields = read_hunyuan(config)
    if config.flag("use_cla", False):
        raise config.refuse("'use_cla' is true; keys and values shared by layers cannot be represented")
    layers = fields["layers"]
    width = config.same_in_all("moe_intermediate_size", layers) if config.has("moe_intermediate_size") else None
    experts = {
        "routed": config.whole("num_experts"),
        "top_k": config.same_in_all("moe_topk", layers),
        "ffn": fields["ffn"] if width is None else width,
        "shared": config.same_in_all("num_shared_expert", layers) if config.has("num_shared_expert") else 0,
    }
    return {**fields, "experts": experts}


def read_exaone_moe(config: HuggingFaceConfig) -> Fields:
    """K-EXAONE: as EXAONE 4 with norms before attention and MLP, and DeepSeek's experts."""
    fields = read_exaone4(config)
    fields["prediction_layers"] = config.whole("num_nextn_predict_layers", default=0)
    return {**fields, "experts": _grouped_experts(config, fields["layers"])}


def read_sarvam_moe(config: HuggingFaceConfig) -> Fields:
    """Sarvam: norms of queries and keys, DeepSeek's experts."""
    fields = decoder(config, tied=False, biased_output=False)
    fields["qkv_bias"] = config.flag("use_qkv_bias", bool(fields["qkv_bias"]))
    fields["qk_norm"] = config.flag("use_qk_norm", True)
    fields["prediction_layers"] = config.whole("num_nextn_predict_layers", default=0)
    return {**fields, "experts": _grouped_experts(config, fields["layers"])}


def read_mellum(config: HuggingFaceConfig) -> Fields:
    """Mellum 2: norms of queries and keys, windows in the listed layers, experts but for first dense layers."""
    fields = {**decoder(config, tied=False), "qk_norm": True}
    fields |= config.windows(fields["layers"], window(config), 0)
    return {**fields, "experts": _grouped_experts(config, fields["layers"])}
