"""As `hugging_face_families`, for models whose layers have attentions or MLPs of several shapes.

Keys, defaults and fixed choices come from the family's configuration and modelling files in Hugging Face Transformers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from models.documents import shown
from models.hugging_face_config import HuggingFaceConfig
from models.hugging_face_pattern_parts import (
    build_pattern,
    count_layers,
    list_kinds,
    note_prediction,
    read_attention,
    read_latent_attention,
)
from models.layers.attention import AttentionLayer, BlockIndexer
from models.layers.compressed_attention import CompressedAttentionLayer
from models.layers.experts import ExpertsLayer
from models.layers.feedforward import FeedForwardLayer
from models.layers.pattern import Block, LayerPattern
from models.layers.residual import AlternatingUpdates, HyperConnections

__all__ = ["MIXED_FAMILIES"]


def read_deepseek_v4(config: HuggingFaceConfig) -> LayerPattern:
    """DeepSeek-V4: attention to compressed sequences, hyper-connections, experts in all layers."""
    layers = count_layers(config)
    ratios = config.items("compress_ratios")
    # one entry per layer, and one for each block of multi-token prediction
    extra = config.whole("num_nextn_predict_layers", default=0)
    if ratios is None or len(ratios) not in (layers, layers + extra) or any(each not in (0, 4, 128) for each in ratios):
        raise config.refuse(
            f"'compress_ratios' is {shown(ratios)}; it must have 0, 4 or 128 for each of {layers} layers and each "
            "prediction block"
        )
    streams, hidden = config.whole("hc_mult", default=1), config.whole("hidden_size")
    experts = ExpertsLayer(
        routed=config.whole("n_routed_experts"),
        top_k=config.whole("num_experts_per_tok"),
        width=config.whole("moe_intermediate_size"),
        shared_width=config.whole("n_shared_experts", default=0) * config.whole("moe_intermediate_size"),
    )
    shape: dict[str, Any] = {
        "heads": config.whole("num_attention_heads"),
        "head_dim": config.whole("head_dim"),
        "q_rank": config.whole("q_lora_rank"),
        "output_groups": config.whole("o_groups"),
        "output_rank": config.whole("o_lora_rank"),
        "window": config.whole("sliding_window"),
    }
    index: dict[str, Any] = {
        "index_heads": config.whole("index_n_heads"),
        "index_head_dim": config.whole("index_head_dim"),
        "top_k": config.whole("index_topk"),
    }
    attentions = {
        0: CompressedAttentionLayer(**shape),
        4: CompressedAttentionLayer(**shape, ratio=4, **index),
        128: CompressedAttentionLayer(**shape, ratio=128),
    }
    blocks = [
        Block(mixers=(attentions[ratio],), feedforwards=(experts,), additions=(HyperConnections(streams=streams),))
        for ratio in ratios[:layers]
    ]
    note_prediction(config, "num_nextn_predict_layers")
    # the head reads one stream, mixed of all: a product, biases and a scale
    return build_pattern(config, blocks, tied=False, other_parameters=streams * streams * hidden + streams + 1)


def read_gemma4(config: HuggingFaceConfig) -> LayerPattern:
    """Gemma 4: windowed layers, global ones with other heads whose keys are the values, experts beside a dense MLP."""
    layers = count_layers(config)
    if config.whole("hidden_size_per_layer_input", default=0) or config.whole("num_kv_shared_layers", default=0):
        raise config.refuse("inputs per layer and layers that share keys and values are not covered for this family")
    kinds = list_kinds(config, "layer_types", layers, ("sliding_attention", "full_attention"))
    if kinds is None:
        raise config.refuse("'layer_types' is missing; it must list sliding_attention or full_attention for each layer")
    local = read_attention(config, window=config.whole("sliding_window"), qk_norm="head")
    wide = read_attention(
        config,
        head_dim=config.whole("global_head_dim", default=local.head_dim),
        kv_heads=config.whole("num_global_key_value_heads", default=local.kv_heads),
        qk_norm="head",
        has_values=not config.has("num_global_key_value_heads"),
    )
    dense = FeedForwardLayer(width=config.whole("intermediate_size"))
    has_experts = config.whole("num_experts", default=0) > 0
    experts = (
        ExpertsLayer(
            routed=config.whole("num_experts"),
            top_k=config.whole("top_k_experts"),
            width=config.whole("moe_intermediate_size"),
            router_scales=True,
        )
        if has_experts
        else None
    )
    blocks = [
        Block(
            mixers=(local if kind == "sliding_attention" else wide,),
            feedforwards=(dense,) if experts is None else (experts, dense),
            norms=4 if experts is None else 7,
        )
        for kind in kinds
    ]
    return build_pattern(config, blocks, tied=True)


def read_gemma3n(config: HuggingFaceConfig) -> LayerPattern:
    """Gemma 3n: windows, last layers with keys and values of earlier ones, streams, and inputs per layer."""
    layers, hidden = count_layers(config), config.whole("hidden_size")
    kinds = list_kinds(config, "layer_types", layers, ("sliding_attention", "full_attention"))
    if kinds is None:
        raise config.refuse("'layer_types' is missing; it must list sliding_attention or full_attention for each layer")
    shared, streams = config.whole("num_kv_shared_layers", default=0), config.whole("altup_num_inputs")
    inside = config.whole("hidden_size_per_layer_input")
    addition = AlternatingUpdates(streams=streams, side_rank=config.whole("laurel_rank"), input_width=inside)
    dense = FeedForwardLayer(width=config.same_in_all("intermediate_size", layers))
    blocks = [
        Block(
            mixers=(
                read_attention(
                    config,
                    window=config.whole("sliding_window") if kind == "sliding_attention" else None,
                    qk_norm="head",
                    has_keys=place < layers - shared,
                ),
            ),
            feedforwards=(dense,),
            additions=(addition,),
            norms=7,
        )
        for place, kind in enumerate(kinds)
    ]
    # a table of inputs for all layers, their projection from the embedding with its norm, and projections of streams
    table = layers * inside * (config.whole("vocab_size_per_layer_input") + hidden) + inside
    return build_pattern(config, blocks, tied=True, other_parameters=table + 2 * (streams - 1) * hidden**2)


def read_mimo_v2(config: HuggingFaceConfig) -> LayerPattern:
    """MiMo-V2: windowed layers with heads of their own and sinks, a first dense layer, experts in the others."""
    layers = count_layers(config)
    windowed = list_kinds(config, "hybrid_layer_pattern", layers, (0, 1))
    chosen = list_kinds(config, "moe_layer_freq", layers, (0, 1))
    if windowed is None or chosen is None:
        raise config.refuse("'hybrid_layer_pattern' and 'moe_layer_freq' must each list 0 or 1 for each layer")
    attentions = (
        read_attention(
            config,
            value_head_dim=config.whole("v_head_dim"),
            sinks=config.flag("add_full_attention_sink_bias", False),
        ),
        AttentionLayer(
            heads=config.whole("swa_num_attention_heads"),
            kv_heads=config.whole("swa_num_key_value_heads"),
            head_dim=config.whole("swa_head_dim"),
            value_head_dim=config.whole("swa_v_head_dim"),
            window=config.whole("sliding_window") + 1,  # the token itself besides those before it
            sinks=config.flag("add_swa_attention_sink_bias", True),
        ),
    )
    if config.whole("n_shared_experts", default=0):
        raise config.refuse("'n_shared_experts' is not null, which is all that is covered for this family")
    feedforwards = (
        FeedForwardLayer(width=config.whole("intermediate_size")),
        ExpertsLayer(
            routed=config.whole("n_routed_experts"),
            top_k=config.whole("num_experts_per_tok"),
            width=config.whole("moe_intermediate_size"),
        ),
    )
    blocks = [
        Block(mixers=(attentions[window],), feedforwards=(feedforwards[experts],))
        for window, experts in zip(windowed, chosen, strict=True)
    ]
    return build_pattern(config, blocks, tied=False)


def read_minimax_m3(config: HuggingFaceConfig) -> LayerPattern:
    """MiniMax-M3: first dense layers with attention, then block-sparse attention with experts."""
    layers, sparse = count_layers(config), config.part("sparse_attention_config")
    kinds = list_kinds(sparse, "sparse_attention_freq", layers, (0, 1))
    chosen = list_kinds(config, "moe_layer_freq", layers, (0, 1))
    if kinds is None or chosen is None:
        raise config.refuse("'sparse_attention_freq' and 'moe_layer_freq' must each list 0 or 1 for each layer")
    indexer = BlockIndexer(
        heads=sparse.whole("sparse_num_index_heads"),
        head_dim=sparse.whole("sparse_index_dim"),
        block=sparse.whole("sparse_block_size"),
        top_k=sparse.whole("sparse_topk_blocks"),
    )
    normed = "head" if config.flag("use_qk_norm", True) else "none"
    feedforwards = (
        FeedForwardLayer(width=config.whole("dense_intermediate_size")),
        ExpertsLayer(
            routed=config.whole("num_local_experts"),
            top_k=config.whole("num_experts_per_tok"),
            width=config.whole("moe_intermediate_size", "intermediate_size"),
            shared_width=config.whole("n_shared_experts", default=0)
            * config.whole("shared_intermediate_size", default=0),
        ),
    )
    attentions = (read_attention(config, qk_norm=normed), read_attention(config, qk_norm=normed, indexer=indexer))
    blocks = [
        Block(mixers=(attentions[kind],), feedforwards=(feedforwards[experts],))
        for kind, experts in zip(kinds, chosen, strict=True)
    ]
    note_prediction(config, "num_nextn_predict_layers")
    return build_pattern(config, blocks, tied=False)


def read_longcat(config: HuggingFaceConfig) -> LayerPattern:
    """LongCat-Flash: two latent attentions and two MLPs in a layer, and experts of which some return their input."""
    block = Block(
        mixers=(read_latent_attention(config),) * 2,
        feedforwards=(
            ExpertsLayer(
                routed=config.whole("n_routed_experts"),
                top_k=config.whole("moe_topk"),
                width=config.whole("expert_ffn_hidden_size"),
                zero_experts=config.whole("zero_expert_num", default=0),
            ),
            *(FeedForwardLayer(width=config.whole("ffn_hidden_size")),) * 2,
        ),
        norms=4,
    )
    return build_pattern(config, [block] * count_layers(config, "num_layers", "num_hidden_layers"), tied=False)


def read_arctic(config: HuggingFaceConfig) -> LayerPattern:
    """Arctic: experts beside a dense MLP of the hidden width."""
    if config.whole("moe_layer_frequency", default=1) != 1 or not config.flag("parallel_attn_mlp_res", True):
        raise config.refuse("experts in some layers only, or without the dense MLP, are not covered for this family")
    block = Block(
        mixers=(read_attention(config),),
        feedforwards=(
            ExpertsLayer(
                routed=config.whole("num_local_experts"),
                top_k=config.whole("num_experts_per_tok"),
                width=config.whole("intermediate_size"),
            ),
            FeedForwardLayer(width=config.whole("hidden_size")),
        ),
        norms=3,
    )
    return build_pattern(config, [block] * count_layers(config), tied=False)


def read_step3(config: HuggingFaceConfig) -> LayerPattern:
    """Step-3.5 and 3.7: windowed layers with other heads, gates per head, first dense layers."""
    layers = count_layers(config)
    kinds = list_kinds(config, "layer_types", layers, ("sliding_attention", "full_attention"))
    other = config.part("attention_other_setting")
    if kinds is None or other.content.get("attention_type") != "sliding_attention":
        raise config.refuse(
            "'attention_other_setting' is missing; without it the heads of windowed layers are not known"
        )
    shared: dict[str, Any] = {
        "gate": "head" if config.flag("use_head_wise_attn_gate", False) else "none",
        "qk_norm": "head" if config.flag("use_qk_norm", False) else "none",
    }
    attention = read_attention(config, **shared)
    windowed = AttentionLayer(
        heads=other.whole("num_attention_heads"),
        kv_heads=other.whole("num_attention_groups"),
        head_dim=other.whole("head_dim", default=attention.head_dim),
        window=config.whole("sliding_window"),
        **shared,
    )
    dense = FeedForwardLayer(width=config.whole("intermediate_size"))
    experts = ExpertsLayer(
        routed=config.whole("num_experts", "moe_num_experts"),
        top_k=config.whole("num_experts_per_tok", "moe_top_k"),
        width=config.whole("moe_intermediate_size"),
        shared_width=config.whole("share_expert_dim", default=0),
    )
    first = config.whole("first_k_dense_replace", default=0)
    blocks = [
        Block(
            mixers=(windowed if kind == "sliding_attention" else attention,),
            feedforwards=(dense if place < first else experts,),
        )
        for place, kind in enumerate(kinds)
    ]
    return build_pattern(config, blocks, tied=False)


MIXED_FAMILIES: dict[str, tuple[str, Callable[[HuggingFaceConfig], LayerPattern]]] = {
    "arctic": ("Arctic", read_arctic),
    "deepseek_v4": ("DeepSeek", read_deepseek_v4),
    "gemma3n": ("Gemma", read_gemma3n),
    "gemma3n_text": ("Gemma", read_gemma3n),
    "gemma4": ("Gemma", read_gemma4),
    "gemma4_text": ("Gemma", read_gemma4),
    "longcat_flash": ("LongCat", read_longcat),
    "mimo_v2_flash": ("MiMo", read_mimo_v2),
    "minimax_m3": ("MiniMax", read_minimax_m3),
    "step3p5": ("Step", read_step3),
    "step3p7": ("Step", read_step3),
}
"""By `model_type`: the name of the family here, and the function that reads its config.json."""
