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
from models.layers.latent_attention import TokenIndexer
from models.layers.linear_attention import KimiDeltaLayer
from models.layers.pattern import Block, LayerPattern
from models.layers.residual import AlternatingUpdates, HyperConnections

__all__ = ["MIXED_FAMILIES"]


def read_deepseek_v4(config: HuggingFaceConfig) -> LayerPattern:
    """DeepSeek-V4: attention to compressed sequences, hyper-connections, experts in all layers."""
    layers = count_layers(config)
    ratios = _compression_ratios(config, layers)
    if config.whole("num_key_value_heads", default=1) != 1:
        raise config.refuse(f"'num_key_value_heads' is {config.get('num_key_value_heads')}; it must be 1")
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
        for ratio in ratios
    ]
    note_prediction(config, "num_nextn_predict_layers")
    # the head reads one stream, mixed of all: a product, biases and a scale
    return build_pattern(config, blocks, tied=False, other_parameters=streams * streams * hidden + streams + 1)


def _compression_ratios(config: HuggingFaceConfig, layers: int) -> list[int]:
    """Return the tokens per compressed key of each layer; 0 for a window alone."""
    rates = {"sliding_attention": 0, "compressed_sparse_attention": 4, "heavily_compressed_attention": 128}
    kinds = list_kinds(config, "layer_types", layers, tuple(rates))
    ratios = config.items("compress_ratios")
    if kinds is not None:  # as version 5 saves it
        stated = config.part("compress_rates")
        for kind in set(kinds) - {"sliding_attention"}:
            if stated.whole(kind, default=rates[kind]) != rates[kind]:
                raise stated.refuse(f"'compress_rates.{kind}' is {stated.get(kind)}; only {rates[kind]} is covered")
        named = [rates[kind] for kind in kinds]
        if ratios is None:
            return named
    # one entry per layer, and one for each block of multi-token prediction
    extra = config.whole("num_nextn_predict_layers", default=0)
    if (
        ratios is None
        or len(ratios) not in (layers, layers + extra)
        or any(isinstance(each, bool) or each not in (0, 4, 128) for each in ratios)
    ):
        raise config.refuse(
            f"'compress_ratios' is {shown(ratios)}; it must have 0, 4 or 128 for each of {layers} layers "
            f"('num_hidden_layers') and {extra} prediction blocks ('num_nextn_predict_layers')"
        )
    if kinds is not None:
        config.refuse_contradiction("layer_types", named, "compress_ratios", ratios[:layers])
    return ratios[:layers]


def read_gemma4(config: HuggingFaceConfig) -> LayerPattern:
    """Gemma 4: windowed layers, global ones with other heads whose keys are the values, experts beside a dense MLP."""
    layers = count_layers(config)
    if config.whole("hidden_size_per_layer_input", default=0) or config.whole("num_kv_shared_layers", default=0):
        raise config.refuse(
            "only 'hidden_size_per_layer_input' and 'num_kv_shared_layers' of 0 are covered for this family"
        )
    kinds = list_kinds(config, "layer_types", layers, ("sliding_attention", "full_attention"))
    if kinds is None:
        raise config.refuse("'layer_types' is missing; it must list sliding_attention or full_attention for each layer")
    local = read_attention(config, window=config.whole("sliding_window"), qk_norm="head")
    own_heads = config.has("num_global_key_value_heads")
    without_values = config.flag("attention_k_eq_v", own_heads)
    if config.has("per_layer_config"):  # as version 5 saves it, by layer
        full = [place for place, kind in enumerate(kinds) if kind == "full_attention"]
        head_dim, kv_heads = _changes_of_layers(config, full, local)
    else:
        head_dim = config.whole("global_head_dim", default=local.head_dim)
        kv_heads = config.whole("num_global_key_value_heads") if own_heads and without_values else local.kv_heads
    wide = read_attention(config, head_dim=head_dim, kv_heads=kv_heads, qk_norm="head", has_values=not without_values)
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


