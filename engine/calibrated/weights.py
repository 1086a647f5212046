"""Parameters of a block, an expert layer and the vocabulary, in elements of the whole model (not yet split)."""

from __future__ import annotations

import numpy as np

from engine.calibrated.inputs import Floats, ModelShapes

__all__ = ["attention_weights", "dense_weights", "embedding_weights", "expert_weights", "router_weights", "shared_weights"]


def attention_weights(model: ModelShapes) -> Floats:
    """Projections of one attention layer [elements]; latent attention has low-rank ones."""
    plain = model.hidden * (
        (model.attn_heads + model.key_value_heads) * model.attn_size
        + (model.key_value_heads + model.attn_heads) * model.value_size
    )
    query = np.where(
        model.query_rank > 0,
        model.query_rank * (model.hidden + model.attn_heads * model.attn_size),
        model.hidden * model.attn_heads * model.attn_size,
    )
    key_value = model.hidden * (model.key_value_rank + model.rope_size) + model.key_value_rank * model.attn_heads * (
        model.attn_size - model.rope_size + model.value_size
    )
    latent = query + key_value + model.attn_heads * model.value_size * model.hidden
    return np.where(model.latent > 0, latent, plain)


def dense_weights(model: ModelShapes) -> Floats:
    """A plain or gated feed-forward layer [elements]."""
    return (2.0 + model.gated) * model.hidden * model.feedforward


def expert_weights(model: ModelShapes) -> Floats:
    """All routed experts of one layer [elements]."""
    return model.experts * (2.0 + model.gated) * model.hidden * model.expert_feedforward


def shared_weights(model: ModelShapes) -> Floats:
    """Shared experts of one layer [elements]."""
    return model.shared_experts * (2.0 + model.gated) * model.hidden * model.expert_feedforward


def router_weights(model: ModelShapes) -> Floats:
    """The router of one layer of experts [elements]."""
    return model.hidden * model.experts


def embedding_weights(model: ModelShapes) -> Floats:
    """One vocabulary matrix, input or output [elements]."""
    return model.vocabulary * model.hidden
