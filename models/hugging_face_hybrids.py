"""As `hugging_face_families`, for hybrids: state spaces, linear attention and recurrences besides attention.

Keys, defaults and fixed choices come from the family's configuration and modelling files in Hugging Face Transformers.
"""

from __future__ import annotations

from collections.abc import Callable

from models.documents import shown
from models.hugging_face_config import HuggingFaceConfig
from models.hugging_face_pattern_parts import (
    MOST_LAYERS,
    build_pattern,
    count_layers,
    list_kinds,
    note_prediction,
    read_attention,
    read_latent_attention,
)
from models.layers.attention import AttentionLayer
from models.layers.experts import ExpertsLayer
from models.layers.feedforward import FeedForwardLayer
from models.layers.linear_attention import GatedDeltaNetLayer, KimiDeltaLayer, LightningLayer
from models.layers.pattern import Block, LayerPattern
from models.layers.recurrence import GatedRecurrenceLayer, ShortConvolutionLayer
from models.layers.residual import ResidualAttention
from models.layers.state_space import Mamba1Layer, Mamba2Layer

__all__ = ["HYBRID_FAMILIES"]


def read_qwen3_next(config: HuggingFaceConfig) -> LayerPattern:
    """Qwen3-Next and Qwen3.5: gated delta nets, and attention with a gated output in every fourth layer."""
    layers = count_layers(config)
    kinds = list_kinds(config, "layer_types", layers, ("linear_attention", "full_attention"))
    if kinds is None or config.has("full_attention_interval"):
        by_rule = list_every(config, layers, config.whole("full_attention_interval", default=4))
        kinds = by_rule if kinds is None else kinds
        config.refuse_contradiction("layer_types", kinds, "full_attention_interval", by_rule)
    gate = "element" if config.flag("attn_output_gate", True) else "none"
    attention = read_attention(config, gate=gate, qk_norm="head")
    delta = GatedDeltaNetLayer(
        key_heads=config.whole("linear_num_key_heads"),
        value_heads=config.whole("linear_num_value_heads"),
        key_head_dim=config.whole("linear_key_head_dim"),
        value_head_dim=config.whole("linear_value_head_dim"),
        kernel=config.whole("linear_conv_kernel_dim"),
    )
    if config.items("mlp_only_layers"):
        raise config.refuse("'mlp_only_layers' is not empty, which is not covered for this family")
    if config.whole("decoder_sparse_step", default=1) != 1:
        raise config.refuse("'decoder_sparse_step' is not 1, which is all that is covered for this family")
    feedforward: FeedForwardLayer | ExpertsLayer
    if config.has("num_experts"):
        feedforward = ExpertsLayer(
            routed=config.whole("num_experts"),
            top_k=config.whole("num_experts_per_tok"),
            width=config.whole("moe_intermediate_size"),
            shared_width=config.whole("shared_expert_intermediate_size"),
            shared_gate=True,
        )
    else:
        feedforward = FeedForwardLayer(width=config.whole("intermediate_size"))
    note_prediction(config, "mtp_num_hidden_layers")
    blocks = [
        Block(mixers=(attention if kind.startswith("full") else delta,), feedforwards=(feedforward,)) for kind in kinds
    ]
    return build_pattern(config, blocks, tied=False)


def list_every(config: HuggingFaceConfig, layers: int, interval: int) -> list[str]:
    """Return "full_attention" for each `interval`-th layer, counted from 1, and "linear_attention" for the others."""
    if interval < 1:
        raise config.refuse(
            f"'full_attention_interval' is {interval}; it must be at least 1, and every such layer has full attention"
        )
    return ["linear_attention" if number % interval else "full_attention" for number in range(1, layers + 1)]


