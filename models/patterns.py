"""Layers of a plain architecture: its attention, its MLP or experts, and its pattern of blocks."""

from __future__ import annotations

from models.architecture import Architecture
from models.layers.attention import AttentionLayer
from models.layers.experts import ExpertsLayer
from models.layers.feedforward import FeedForwardLayer
from models.layers.latent_attention import LatentAttentionLayer, TokenIndexer
from models.layers.pattern import Block, LayerPattern, runs_of

__all__ = ["attention_layer", "feedforward_layer", "pattern_of"]


def attention_layer(
    architecture: Architecture, *, window: int | None = None, has_indexer: bool = True
) -> AttentionLayer | LatentAttentionLayer:
    """Return the attention of a block.

    Args:
        architecture: the published one.
        window: tokens that the block attends to; all where None.
        has_indexer: False for a block that shares the indexer of an earlier one.
    """
    latent, sparse = architecture.latent_attention, architecture.sparse_attention
    if latent is not None:
        indexer = None
        if sparse is not None:
            indexer = TokenIndexer(
                heads=sparse.heads, head_dim=sparse.head_dim, top_k=sparse.top_k, is_shared=not has_indexer
            )
        return LatentAttentionLayer(
            heads=architecture.heads,
            q_rank=latent.q_rank,
            kv_rank=latent.kv_rank,
            nope_head_dim=latent.nope_head_dim,
            rope_head_dim=latent.rope_head_dim,
            v_head_dim=latent.v_head_dim,
            indexer=indexer,
        )
    normed = architecture.qk_norm_over if architecture.qk_norm else "none"
    return AttentionLayer(
        heads=architecture.heads,
        kv_heads=architecture.kv_heads,
        head_dim=architecture.head_dim,
        window=window,
        chunked=window is not None and architecture.window_kind == "chunked",
        qkv_bias=bool(architecture.qkv_bias),
        output_bias=bool(architecture.linear_bias),
        qk_norm=normed if architecture.qk_norm_weighted or normed == "none" else "weightless",
        sinks=architecture.attention_sinks,
        relative_positions=architecture.positions == "relative",
    )


def feedforward_layer(architecture: Architecture, *, experts: bool) -> FeedForwardLayer | ExpertsLayer:
    """Return the feedforward layer of a block.

    Args:
        architecture: the published one.
        experts: True for a block with a mixture of experts.
    """
    mixture, bias = architecture.experts, bool(architecture.linear_bias)
    if not experts or mixture is None:
        return FeedForwardLayer(
            width=architecture.ffn,
            gated=architecture.gated_mlp,
            bias=bias,
            activation_weights=architecture.activation_weights,
        )
    return ExpertsLayer(
        routed=mixture.routed,
        top_k=mixture.top_k,
        width=mixture.ffn,
        gated=architecture.gated_mlp,
        bias=bias,
        shared_width=mixture.shared_width,
        router_bias=mixture.router_bias,
        groups=mixture.groups,
        groups_per_token=mixture.groups_per_token,
    )


def _norm_width(architecture: Architecture) -> int:
    """Return the weights of a norm per element."""
    if not architecture.norm_scale:
        return 0
    return 1 if architecture.norm == "RMSNorm" or not architecture.norm_shift else 2


def pattern_of(architecture: Architecture) -> LayerPattern:
    """Return the pattern of blocks of an architecture.

    Layers with an indexer of their own are taken as the first ones: their number is recorded, not their places.

    Args:
        architecture: the published one.
    """
    own = architecture.indexer_layers
    layers = [
        (window, experts, place < own)
        for place, (window, experts) in enumerate(zip(architecture.windows, architecture.expert_layers, strict=True))
    ]
    kinds, runs = runs_of(layers)
    blocks = tuple(
        Block(
            mixers=(attention_layer(architecture, window=window, has_indexer=has_indexer),),
            feedforwards=(feedforward_layer(architecture, experts=experts),),
            norms=architecture.norms_per_block,
        )
        for window, experts, has_indexer in kinds
    )
    positions = architecture.hidden * (architecture.max_seq or 0) if architecture.positions == "learned" else 0
    return LayerPattern(
        hidden=architecture.hidden,
        blocks=blocks,
        runs=runs,
        vocab=architecture.vocab_padded,
        tied_embeddings=architecture.tied_embeddings,
        norm_width=_norm_width(architecture),
        other_parameters=positions,
        max_seq=architecture.max_seq,
    )