def _changes_of_layers(config: HuggingFaceConfig, full: list[int], local: AttentionLayer) -> tuple[int, int]:
    """Return (head width, key and value heads) of global layers, which must be the same in all."""
    changes = {key: config.part("per_layer_config").part(key) for key in config.part("per_layer_config").content}
    if not all(key.isdecimal() for key in changes) or sorted(map(int, changes)) != full:
        raise config.refuse("'per_layer_config' must have the numbers of all layers of full attention, and no others")
    found = set()
    for each in changes.values():
        if set(each.content) - {"head_dim", "num_key_value_heads"}:
            raise config.refuse("'per_layer_config' changes more than 'head_dim' and 'num_key_value_heads'")
        heads = each.whole("num_key_value_heads", default=local.kv_heads)
        found.add((each.whole("head_dim", default=local.head_dim), heads))
    if len(found) != 1:
        raise config.refuse("'per_layer_config' has unlike layers of full attention, which are not covered")
    return found.pop()


def read_gemma3n(config: HuggingFaceConfig) -> LayerPattern:
    """Gemma 3n: windows, last layers with keys and values of earlier ones, streams, and inputs per layer."""
    layers, hidden = count_layers(config), config.whole("hidden_size")
    kinds = list_kinds(config, "layer_types", layers, ("sliding_attention", "full_attention"))
    if kinds is None:
        raise config.refuse("'layer_types' is missing; it must list sliding_attention or full_attention for each layer")
    shared, streams = config.whole("num_kv_shared_layers", default=0), config.whole("altup_num_inputs")
    if shared >= layers:
        raise config.refuse(f"'num_kv_shared_layers' is {shared}; it must be below 'num_hidden_layers' {layers}")
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
    bias = config.flag("attention_bias", False)  # of queries, keys and values
    attentions = (
        read_attention(
            config,
            value_head_dim=config.whole("v_head_dim"),
            qkv_bias=bias,
            output_bias=False,
            sinks=config.flag("add_full_attention_sink_bias", False),
        ),
        AttentionLayer(
            heads=config.whole("swa_num_attention_heads"),
            kv_heads=config.whole("swa_num_key_value_heads"),
            head_dim=config.whole("swa_head_dim"),
            value_head_dim=config.whole("swa_v_head_dim"),
            # the token itself besides those before it; version 5 saves the sum
            window=config.whole("sliding_window_size") + 1
            if config.has("sliding_window_size")
            else config.whole("sliding_window"),
            qkv_bias=bias,
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
    if config.flag("attention_output_gate", False):
        raise config.refuse("'attention_output_gate' is true, which is not covered for this family")
    layers, sparse = count_layers(config), config.part("sparse_attention_config")
    if not sparse.flag("use_sparse_attention", True):
        raise sparse.refuse("'sparse_attention_config.use_sparse_attention' is false; only true is covered")
    frequency = "sparse_attention_config.sparse_attention_freq"
    numbers = list_kinds(sparse, "sparse_attention_freq", layers, (0, 1))
    is_sparse = _list_switches(config, ("layer_types", "full_attention", "minimax_m3_sparse"), frequency, numbers)
    numbers = list_kinds(config, "moe_layer_freq", layers, (0, 1))
    chosen = _list_switches(config, ("mlp_layer_types", "dense", "sparse"), "moe_layer_freq", numbers)
    if is_sparse is None or chosen is None:
        raise config.refuse(
            "'sparse_attention_config.sparse_attention_freq' and 'moe_layer_freq' must each list 0 or 1 for each layer"
        )

    def index_number(key: str, name: str) -> int:  # the second as version 5 saves it
        return config.whole(name) if config.has(name) else sparse.whole(key)

    indexer = BlockIndexer(
        heads=index_number("sparse_num_index_heads", "index_n_heads"),
        head_dim=index_number("sparse_index_dim", "index_head_dim"),
        block=index_number("sparse_block_size", "index_block_size"),
        top_k=index_number("sparse_topk_blocks", "index_topk_blocks"),
    )
    normed = "head" if config.flag("use_qk_norm", True) else "none"
    feedforwards = (
        FeedForwardLayer(width=config.whole("dense_intermediate_size")),
        ExpertsLayer(
            routed=config.whole("num_local_experts"),
            top_k=config.whole("num_experts_per_tok"),
            width=config.whole("moe_intermediate_size", "intermediate_size"),
            shared_width=config.whole("n_shared_experts", default=1) * config.whole("shared_intermediate_size"),
        ),
    )
    attentions = (read_attention(config, qk_norm=normed), read_attention(config, qk_norm=normed, indexer=indexer))
    blocks = [
        Block(mixers=(attentions[kind],), feedforwards=(feedforwards[experts],))
        for kind, experts in zip(is_sparse, chosen, strict=True)
    ]
    note_prediction(config, "num_nextn_predict_layers")
    return build_pattern(config, blocks, tied=False)


def _list_switches(
    config: HuggingFaceConfig, words: tuple[str, str, str], other: str, numbers: list[int] | None
) -> list[int] | None:
    """Return 0 or 1 for each layer, from the words that version 5 saves or from older numbers; None without either.

    Args:
        config: the file.
        words: key of the list of words, the word for 0 and the word for 1.
        other: key of the list of numbers.
        numbers: that list, 0 or 1 for each layer; None where the file has none.

    Raises `ModelFileError` where both lists are there and contradict each other.
    """
    key, *kinds = words
    named = list_kinds(config, key, count_layers(config), kinds)
    if named is None:
        return numbers
    if numbers is not None:
        config.refuse_contradiction(key, named, other, [kinds[each] for each in numbers])
    return [kinds.index(each) for each in named]


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
        raise config.refuse("only 'moe_layer_frequency' 1 and 'parallel_attn_mlp_res' true are covered for this family")
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


def read_axk1(config: HuggingFaceConfig) -> LayerPattern:
    """A.X-K1: latent attention, DeepSeek's experts with a norm after them, first dense layers."""
    layers = count_layers(config)
    if config.whole("moe_layer_freq", default=1) != 1:
        raise config.refuse("'moe_layer_freq' is not 1, which is all that is covered for this family")
    latent = read_latent_attention(config)
    dense, experts, first = _deepseek_feedforwards(config, layers)
    note_prediction(config, "num_nextn_predict_layers")
    blocks = [
        Block(mixers=(latent,), feedforwards=(dense if place < first else experts,), norms=2 if place < first else 3)
        for place in range(layers)
    ]
    return build_pattern(config, blocks, tied=False)


def read_mistral_large4(config: HuggingFaceConfig) -> LayerPattern:
    """Mistral Large 4: sparse latent attention, without rotation in every fourth layer; first dense layers."""
    layers = count_layers(config)
    _refuse_shared_indexers(config, layers)
    rotated = list_kinds(config, "no_rope_layers", layers, (0, 1))
    if rotated is None:
        raise config.refuse("'no_rope_layers' is missing; it must list 1 for each layer with rotation, else 0")
    sources = config.items("kv_source_layers")
    if sources is not None and sources != list(range(layers)):
        raise config.refuse("'kv_source_layers' lets layers share keys and values, which is not covered")
    rope, nope = config.whole("qk_rope_head_dim"), config.whole("qk_nope_head_dim")
    shape: dict[str, Any] = {"scaled_scores": True, "indexer": _token_indexer(config)}
    attentions = (
        read_latent_attention(config, nope_head_dim=nope + rope, rope_head_dim=0, **shape),
        read_latent_attention(config, **shape),
    )
    dense, experts, first = _deepseek_feedforwards(config, layers)
    blocks = [
        Block(mixers=(attentions[each],), feedforwards=(dense if place < first else experts,))
        for place, each in enumerate(rotated)
    ]
    # a scale of each pair of rotated elements, shared by all layers
    return build_pattern(config, blocks, tied=False, other_parameters=rope // 2)


def read_glm5_next(config: HuggingFaceConfig) -> LayerPattern:
    """GLM-5.3: Kimi delta attention, and latent attention with pooled indexers, between several residual streams."""
    layers = count_layers(config)
    _refuse_shared_indexers(config, layers)
    kinds = list_kinds(config, "layer_types", layers, ("linear_attention", "indexed_attention"))
    if kinds is None:
        raise config.refuse(
            "'layer_types' is missing; it must list linear_attention or indexed_attention for each layer"
        )
    delta = KimiDeltaLayer(
        heads=config.whole("linear_num_heads"),
        head_dim=config.whole("linear_head_dim"),
        kernel=config.whole("linear_conv_kernel_dim"),
    )
    latent = read_latent_attention(
        config, indexer=_token_indexer(config, pooled=config.whole("index_kpool", default=1))
    )
    dense, experts, first = _deepseek_feedforwards(config, layers)
    additions = (HyperConnections(streams=config.whole("hc_mult")),)
    note_prediction(config, "num_nextn_predict_layers")
    blocks = [
        Block(
            mixers=(delta if kind == "linear_attention" else latent,),
            feedforwards=(dense if place < first else experts,),
            additions=additions,
        )
        for place, kind in enumerate(kinds)
    ]
    return build_pattern(config, blocks, tied=False)


def _token_indexer(config: HuggingFaceConfig, **more: Any) -> TokenIndexer:
    return TokenIndexer(
        heads=config.whole("index_n_heads"),
        head_dim=config.whole("index_head_dim"),
        top_k=config.whole("index_topk"),
        **more,
    )


def _refuse_shared_indexers(config: HuggingFaceConfig, layers: int) -> None:
    kinds = list_kinds(config, "indexer_types", layers, ("full", "shared"))
    if kinds is not None and "shared" in kinds:
        raise config.refuse("'indexer_types' has shared; only full is covered for this family")


def _deepseek_feedforwards(config: HuggingFaceConfig, layers: int) -> tuple[FeedForwardLayer, ExpertsLayer, int]:
    """Return (the MLP, the mixture with shared experts, the number of first layers with the MLP)."""
    first = config.leading("mlp_layer_types", "dense", "sparse", layers)
    width = config.whole("moe_intermediate_size")
    experts = ExpertsLayer(
        routed=config.whole("n_routed_experts"),
        top_k=config.whole("num_experts_per_tok"),
        width=width,
        shared_width=config.whole("n_shared_experts") * width,
    )
    dense = FeedForwardLayer(width=config.whole("intermediate_size"))
    return dense, experts, config.whole("first_k_dense_replace") if first is None else first


def read_step3(config: HuggingFaceConfig) -> LayerPattern:
    """Step-3.5 and 3.7: windowed layers with other heads, gates per head, first dense layers."""
    layers = count_layers(config)
    extra = config.whole("num_nextn_predict_layers", "num_mtp_layers", default=0)
    kinds = list_kinds(config, "layer_types", layers, ("sliding_attention", "full_attention"), extra=extra)
    if kinds is None:
        raise config.refuse("'layer_types' is missing; it must list sliding_attention or full_attention for each layer")
    other = config.part("attention_other_setting")
    named = other.content.get("attention_type") == "sliding_attention"
    if not named and not config.has("num_sliding_attention_heads"):  # the latter as version 5 saves it
        raise config.refuse(
            "'attention_other_setting' is missing; without it the heads of windowed layers are not known"
        )
    bias = config.flag("attention_bias", False)
    shared: dict[str, Any] = {
        "qkv_bias": bias,
        "output_bias": bias,
        "gate": "head" if config.flag("use_head_wise_attn_gate", True) else "none",
        "qk_norm": "head" if config.flag("use_qk_norm", True) else "none",
    }
    attention = read_attention(config, **shared)
    windowed = AttentionLayer(
        heads=other.whole("num_attention_heads") if named else config.whole("num_sliding_attention_heads"),
        kv_heads=other.whole("num_attention_groups", default=None if named else attention.kv_heads),
        head_dim=other.whole("head_dim", default=attention.head_dim),
        window=config.whole("sliding_window"),
        **shared,
    )
    dense = FeedForwardLayer(width=config.whole("intermediate_size"))
    experts = ExpertsLayer(
        routed=config.whole("num_experts", "moe_num_experts"),
        top_k=config.whole("num_experts_per_tok", "moe_top_k"),
        width=config.whole("moe_intermediate_size"),
        shared_width=config.whole("share_expert_dim", "share_expert_dims", default=0),
    )
    note_prediction(config, "num_nextn_predict_layers", "num_mtp_layers")
    is_sparse = _sparse_layers(config, layers, extra)
    blocks = [
        Block(
            mixers=(windowed if kind == "sliding_attention" else attention,),
            feedforwards=(experts if sparse else dense,),
        )
        for kind, sparse in zip(kinds, is_sparse, strict=True)
    ]
    return build_pattern(config, blocks, tied=False)


def _sparse_layers(config: HuggingFaceConfig, layers: int, extra: int) -> list[bool]:
    """Return for each layer of a Step model whether it has experts."""
    kinds = list_kinds(config, "mlp_layer_types", layers, ("dense", "sparse"), extra=extra)
    is_stated = config.has("moe_layers_enum", "first_k_dense_replace")
    if kinds is not None and not is_stated:  # as version 5 saves it
        return [each == "sparse" for each in kinds]
    numbered = _numbered_sparse_layers(config, layers, extra)
    if kinds is not None:
        key = "moe_layers_enum" if config.has("moe_layers_enum") else "first_k_dense_replace"
        config.refuse_contradiction("mlp_layer_types", kinds, key, ["sparse" if each else "dense" for each in numbered])
    return numbered


def _numbered_sparse_layers(config: HuggingFaceConfig, layers: int, extra: int) -> list[bool]:
    listed = config.get("moe_layers_enum")
    if listed is None:
        first = config.usual("first_k_dense_replace", 3)
        return [place >= first for place in range(layers)]
    numbers = [
        str(each).strip()
        for each in (listed.split(",") if isinstance(listed, str) else config.items("moe_layers_enum") or [])
    ]
    if not numbers or not all(each.isdecimal() and int(each) < layers + extra for each in numbers):
        raise config.refuse(
            f"'moe_layers_enum' is {shown(listed)}; it must list layers with experts, from 0 to {layers - 1}"
        )
    chosen = {int(each) for each in numbers}
    return [place in chosen for place in range(layers)]


MIXED_FAMILIES: dict[str, tuple[str, Callable[[HuggingFaceConfig], LayerPattern]]] = {
    "arctic": ("Arctic", read_arctic),
    "axk1": ("A.X", read_axk1),
    "deepseek_v4": ("DeepSeek", read_deepseek_v4),
    "gemma3n": ("Gemma", read_gemma3n),
    "gemma3n_text": ("Gemma", read_gemma3n),
    "gemma4": ("Gemma", read_gemma4),
    "gemma4_text": ("Gemma", read_gemma4),
    "glm5_next": ("GLM", read_glm5_next),
    "glm5_next_text": ("GLM", read_glm5_next),
    "longcat_flash": ("LongCat", read_longcat),
    "mimo_v2_flash": ("MiMo", read_mimo_v2),
    "minimax_m3": ("MiniMax", read_minimax_m3),
    "minimax_m3_vl": ("MiniMax", read_minimax_m3),
    "minimax_m3_vl_text": ("MiniMax", read_minimax_m3),
    "mistral_large4": ("Mistral", read_mistral_large4),
    "mistral_large4_text": ("Mistral", read_mistral_large4),
    "step3p5": ("Step", read_step3),
    "step3p7": ("Step", read_step3),
}
"""By `model_type`: the name of the family here, and the function that reads its config.json."""
