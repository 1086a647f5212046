"""Number of weights of a published architecture: by matrix, by layer, in total, and used by one token."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from models.architecture import Architecture


def attention_weights(architecture: Architecture, kv_heads: int | None = None) -> int:
    """Returns the weights of the attention matrices of one block.

    Ordinary attention: query, key, value, output; `kv_heads` replaces the published number. Latent attention: both
    compressions, their expansions and the output (DeepSeek-V2, arXiv:2405.04434, equations 37 to 47). Relative
    positions add the projection of the position vectors (Transformer-XL, arXiv:1901.02860, section 3.3). An indexer of
    sparse attention is not counted here, for not every layer has one; see `indexer_weights`.

    Args:
        architecture: the published one.
        kv_heads: key and value heads in place of the published number; that where None.
    """
    hidden, heads = architecture.hidden, architecture.heads
    latent = architecture.latent_attention
    if latent is not None:
        # W_DQ and W_UQ with W_QR; W_DKV with W_KR; W_UK with W_UV; W_O.
        query = heads * latent.qk_head_dim
        weights = hidden * query if latent.q_rank is None else latent.q_rank * (hidden + query)
        weights += hidden * (latent.kv_rank + latent.rope_head_dim)
        weights += latent.kv_rank * heads * (latent.nope_head_dim + latent.v_head_dim)
        weights += heads * latent.v_head_dim * hidden
    else:
        kv = architecture.kv_heads if kv_heads is None else kv_heads
        # Query and output are h x a d, key and value h x kv d.
        weights = 2 * hidden * architecture.head_dim * (heads + kv)
    if architecture.positions == "relative":
        weights += hidden * heads * architecture.head_dim
    return weights


def indexer_weights(architecture: Architecture) -> int:
    """Returns the weights of the matrices of one indexer of sparse attention; 0 without sparse attention.

    Queries of the indexer come from the compressed query; one key, and a weight per indexer head, from the input
    (DeepSeek-V3.2 technical report, section 2).

    Args:
        architecture: the published one.
    """
    index, latent = architecture.sparse_attention, architecture.latent_attention
    if index is None:
        return 0
    source = architecture.hidden if latent is None or latent.q_rank is None else latent.q_rank
    return source * index.heads * index.head_dim + architecture.hidden * (index.head_dim + index.heads)


def mlp_weights(architecture: Architecture, ffn: int | None = None) -> int:
    """Returns the weights of the matrices of one MLP, three if gated, else two; `ffn` replaces the ordinary MLP's
    width.

    Args:
        architecture: the published one.
        ffn: width of the MLP in place of the ordinary one's [elements]; that where None.
    """
    return (3 if architecture.gated_mlp else 2) * architecture.hidden * (architecture.ffn if ffn is None else ffn)


def expert_weights(architecture: Architecture, *, active: bool = False) -> int:
    """Returns the weights of router, routed and shared experts of one layer; only those one token visits if
    `active`.

    Args:
        architecture: the published one.
        active: whether only experts that one token visits count.
    """
    experts = architecture.experts
    if experts is None:
        return 0
    visited = experts.top_k if active else experts.routed
    return (
        architecture.hidden * experts.routed
        + visited * mlp_weights(architecture, experts.ffn)
        + (mlp_weights(architecture, experts.shared_width) if experts.shared else 0)
    )


def embedding_weights(architecture: Architecture) -> int:
    """Returns the weights of embedding and LM head: one matrix if tied, else two.

    Args:
        architecture: the published one.
    """
    return (1 if architecture.tied_embeddings else 2) * architecture.hidden * architecture.vocab_padded


def position_weights(architecture: Architecture) -> int:
    """Returns the weights of learned position embeddings, for the longest context.

    Args:
        architecture: the published one.
    """
    return architecture.hidden * (architecture.max_seq or 0) if architecture.positions == "learned" else 0


def norm_weights(architecture: Architecture) -> int:
    """Returns the weights of one norm of the residual stream: a scale, and a shift unless it is an RMSNorm.

    Args:
        architecture: the published one.
    """
    return architecture.hidden * (1 if architecture.norm == "RMSNorm" else 2)


def attention_vectors(architecture: Architecture) -> int:
    """Returns the biases of the attention matrices of one block, and the norms of queries and keys or of their
    latents.

    Args:
        architecture: the published one.
    """
    latent, vectors = architecture.latent_attention, 0
    if latent is not None:
        vectors += (latent.q_rank or 0) + latent.kv_rank
    elif architecture.qkv_bias:
        vectors += qkv_biases(architecture)
    if architecture.qk_norm:
        heads = (architecture.heads + architecture.kv_heads) if architecture.qk_norm_over == "heads" else 2
        vectors += heads * architecture.head_dim
    if architecture.linear_bias:
        vectors += architecture.hidden
    return vectors


def _indexer_weights_with_norm(architecture: Architecture) -> int:
    """Weights of one indexer with the LayerNorm of its key."""
    index = architecture.sparse_attention
    return 0 if index is None else indexer_weights(architecture) + 2 * index.head_dim


def qkv_biases(architecture: Architecture) -> int:
    """Returns the biases of query, key and value projections of one block; 0 if they have none.

    Args:
        architecture: the published one.
    """
    if not architecture.qkv_bias:
        return 0
    return architecture.head_dim * (architecture.heads + 2 * architecture.kv_heads)


def _mlp_biases(architecture: Architecture, ffn: int) -> int:
    if not architecture.linear_bias:
        return 0
    return (2 if architecture.gated_mlp else 1) * ffn + architecture.hidden


def layer_weights(architecture: Architecture, *, experts: bool, active: bool = False) -> int:
    """Returns all weights of one block: with a mixture of experts, or with an ordinary MLP; used by one token if
    `active`. Where attention is sparse, the block has an indexer of its own.

    Args:
        architecture: the published one.
        experts: whether the block has a mixture of experts, not an ordinary MLP.
        active: whether only experts that one token visits count.
    """
    weights = (
        attention_weights(architecture) + attention_vectors(architecture) + _indexer_weights_with_norm(architecture)
    )
    weights += architecture.norms_per_block * norm_weights(architecture)
    if not experts or architecture.experts is None:
        return weights + mlp_weights(architecture) + _mlp_biases(architecture, architecture.ffn)
    mixture = architecture.experts
    visited = mixture.top_k if active else mixture.routed
    return (
        weights
        + expert_weights(architecture, active=active)
        + visited * _mlp_biases(architecture, mixture.ffn)
        + (_mlp_biases(architecture, mixture.shared_width) if mixture.shared else 0)
    )


def parameters(architecture: Architecture) -> int:
    """Returns all weights of the published model, multi-token prediction left out: matrices, biases, norms,
    embeddings.

    Args:
        architecture: the published one.
    """
    return _model_weights(architecture, active=False)


def active_parameters(architecture: Architecture) -> int:
    """Returns the weights that one token passes through: all but the experts it does not visit. Embedding and LM head
    count whole.

    Authors differ in whether they count the embedding, of which a token reads one row.

    Args:
        architecture: the published one.
    """
    return _model_weights(architecture, active=True)


def prediction_parameters(architecture: Architecture) -> int:
    """Returns the weights that multi-token prediction adds: per layer a block, a projection of two vectors to one,
    three norms.

    Embedding and LM head are shared with the model (DeepSeek-V3, arXiv:2412.19437, section 2.2).

    Args:
        architecture: the published one.
    """
    block = layer_weights(architecture, experts=architecture.experts is not None)
    if architecture.indexer_layers < architecture.layers:  # the last layer shares its indexer, and so does this block
        block -= _indexer_weights_with_norm(architecture)
    one = block + 2 * architecture.hidden**2 + 3 * norm_weights(architecture)
    return architecture.prediction_layers * one


def _model_weights(architecture: Architecture, *, active: bool) -> int:
    mixtures = sum(architecture.expert_layers)
    return (
        (architecture.layers - mixtures) * layer_weights(architecture, experts=False)
        + (mixtures * layer_weights(architecture, experts=True, active=active) if mixtures else 0)
        + embedding_weights(architecture)
        + position_weights(architecture)
        + norm_weights(architecture)
        - (architecture.layers - architecture.indexer_layers) * _indexer_weights_with_norm(architecture)
    )
