"""Parameters of a block, an expert layer and the vocabulary, in elements of the whole model (not yet split).

Sources: counts of the layers' matrices; latent attention, DeepSeek-V2 (arXiv:2405.04434, section 2.1).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from engine.cost_models.calibrated.physics.inputs import Case, Floats, ModelShapes
from engine.cost_models.calibrated.physics.stages import Stage

__all__ = [
    "Held", "LocalWeights", "attention_weights", "dense_weights", "embedding_weights", "expert_weights", "held_on",
    "local_weights", "router_weights", "shared_weights",
]  # fmt: skip


def attention_weights(model: ModelShapes, tensor_par: Floats | float = 1.0) -> Floats:
    """Projections of one attention layer on one processor [elements]; latent attention has low-rank ones.

    Key and value heads that a tensor-parallel group has not enough of, and the compressions of latent attention, are
    repeated on its ranks; all else is split.
    """
    heads = np.maximum(model.key_value_heads, tensor_par)
    plain = model.hidden * (model.attn_heads + heads) * (model.attn_size + model.value_size)
    query = np.where(model.query_rank > 0, model.query_rank, model.hidden) * model.attn_heads * model.attn_size
    key_value = model.key_value_rank * model.attn_heads * (model.attn_size - model.rope_size + model.value_size)
    split = query + key_value + model.attn_heads * model.value_size * model.hidden
    compressed = model.hidden * (model.query_rank + model.key_value_rank + model.rope_size)
    return np.where(model.latent > 0, split / tensor_par + compressed, plain / tensor_par)


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


class LocalWeights(NamedTuple):
    """Parameters on one processor [elements]: a dense block, a block of experts without and its routed experts alone,
    one vocabulary matrix."""

    dense: Floats
    sparse: Floats
    experts: Floats
    vocabulary: Floats


class Held(NamedTuple):
    """Parameters of one stage on one processor [elements]: of blocks outside experts, of experts, of the vocabulary."""

    blocks: Floats
    experts: Floats
    vocabulary: Floats


def held_on(case: Case, local: LocalWeights, stage: Stage, *, end: bool) -> Held:
    """Parameters that a stage holds on one processor [elements]; `end` says whether it is the first or the last."""
    none: Floats = np.zeros(())
    vocabulary = none
    if end:
        twice = (case.layout.pipeline_par == 1) & (case.model.tied_embeddings == 0)
        vocabulary = local.vocabulary * np.where(twice, 2.0, 1.0)
    blocks = stage.dense * local.dense
    if not np.any(stage.experts):
        return Held(blocks, none, vocabulary)
    return Held(blocks + stage.experts * local.sparse, stage.experts * local.experts, vocabulary)


def local_weights(case: Case) -> LocalWeights:
    """What tensor and expert parallelism leave on one processor [elements]; 0 experts where there are none."""
    model, layout = case.model, case.layout
    t = layout.tensor_par
    attention = attention_weights(model, t)
    split = layout.expert_par * layout.expert_tensor_par
    return LocalWeights(
        attention + dense_weights(model) / t,
        attention + shared_weights(model) / t + router_weights(model),
        np.where(model.experts > 0, expert_weights(model) / split, 0.0),
        embedding_weights(model) / t,
    )
