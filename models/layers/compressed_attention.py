"""Attention to compressed sequences (DeepSeek-V4): one key per few tokens, beside a window; keys serve as values."""

from __future__ import annotations

from typing import Literal

from models.layers.contract import Count, LayerKind, Product, SequenceState, Width

__all__ = ["CompressedAttentionLayer"]


class CompressedAttentionLayer(LayerKind):
    """H heads on one key of d elements, which is the value too; output through g groups of r elements.

    A ratio of 4 chooses among compressed keys with an indexer, one of 128 attends to all of them, 1 has a window only.
    """

    kind: Literal["compressed_attention"] = "compressed_attention"
    heads: Count
    head_dim: Count
    q_rank: Width
    output_groups: Count
    output_rank: Width
    """Width of one group of the output [elements]."""
    window: Width
    ratio: Literal[1, 4, 128] = 1
    """Tokens per compressed key."""
    index_heads: Count = 1
    index_head_dim: Count = 1
    top_k: Width = 1

    @property
    def word(self) -> str:
        """Word for the kind in patterns."""
        return {1: "v4_window", 4: "csa", 128: "hca"}[self.ratio]

    @property
    def title(self) -> str:
        """Name of the kind in sentences."""
        return "windowed attention" if self.ratio == 1 else "compressed attention"

    def products(self, hidden: int) -> tuple[Product, ...]:
        """Return the products with weights: query, key, grouped output, compressor, indexer."""
        heads, dim = self.heads, self.head_dim
        found = [
            Product("query_down", self.q_rank, hidden),
            Product("query_up", heads * dim, self.q_rank),
            Product("key", dim, hidden),
            Product("output_down", self.output_rank, heads * dim),  # block by block: each group sees its own heads
            Product("output", hidden, self.output_groups * self.output_rank),
        ]
        if self.ratio == 4:  # two overlapping compressions of keys and of index keys
            index = self.index_heads * self.index_head_dim
            found += [
                Product("compress", 4 * dim, hidden),
                Product("compress_index", 4 * self.index_head_dim, hidden),
                Product("index_query", index, self.q_rank),
                Product("index_weight", self.index_heads, hidden),
            ]
        elif self.ratio == 128:
            found.append(Product("compress", 2 * dim, hidden))
        return tuple(found)

    def count_vectors(self, hidden: int) -> int:
        """Return the weights of norms, sinks, and positions inside a compressed block."""
        inside = {1: 0, 4: 9 * (self.head_dim + self.index_head_dim), 128: 129 * self.head_dim}[self.ratio]
        return self.q_rank + self.head_dim + self.heads + inside

    def sequence_state(self, hidden: int) -> SequenceState:
        """Return the cached keys: inside the window, compressed, and compressed index keys."""
        kept: dict[str, float] = {} if self.ratio == 1 else {"compressed": self.head_dim / self.ratio}
        if self.ratio == 4:
            kept["indexer"] = self.index_head_dim / self.ratio
        return SequenceState(kept, self.head_dim, self.window)
