"""Parameters of a block, an expert layer and the vocabulary, in elements of the whole model.

Sources: counts of the layers' matrices; latent attention, DeepSeek-V2 (arXiv:2405.04434, section 2.1).
"""

from __future__ import annotations

import numpy as np

from engine.cost_models.calibrated.physics.inputs import Floats, ModelShapes

__all__ = [
    "attention_weights",
    "dense_weights",
    "embedding_weights",
    "expert_weights",
    "router_weights",
    "shared_weights",
]


def attention_weights(model: ModelShapes, tensor_par: Floats | float = 1.0) -> Floats:
    """Returns the projections of one attention layer on one processor [rows] [elements]; latent attention has low-rank
    ones.

    Key and value heads that a tensor-parallel group has not enough of, and the compressions of latent attention, are
    repeated on its ranks; all else is split.

    Args:
        model: shapes of the models, numbers or arrays [rows].
        tensor_par: tensor-parallel degree [rows].
    """
    heads = np.maximum(model.key_value_heads, tensor_par)
    # h (a + kv) d_k for queries and keys, h (a + kv) d_v for values and the output projection.
    plain = model.hidden * (model.attn_heads + heads) * (model.attn_size + model.value_size)
    # DeepSeek-V2, section 2.1: W_UQ and W_QR, W_UK and W_UV, W_O are split by heads; W_DQ, W_DKV and W_KR are not.
    query = np.where(model.query_rank > 0, model.query_rank, model.hidden) * model.attn_heads * model.attn_size
    key_value = model.key_value_rank * model.attn_heads * (model.attn_size - model.rope_size + model.value_size)
    split = query + key_value + model.attn_heads * model.value_size * model.hidden
    compressed = model.hidden * (model.query_rank + model.key_value_rank + model.rope_size)
    return np.where(model.latent > 0, split / tensor_par + compressed, plain / tensor_par)


def dense_weights(model: ModelShapes) -> Floats:
    """Returns the parameters of a plain or gated feed-forward layer [rows] [elements].

    Args:
        model: shapes of the models, numbers or arrays [rows].
    """
    return (2.0 + model.gated) * model.hidden * model.feedforward


def expert_weights(model: ModelShapes) -> Floats:
    """Returns the parameters of all routed experts of one layer [rows] [elements].

    Args:
        model: shapes of the models, numbers or arrays [rows].
    """
    return model.experts * (2.0 + model.gated) * model.hidden * model.expert_feedforward


def shared_weights(model: ModelShapes) -> Floats:
    """Returns the parameters of the shared experts of one layer [rows] [elements].

    Args:
        model: shapes of the models, numbers or arrays [rows].
    """
    return model.shared_experts * (2.0 + model.gated) * model.hidden * model.expert_feedforward


def router_weights(model: ModelShapes) -> Floats:
    """Returns the parameters of the router of one layer of experts [rows] [elements].

    Args:
        model: shapes of the models, numbers or arrays [rows].
    """
    return model.hidden * model.experts


def embedding_weights(model: ModelShapes) -> Floats:
    """Returns the parameters of one vocabulary matrix, input or output [rows] [elements].

    Args:
        model: shapes of the models, numbers or arrays [rows].
    """
    return model.vocabulary * model.hidden
