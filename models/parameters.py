"""Number of weights of a published architecture: by matrix, by layer, in total, and used by one token.

The kinds of layers in `models.layers` state the formulas; these are the sums that cost models and planners ask for.
"""

from __future__ import annotations

from collections.abc import Iterable

from models.architecture import Architecture
from models.layers import Product, pattern_counts
from models.layers.feedforward import FeedForwardLayer
from models.layers.latent_attention import TokenIndexer
from models.patterns import attention_layer, feedforward_layer, pattern_of


def attention_weights(architecture: Architecture, kv_heads: int | None = None) -> int:
    """Return the weights of the attention matrices of one block, without an indexer; see `indexer_weights`.

    Args:
        architecture: the published one.
        kv_heads: key and value heads in place of the published number; that where None.
    """
    shape = architecture if kv_heads is None else architecture.model_copy(update={"kv_heads": kv_heads})
    return _sum_weights(attention_layer(shape, has_indexer=False).products(architecture.hidden))


def indexer_weights(architecture: Architecture) -> int:
    """Return the weights of the matrices of one indexer of sparse attention; 0 without sparse attention.

    Args:
        architecture: the published one.
    """
    indexer, latent = _token_indexer(architecture), architecture.latent_attention
    if indexer is None:
        return 0
    source = architecture.hidden if latent is None or latent.q_rank is None else latent.q_rank
    return _sum_weights(indexer.products(architecture.hidden, source))


def mlp_weights(architecture: Architecture, ffn: int | None = None) -> int:
    """Return the weights of the matrices of one MLP, three if gated, else two.

    Args:
        architecture: the published one.
        ffn: width of the MLP in place of the ordinary one's [elements]; that where None.
    """
    width = architecture.ffn if ffn is None else ffn
    return _sum_weights(
        FeedForwardLayer.model_construct(width=width, gated=architecture.gated_mlp).products(architecture.hidden)
    )


def expert_weights(architecture: Architecture, *, active: bool = False) -> int:
    """Return the weights of the matrices of router, routed and shared experts of one layer.

    Args:
        architecture: the published one.
        active: whether only experts that one token visits count.
    """
    if architecture.experts is None:
        return 0
    products = feedforward_layer(architecture, experts=True).products(architecture.hidden)
    return sum(each.visited_parameters if active else each.parameters for each in products)


def embedding_weights(architecture: Architecture) -> int:
    """Return the weights of embedding and LM head: one matrix if tied, else two.

    Args:
        architecture: the published one.
    """
    return (1 if architecture.tied_embeddings else 2) * architecture.hidden * architecture.vocab_padded


def position_weights(architecture: Architecture) -> int:
    """Return the weights of learned position embeddings, for the longest context.

    Args:
        architecture: the published one.
    """
    return pattern_of(architecture).other_parameters


def norm_weights(architecture: Architecture) -> int:
    """Return the weights of one norm of the residual stream: a scale, and a shift of a LayerNorm that has one.

    Args:
        architecture: the published one.
    """
    return architecture.hidden * pattern_of(architecture).norm_width


def qkv_biases(architecture: Architecture) -> int:
    """Return the biases of query, key and value projections of one block; 0 if they have none.

    Args:
        architecture: the published one.
    """
    if not architecture.qkv_bias:
        return 0
    return architecture.head_dim * (architecture.heads + 2 * architecture.kv_heads)


def layer_weights(architecture: Architecture, *, experts: bool, active: bool = False) -> int:
    """Return all weights of one block. Where attention is sparse, the block has an indexer of its own.

    Args:
        architecture: the published one.
        experts: whether the block has a mixture of experts, not an ordinary MLP.
        active: whether only experts that one token visits count.
    """
    hidden = architecture.hidden
    layers = (attention_layer(architecture), feedforward_layer(architecture, experts=experts))
    weights = sum(each.count_visited_parameters(hidden) if active else each.count_parameters(hidden) for each in layers)
    return weights + architecture.norms_per_block * norm_weights(architecture)


def parameters(architecture: Architecture) -> int:
    """Return all weights of the published model, multi-token prediction left out.

    Args:
        architecture: the published one.
    """
    return pattern_counts(pattern_of(architecture)).total


def active_parameters(architecture: Architecture) -> int:
    """Return the weights that one token passes through: all but the experts it does not visit.

    Embedding and LM head count whole. Authors differ in whether they count the embedding, of which a token reads one
    row.

    Args:
        architecture: the published one.
    """
    return pattern_counts(pattern_of(architecture)).active


def prediction_parameters(architecture: Architecture) -> int:
    """Return the weights that multi-token prediction adds: per layer a block, a projection of two vectors to one,
    three norms.

    Embedding and LM head are shared with the model (DeepSeek-V3, arXiv:2412.19437, section 2.2).

    Args:
        architecture: the published one.
    """
    block = layer_weights(architecture, experts=architecture.experts is not None)
    indexer = _token_indexer(architecture)
    if indexer is not None and architecture.indexer_layers < architecture.layers:
        # the last layer shares its indexer, and so does this block
        block -= indexer_weights(architecture) + indexer.count_vectors()
    one = block + 2 * architecture.hidden**2 + 3 * norm_weights(architecture)
    return architecture.prediction_layers * one


def _token_indexer(architecture: Architecture) -> TokenIndexer | None:
    sparse = architecture.sparse_attention
    if sparse is None:
        return None
    return TokenIndexer(heads=sparse.heads, head_dim=sparse.head_dim, top_k=sparse.top_k)


def _sum_weights(products: Iterable[Product]) -> int:
    return sum(each.parameters for each in products)