def read_nemotron_h(config: HuggingFaceConfig) -> LayerPattern:
    """Nemotron-H and Nemotron 3: Mamba-2, attention, MLP or experts, one in each layer."""
    pattern = config.content.get("hybrid_override_pattern")
    letters = {"mamba": "M", "attention": "*", "mlp": "-", "moe": "E"}
    letters |= {"linear_attention": "M", "full_attention": "*"}  # version 5's words
    if (named := config.items("layers_block_type")) is not None:
        unknown = next((each for each in named if not isinstance(each, str) or each not in letters), None)
        if unknown is not None or None in named:
            raise config.refuse(f"'layers_block_type' has {shown(unknown)}; it may have {', '.join(letters)}")
        listed = "".join(letters[each] for each in named)
        pattern = listed if pattern is None else pattern
        if isinstance(pattern, str) and len(pattern) == len(listed):
            config.refuse_contradiction("layers_block_type", listed, "hybrid_override_pattern", pattern)
    if not isinstance(pattern, str) or not pattern or set(pattern) - set("M*-E"):
        raise config.refuse(
            f"'hybrid_override_pattern' is {shown(pattern)}; it must be text of M, *, - and E, one per layer"
        )
    if len(pattern) > MOST_LAYERS or (config.has("num_hidden_layers") and count_layers(config) != len(pattern)):
        raise config.refuse(
            f"'hybrid_override_pattern' has {len(pattern):,} layers and 'num_hidden_layers' says "
            f"{config.get('num_hidden_layers')}; they must agree"
        )
    mamba = Mamba2Layer(
        heads=config.whole("mamba_num_heads"),
        head_dim=config.whole("mamba_head_dim"),
        states=config.whole("ssm_state_size"),
        groups=config.whole("n_groups"),
        kernel=config.whole("conv_kernel"),
        chunk=config.whole("chunk_size", default=128),
    )
    if not config.flag("use_conv_bias", True):
        raise config.refuse("'use_conv_bias' is false, which is not covered for this family")
    layers: dict[str, Block] = {"M": Block(mixers=(mamba,), norms=1)}
    if "*" in pattern:
        head_dim = config.whole("head_dim", "attention_head_dim", default=128)
        layers["*"] = Block(mixers=(read_attention(config, head_dim=head_dim),), norms=1)
    if "-" in pattern:
        dense = FeedForwardLayer(width=config.whole("intermediate_size"), gated=False)
        layers["-"] = Block(feedforwards=(dense,), norms=1)
    if "E" in pattern:
        experts = ExpertsLayer(
            routed=config.whole("n_routed_experts"),
            top_k=config.whole("num_experts_per_tok"),
            width=config.whole("moe_intermediate_size"),
            gated=False,
            shared_width=config.whole("n_shared_experts", default=0)
            * config.whole("moe_shared_expert_intermediate_size", default=0),
            latent=config.whole("moe_latent_size") if config.has("moe_latent_size") else None,
        )
        layers["E"] = Block(feedforwards=(experts,), norms=1)
    note_prediction(config, "num_nextn_predict_layers")
    return build_pattern(config, [layers[letter] for letter in pattern], tied=False)


def read_kimi_linear(config: HuggingFaceConfig) -> LayerPattern:
    """Kimi Linear and K3: Kimi delta attention, and latent attention in some layers, listed from 1."""
    layers, linear = count_layers(config), config.part("linear_attn_config")
    full, delta_layers = linear.items("full_attn_layers") or [], linear.items("kda_layers") or []
    if sorted([*full, *delta_layers], key=str) != sorted(range(1, layers + 1), key=str):
        raise config.refuse(
            f"'linear_attn_config' must list each of the layers 1 to {layers} in 'full_attn_layers' or 'kda_layers'"
        )
    gated = config.flag("mla_use_output_gate", False)
    delta = KimiDeltaLayer(
        heads=linear.whole("num_heads"),
        head_dim=linear.whole("head_dim"),
        kernel=linear.whole("short_conv_kernel_size"),
        full_rank_gate=linear.flag("use_full_rank_gate", gated),  # Kimi K3 has both
    )
    latent = read_latent_attention(config, gated=gated)
    if config.whole("moe_layer_freq", default=1) != 1:
        raise config.refuse("'moe_layer_freq' is not 1, which is all that is covered for this family")
    inside = config.whole("routed_expert_hidden_size") if config.has("routed_expert_hidden_size") else None
    experts = ExpertsLayer(
        routed=config.whole("num_experts"),
        top_k=config.whole("num_experts_per_tok"),
        width=config.whole("moe_intermediate_size"),
        shared_width=config.whole("num_shared_experts", default=0) * config.whole("moe_intermediate_size"),
        latent=inside,
        latent_norm=config.flag("latent_moe_use_norm", False),
    )
    dense = FeedForwardLayer(width=config.whole("intermediate_size"))
    bank = config.whole("attn_res_block_size", default=0)
    additions = (ResidualAttention(block_size=bank),) if bank else ()
    first, hidden = config.whole("first_k_dense_replace", default=0), config.whole("hidden_size")
    blocks = [
        Block(
            mixers=(latent if number in full else delta,),
            feedforwards=(dense if number <= first else experts,),
            additions=additions,
        )
        for number in range(1, layers + 1)
    ]
    return build_pattern(config, blocks, tied=False, other_parameters=2 * hidden if bank else 0)


