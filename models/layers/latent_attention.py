"""Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434, section 2.1), also with an indexer (DeepSeek-V3.2)."""

from __future__ import annotations

from typing import Annotated, Literal

from models.documents import Whole
from models.layers.contract import Count, LayerEntity, LayerKind, Product, SequenceState, Width

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
    pooled: Count = 1
    """Tokens that share an index key, pooled by a gate (GLM-5.3)."""

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
            *((Product("index_pool", self.head_dim, hidden),) if self.pooled > 1 else ()),
        )

    def count_vectors(self) -> int:
        """Return the weights of the LayerNorm of index keys, and of positions inside a pool."""
        return 0 if self.is_shared else (2 + (self.pooled if self.pooled > 1 else 0)) * self.head_dim


class LatentAttentionLayer(LayerKind):
    """Keys and values from a latent of kv elements per token; n + r elements of a query head, r of them rotated."""

    kind: Literal["latent_attention"] = "latent_attention"
    heads: Count
    q_rank: Width | None = None
    """Width of the compressed query [elements]; queries are projected directly where None."""
    kv_rank: Width
    nope_head_dim: Count
    rope_head_dim: Annotated[int, Whole(0, 2**16)]
    """Width r [elements]; 0 without rotation."""
    v_head_dim: Count
    gated: bool = False
    """True if the output is gated by the input, element by element (Kimi K3)."""
    gate_per_head: bool = False
    """True if a gate has one number per head (Ling 3)."""
    scaled_scores: bool = False
    """True if scores of heads and of index heads have a scale and a shift each, and index queries come from a
    LayerNorm of the input (Mistral Large 4)."""
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
            found = [Product("query", query, hidden)]
        else:
            found = [Product("query_down", self.q_rank, hidden), Product("query_up", query, self.q_rank)]
        found += [
            Product("kv_down", self.kv_rank + self.rope_head_dim, hidden),
            Product("kv_up", self.heads * (self.nope_head_dim + self.v_head_dim), self.kv_rank),
            Product("output", hidden, self.heads * self.v_head_dim),
        ]
        if self.gated:
            found.append(Product("gate", self.heads * (1 if self.gate_per_head else self.v_head_dim), hidden))
        if self.indexer is not None:
            found += self.indexer.products(hidden, hidden if self.q_rank is None else self.q_rank)
        return tuple(found)

    def count_vectors(self, hidden: int) -> int:
        """Return the weights of the norms of both latents, and of the LayerNorm of index keys."""
        found = (self.q_rank or 0) + self.kv_rank + (0 if self.indexer is None else self.indexer.count_vectors())
        if self.scaled_scores:
            found += 2 * self.heads + (0 if self.indexer is None else 2 * hidden + 2 * self.indexer.heads)
        return found

    def sequence_state(self, hidden: int) -> SequenceState:
        """Return the cached latent with its rotated key, and index keys."""
        kept: dict[str, float] = {"latent": self.kv_rank + self.rope_head_dim}
        if self.indexer is not None and not self.indexer.is_shared:
            kept["indexer"] = self.indexer.head_dim / self.indexer.pooled
        return SequenceState(kept)
