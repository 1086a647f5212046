"""Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434, section 2.1), also with an indexer (DeepSeek-V3.2)."""

from __future__ import annotations

from typing import Literal

from models.layers.contract import Count, LayerEntity, LayerKind, Product, SequenceState, SoftmaxShape, Width

__all__ = ["LatentAttentionLayer", "TokenIndexer"]


class TokenIndexer(LayerEntity):
    """Chooses the tokens that each query attends to (DeepSeek-V3.2 technical report, section 2)."""

    heads: Count
    head_dim: Count
    """Width of an index head [elements]."""
    top_k: Width
    """Tokens that a query attends to."""
    is_shared: bool = False
    """True if the layer uses the tokens that an earlier layer chose, and has no weights of an indexer (GLM-5.2)."""

    def products(self, hidden: int, source: int) -> tuple[Product, ...]:
        """Return the products with weights: index queries, one index key, and a weight per index head.

        Args:
            hidden: width of the residual stream [elements].
            source: width from which queries are made: the compressed query, or the hidden width [elements].
        """
        if self.is_shared:
            return ()
        return (
            Product("index_query", self.heads * self.head_dim, source),
            Product("index_key", self.head_dim + self.heads, hidden),
        )

    def count_vectors(self) -> int:
        """Return the weights of the LayerNorm of index keys."""
        return 0 if self.is_shared else 2 * self.head_dim


class LatentAttentionLayer(LayerKind):
    """Keys and values from a latent of kv elements per token; n + r elements of a query head, r of them rotated."""

    kind: Literal["latent_attention"] = "latent_attention"
    heads: Count
    q_rank: Width | None = None
    """Width of the compressed query [elements]; queries are projected directly where None."""
    kv_rank: Width
    nope_head_dim: Count
    rope_head_dim: Count
    v_head_dim: Count
    gated: bool = False
    """True if the output is gated element by element by the input (Kimi K3)."""
    indexer: TokenIndexer | None = None

    @property
    def word(self) -> str:
        """Word for the kind in patterns."""
        if self.indexer is None:
            return "mla"
        return "dsa_shared" if self.indexer.is_shared else "dsa_full"

    @property
    def title(self) -> str:
        """Name of the kind in sentences."""
        return "latent attention" if self.indexer is None else "sparse latent attention"

    def products(self, hidden: int) -> tuple[Product, ...]:
        """Return the products with weights (DeepSeek-V2, equations 37 to 47), and the indexer's."""
        query = self.heads * (self.nope_head_dim + self.rope_head_dim)
        if self.q_rank is None:
            found = [Product("query_up", query, hidden)]
        else:
            found = [
                Product("query_down", self.q_rank, hidden, split="none"),
                Product("query_up", query, self.q_rank),
            ]
        found += [
            Product("key_value_down", self.kv_rank + self.rope_head_dim, hidden, split="none"),
            Product("key_value_up", self.heads * (self.nope_head_dim + self.v_head_dim), self.kv_rank),
            Product("attention_output", hidden, self.heads * self.v_head_dim, split="inputs"),
        ]
        if self.gated:
            found.append(Product("gate", self.heads * self.v_head_dim, hidden))
        if self.indexer is not None:
            found += self.indexer.products(hidden, hidden if self.q_rank is None else self.q_rank)
        return tuple(found)

    def softmax(self) -> SoftmaxShape | None:
        """Return the shape of the attention in training and prefill; None where an indexer chooses tokens."""
        if self.indexer is not None:
            return None
        width = self.nope_head_dim + self.rope_head_dim
        ranks = self.q_rank or 0, self.kv_rank, self.rope_head_dim
        return SoftmaxShape(self.heads, self.heads, width, self.v_head_dim, None, True, *ranks)

    def count_vectors(self, hidden: int) -> int:
        """Return the weights of the norms of both latents, and of the LayerNorm of index keys."""
        return (self.q_rank or 0) + self.kv_rank + (0 if self.indexer is None else self.indexer.count_vectors())

    def sequence_state(self, hidden: int) -> SequenceState:
        """Return the cached latent with its rotated key, and index keys."""
        kept: dict[str, float] = {"latent": self.kv_rank + self.rope_head_dim}
        if self.indexer is not None and not self.indexer.is_shared:
            kept["indexer"] = self.indexer.head_dim
        return SequenceState(kept)