def read_jamba(config: HuggingFaceConfig) -> LayerPattern:
    """Jamba: Mamba-1 with norms, attention in every eighth layer, experts in every second."""
    layers, hidden = count_layers(config), config.whole("hidden_size")
    inner = config.whole("mamba_expand", default=2) * hidden
    rank = config.get("mamba_dt_rank")
    mamba = Mamba1Layer(
        inner=inner,
        states=config.whole("mamba_d_state"),
        step_rank=-(-hidden // 16) if rank in (None, "auto") else config.whole("mamba_dt_rank"),
        kernel=config.whole("mamba_d_conv"),
        normed=True,
    )
    if config.flag("mamba_proj_bias", False) or not config.flag("mamba_conv_bias", True):
        raise config.refuse("only 'mamba_proj_bias' false and 'mamba_conv_bias' true are covered for this family")
    attention = read_attention(config)
    dense = FeedForwardLayer(width=config.whole("intermediate_size"))
    experts: FeedForwardLayer | ExpertsLayer = dense  # a single expert has no router
    if config.whole("num_experts") > 1:
        experts = ExpertsLayer(
            routed=config.whole("num_experts"),
            top_k=config.whole("num_experts_per_tok"),
            width=config.whole("intermediate_size"),
        )
    periods = [
        (config.whole(f"{name}_layer_period"), config.whole(f"{name}_layer_offset")) for name in ("attn", "expert")
    ]
    for name, (period, offset) in zip(("attn", "expert"), periods, strict=True):
        if offset >= period:
            raise config.refuse(
                f"'{name}_layer_offset' is {offset} and '{name}_layer_period' {period}; the offset must be below it"
            )
    blocks = []
    for place in range(layers):
        mixes, chooses = (place % period == offset for period, offset in periods)
        blocks.append(Block(mixers=(attention if mixes else mamba,), feedforwards=(experts if chooses else dense,)))
    return build_pattern(config, blocks, tied=False)


def read_mamba2(config: HuggingFaceConfig) -> LayerPattern:
    """Mamba-2: state spaces alone."""
    if config.flag("use_bias", False) or not config.flag("use_conv_bias", True):
        raise config.refuse("only 'use_bias' false and 'use_conv_bias' true are covered for this family")
    layer = Mamba2Layer(
        heads=config.whole("num_heads"),
        head_dim=config.whole("head_dim"),
        states=config.whole("state_size"),
        groups=config.whole("n_groups"),
        kernel=config.whole("conv_kernel"),
        chunk=config.whole("chunk_size", default=256),
    )
    return build_pattern(config, [Block(mixers=(layer,), norms=1)] * count_layers(config), tied=False)


def read_minimax_m1(config: HuggingFaceConfig) -> LayerPattern:
    """MiniMax-01 and M1: lightning attention, and attention in every eighth layer; experts in all."""
    layers = count_layers(config)
    words = ("linear_attention", "full_attention")
    numbers, named = (
        list_kinds(config, "attn_type_list", layers, (0, 1)),
        list_kinds(config, "layer_types", layers, words),
    )
    if numbers is None and named is None:
        raise config.refuse("neither 'attn_type_list' nor 'layer_types' says which layers have lightning attention")
    kinds = numbers if numbers is not None else [words.index(each) for each in named or ()]
    if named is not None:
        config.refuse_contradiction("attn_type_list", [words[each] for each in kinds], "layer_types", named)
    if config.whole("shared_intermediate_size", default=0):
        raise config.refuse("'shared_intermediate_size' is not 0; shared experts are not covered for this family")
    attention = read_attention(config)
    lightning = LightningLayer(heads=attention.heads, head_dim=attention.head_dim)
    experts = ExpertsLayer(
        routed=config.whole("num_local_experts"),
        top_k=config.whole("num_experts_per_tok"),
        width=config.whole("intermediate_size"),
    )
    blocks = [Block(mixers=(attention if kind else lightning,), feedforwards=(experts,)) for kind in kinds]
    return build_pattern(config, blocks, tied=False)


def _named_mamba2(config: HuggingFaceConfig, *, inner: int, normed: bool = True) -> Mamba2Layer:
    """Return the Mamba-2 of families that name its keys `mamba_*`."""
    if config.flag("mamba_proj_bias", False) or not config.flag("mamba_conv_bias", True):
        raise config.refuse("only 'mamba_proj_bias' false and 'mamba_conv_bias' true are covered for this family")
    heads = config.whole("mamba_n_heads")
    dim = config.get("mamba_d_head")
    head_dim = inner // max(heads, 1) if dim in (None, "auto") else config.whole("mamba_d_head")
    if heads * head_dim != inner:
        raise config.refuse(
            f"'mamba_n_heads' x 'mamba_d_head' is {heads} x {head_dim}; it must be Mamba's inner width of {inner}, "
            "'mamba_expand' x 'hidden_size' or 'mamba_d_ssm'"
        )
    return Mamba2Layer(
        heads=heads,
        head_dim=head_dim,
        states=config.whole("mamba_d_state"),
        groups=config.whole("mamba_n_groups"),
        kernel=config.whole("mamba_d_conv"),
        normed=normed,
        chunk=config.whole("mamba_chunk_size", default=256),
    )


def read_granite_hybrid(config: HuggingFaceConfig) -> LayerPattern:
    """Granite 4.0-H: Mamba-2, and attention in some layers; experts with a shared one in all."""
    layers = count_layers(config)
    words = ("mamba", "attention", "linear_attention", "full_attention")  # the latter two of version 5
    kinds = list_kinds(config, "layer_types", layers, words)
    if kinds is None:
        raise config.refuse("'layer_types' is missing; it must list mamba or attention for each layer")
    inner = config.whole("mamba_expand", default=2) * config.whole("hidden_size")
    mamba, attention = _named_mamba2(config, inner=inner), read_attention(config)
    feedforward: FeedForwardLayer | ExpertsLayer
    if config.whole("num_local_experts", default=0):
        feedforward = ExpertsLayer(
            routed=config.whole("num_local_experts"),
            top_k=config.whole("num_experts_per_tok"),
            width=config.whole("intermediate_size"),
            shared_width=config.whole("shared_intermediate_size"),
        )
    else:
        feedforward = FeedForwardLayer(width=config.whole("shared_intermediate_size"))
    blocks = [
        Block(mixers=(mamba if kind in ("mamba", "linear_attention") else attention,), feedforwards=(feedforward,))
        for kind in kinds
    ]
    return build_pattern(config, blocks, tied=True)


def read_falcon_h1(config: HuggingFaceConfig) -> LayerPattern:
    """Falcon-H1: Mamba-2 and attention side by side in each layer."""
    expanded = config.whole("mamba_expand", default=2) * config.whole("hidden_size")
    inner = config.whole("mamba_d_ssm", default=expanded)
    mamba = _named_mamba2(config, inner=inner, normed=config.flag("mamba_rms_norm", False))
    block = Block(
        mixers=(mamba, read_attention(config)),
        feedforwards=(FeedForwardLayer(width=config.whole("intermediate_size")),),
    )
    return build_pattern(config, [block] * count_layers(config), tied=False)


def read_bamba(config: HuggingFaceConfig) -> LayerPattern:
    """Bamba: Mamba-2, and attention in the listed layers."""
    layers, listed = count_layers(config), config.items("attn_layer_indices")
    if not listed or any(isinstance(each, bool) or each not in range(layers) for each in listed):
        raise config.refuse(
            f"'attn_layer_indices' is {shown(listed)}; it must list layers with attention, from 0 to {layers - 1}"
        )
    mamba = _named_mamba2(config, inner=config.whole("mamba_expand", default=2) * config.whole("hidden_size"))
    attention, dense = read_attention(config), FeedForwardLayer(width=config.whole("intermediate_size"))
    blocks = [
        Block(mixers=(attention if place in listed else mamba,), feedforwards=(dense,)) for place in range(layers)
    ]
    return build_pattern(config, blocks, tied=False)


def read_lfm2(config: HuggingFaceConfig) -> LayerPattern:
    """LFM2: short convolutions, and attention in the listed layers; the MLP's width is adjusted."""
    layers = count_layers(config)
    kinds = list_kinds(config, "layer_types", layers, ("conv", "full_attention"))
    listed = config.items("full_attn_idxs")
    if kinds is None and not listed:
        raise config.refuse("neither 'layer_types' nor 'full_attn_idxs' says which layers have attention")
    if any(isinstance(each, bool) or each not in range(layers) for each in listed or ()):
        raise config.refuse(
            f"'full_attn_idxs' is {shown(listed)}; it must list layers with attention, from 0 to {layers - 1}"
        )
    by_number = ["full_attention" if place in (listed or ()) else "conv" for place in range(layers)]
    if kinds is not None and listed:
        config.refuse_contradiction("layer_types", kinds, "full_attn_idxs", by_number)
    full = [each == "full_attention" for each in (by_number if kinds is None else kinds)]
    width = config.whole("block_ff_dim", "intermediate_size")
    if config.flag("block_auto_adjust_ff_dim", True):
        # two thirds, times the multiplier, rounded up to a multiple
        width = int((config.number("block_ffn_dim_multiplier", 1.0) or 1.0) * int(2 * width / 3))
        multiple = max(config.whole("block_multiple_of", default=256), 1)
        width = multiple * -(-width // multiple)
    attention = read_attention(config, qk_norm="head", qkv_bias=False, output_bias=False)
    convolution = ShortConvolutionLayer(kernel=config.whole("conv_L_cache"), bias=config.flag("conv_bias", False))
    dense = FeedForwardLayer(width=width)
    blocks = [Block(mixers=(attention if each else convolution,), feedforwards=(dense,)) for each in full]
    return build_pattern(config, blocks, tied=True)


def read_recurrent_gemma(config: HuggingFaceConfig) -> LayerPattern:
    """RecurrentGemma: gated linear recurrences, and windowed attention in every third layer."""
    layers, words = count_layers(config), config.items("block_types") or ["recurrent", "recurrent", "attention"]
    if set(map(str, words)) - {"recurrent", "attention"}:
        raise config.refuse(f"'block_types' is {shown(words)}; it may have recurrent and attention")
    hidden, heads = config.whole("hidden_size"), config.whole("num_attention_heads")
    width = config.whole("lru_width", default=hidden)
    if not heads or width % heads:
        raise config.refuse(f"'lru_width' {width} is no multiple of {heads} heads, the blocks of its gates")
    recurrence = GatedRecurrenceLayer(width=width, blocks=heads, kernel=config.whole("conv1d_width", default=4))
    attention = AttentionLayer(
        heads=heads,
        kv_heads=config.assumed("num_key_value_heads", heads, "one per attention head"),
        head_dim=config.head_dim(hidden, heads),
        window=config.whole("attention_window_size"),
        qkv_bias=config.flag("attention_bias", False),
        output_bias=True,
    )
    if config.whole("intermediate_size") % 2:
        raise config.refuse("'intermediate_size' is odd; it is that of both branches together")
    dense = FeedForwardLayer(width=config.whole("intermediate_size") // 2, bias=True)
    blocks = [
        Block(mixers=(recurrence if words[place % len(words)] == "recurrent" else attention,), feedforwards=(dense,))
        for place in range(layers)
    ]
    return build_pattern(config, blocks, tied=True)


def read_olmo_hybrid(config: HuggingFaceConfig) -> LayerPattern:
    """OLMo Hybrid: gated delta nets, and in every fourth layer attention with norms after it and after the MLP."""
    layers, heads = count_layers(config), config.whole("num_attention_heads")
    kinds = list_kinds(config, "layer_types", layers, ("linear_attention", "full_attention"))
    if kinds is None:
        kinds = list_every(config, layers, 4)
    key_heads = config.whole("linear_num_key_heads", default=heads)
    usual = 3 * config.whole("hidden_size") // (4 * max(key_heads, 1))
    key_dim = config.whole("linear_key_head_dim", default=usual)
    delta = GatedDeltaNetLayer(
        key_heads=key_heads,
        value_heads=config.whole("linear_num_value_heads", default=heads),
        key_head_dim=key_dim,
        value_head_dim=config.whole("linear_value_head_dim", default=2 * key_dim),
        kernel=config.whole("linear_conv_kernel_dim", default=4),
    )
    attention = read_attention(config, qk_norm="heads")
    dense = FeedForwardLayer(width=config.whole("intermediate_size"))
    blocks = [Block(mixers=(attention if kind.startswith("full") else delta,), feedforwards=(dense,)) for kind in kinds]
    return build_pattern(config, blocks, tied=False)


def read_bailing_hybrid(config: HuggingFaceConfig) -> LayerPattern:
    """Ling 3: Kimi delta attention with full-rank decay and gate, and gated latent attention in every sixth layer."""
    layers = count_layers(config)
    kinds = list_kinds(config, "layer_types", layers, ("linear_attention", "full_attention"))
    if kinds is None:
        kinds = list_every(config, layers, config.whole("layer_group_size", default=6))
    delta = KimiDeltaLayer(
        heads=config.whole("linear_num_heads", "num_attention_heads"),
        head_dim=config.whole("linear_head_dim", "head_dim", default=128),
        kernel=config.whole("linear_conv_kernel_dim", "short_conv_kernel_size", default=4),
        full_rank_gate=True,
        full_rank_decay=True,
    )
    latent = read_latent_attention(config, gated=True, gate_per_head=True)
    first = config.leading("mlp_layer_types", "dense", "sparse", layers)
    if first is None:
        first = config.whole("first_k_dense_replace")
    experts = ExpertsLayer(
        routed=config.whole("num_local_experts"),
        top_k=config.whole("num_experts_per_tok"),
        width=config.whole("moe_intermediate_size"),
        shared_width=config.whole("n_shared_experts") * config.whole("moe_intermediate_size"),
    )
    dense = FeedForwardLayer(width=config.whole("intermediate_size"))
    note_prediction(config, "num_nextn_predict_layers")
    blocks = [
        Block(
            mixers=(latent if kind.startswith("full") else delta,), feedforwards=(dense if place < first else experts,)
        )
        for place, kind in enumerate(kinds)
    ]
    return build_pattern(config, blocks, tied=False)


def read_lfm2_moe(config: HuggingFaceConfig) -> LayerPattern:
    """LFM2 with experts: short convolutions, attention in the listed layers, first dense layers."""
    layers = count_layers(config)
    kinds = list_kinds(config, "layer_types", layers, ("conv", "full_attention"))
    if kinds is None:
        raise config.refuse("'layer_types' is missing; it must list conv or full_attention for each layer")
    attention = read_attention(config, qk_norm="head", qkv_bias=False, output_bias=False)
    convolution = ShortConvolutionLayer(kernel=config.whole("conv_L_cache"), bias=config.flag("conv_bias", False))
    experts = ExpertsLayer(
        routed=config.whole("num_experts"),
        top_k=config.whole("num_experts_per_tok"),
        width=config.whole("moe_intermediate_size"),
    )
    first, dense = config.whole("num_dense_layers"), FeedForwardLayer(width=config.whole("intermediate_size"))
    blocks = [
        Block(
            mixers=(attention if kind == "full_attention" else convolution,),
            feedforwards=(dense if place < first else experts,),
        )
        for place, kind in enumerate(kinds)
    ]
    return build_pattern(config, blocks, tied=config.flag("tie_embedding", True))


HYBRID_FAMILIES: dict[str, tuple[str, Callable[[HuggingFaceConfig], LayerPattern]]] = {
    "bailing_hybrid": ("Ling", read_bailing_hybrid),
    "bamba": ("Bamba", read_bamba),
    "falcon_h1": ("Falcon-H1", read_falcon_h1),
    "granitemoehybrid": ("Granite", read_granite_hybrid),
    "jamba": ("Jamba", read_jamba),
    "kimi_linear": ("Kimi", read_kimi_linear),
    "lfm2": ("LFM2", read_lfm2),
    "lfm2_moe": ("LFM2", read_lfm2_moe),
    "mamba2": ("Mamba-2", read_mamba2),
    "minimax": ("MiniMax", read_minimax_m1),
    "minimax_m1": ("MiniMax", read_minimax_m1),
    "nemotron_h": ("Nemotron", read_nemotron_h),
    "olmo_hybrid": ("OLMo", read_olmo_hybrid),
    "qwen3_5": ("Qwen3.5", read_qwen3_next),
    "qwen3_5_moe": ("Qwen3.5", read_qwen3_next),
    "qwen3_5_moe_text": ("Qwen3.5", read_qwen3_next),
    "qwen3_5_text": ("Qwen3.5", read_qwen3_next),
    "qwen3_next": ("Qwen3-Next", read_qwen3_next),
    "recurrent_gemma": ("RecurrentGemma", read_recurrent_gemma),
}
"""By `model_type`: the name of the family here, and the function that reads its config.json."""
