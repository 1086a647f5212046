"""Attention to compressed sequences (DeepSeek-V4): one key per few tokens, beside a window; keys serve as values."""

from __future__ import annotations

from typing import Any, Literal

from models.layers.contract import (
    ContextExchange,
    Count,
    KeptBytes,
    LaunchWords,
    LayerKind,
    MixingWork,
    Product,
    SequenceState,
    Width,
)
from models.layers.mixing_terms import BF16, FP32, attended_tokens, merge_work

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
            Product("query_down", self.q_rank, hidden, split="none"),
            Product("query_up", heads * dim, self.q_rank),
            Product("key", dim, hidden, split="none"),  # one for all heads
            # Block by block: each group sees its own heads.
            Product("output_down", self.output_groups * self.output_rank, heads * dim // self.output_groups),
            Product("output", hidden, self.output_groups * self.output_rank, split="inputs"),
        ]
        if self.ratio == 4:  # two overlapping compressions of keys and of index keys
            index = self.index_heads * self.index_head_dim
            found += [
                Product("compress", 4 * dim, hidden, split="none"),
                Product("compress_index", 4 * self.index_head_dim, hidden, split="none"),
                Product("index_query", index, self.q_rank, split="none"),
                Product("index_weight", self.index_heads, hidden, split="none"),
            ]
        elif self.ratio == 128:
            found.append(Product("compress", 2 * dim, hidden, split="none"))
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

    def mixing(self, hidden: int, tokens: float, *, causal: bool) -> MixingWork:
        """Return attention inside the window and to compressed keys, and scores of the indexer over all of these."""
        work = self._attend(tokens, causal=causal)
        if self.ratio != 4:
            return work
        # Each query gathers its chosen keys on every tensor-parallel rank; no reuse between queries in caches, counted,
        # not measured.
        gathered = BF16 * self.head_dim * attended_tokens(tokens / self.ratio, self.top_k, causal=causal)
        return merge_work(work, MixingWork(moved=gathered, repeated_moved=gathered))

    def _attend(self, tokens: float, *, causal: bool) -> MixingWork:
        """Return the work of attention, compression and indexer, without reads of chosen keys."""
        seen = attended_tokens(tokens, self.window, causal=causal)
        work = MixingWork(kernels=1)
        if self.ratio > 1:
            # Of s / ratio compressed keys; a causal mask leaves half of them, or w - w²/2n of a choice of w.
            number = tokens / self.ratio
            seen = seen + attended_tokens(number, self.top_k if self.ratio == 4 else None, causal=causal)
            work = self._compress(attended_tokens(number, None, causal=causal))
        # The key serves as value: 2 FLOP for the score and 2 for the value, of each element.
        return merge_work(work, MixingWork(matrix=4.0 * self.heads * self.head_dim * seen))

    def _compress(self, pairs: float) -> MixingWork:
        """Return the work of making compressed keys and of scoring them, the same on every tensor-parallel rank, and
        all kernels with that of attention.

        Args:
            pairs: compressed keys that a query is compared with.
        """
        # A gated sum over each block of tokens: reads keys and gates, writes one key; counted, not measured.
        overlaps = 2 if self.ratio == 4 else 1
        moved = BF16 * self.head_dim * (2.0 * overlaps + 1.0 / self.ratio)
        if self.ratio != 4:
            return MixingWork(moved=moved, kernels=2, repeated_moved=moved)
        moved += BF16 * self.index_head_dim * (2.0 * overlaps + 1.0 / self.ratio)
        scores = 2.0 * self.index_heads * self.index_head_dim * pairs
        moved = moved + 2.0 * FP32 * pairs  # one 32-bit score per pair, written and read
        return MixingWork(scores, 0.0, moved, 5, scores, moved)

    def decoding(self, hidden: int, context: float) -> MixingWork:
        """Return attention inside the window and to the compressed keys, or to the chosen ones."""
        return self._attend(context, causal=False)

    def count_cache_reads(self, hidden: int, context: float, tensor_par: Any = 1) -> float:
        """Return keys inside the window, compressed or chosen ones, and all index keys."""
        seen = attended_tokens(context, self.window, causal=False)
        if self.ratio == 1:
            return self.head_dim * seen
        number = context / self.ratio
        seen = seen + attended_tokens(number, self.top_k if self.ratio == 4 else None, causal=False)
        return self.head_dim * seen + (self.index_head_dim * number if self.ratio == 4 else 0.0)

    def kept(self, hidden: int) -> KeptBytes:
        """Return queries, output, grouped output, latents and key before and after norms, and what compression reads;
        counted."""
        split = BF16 * (2 * self.heads * self.head_dim + self.output_groups * self.output_rank) + FP32 * self.heads
        whole = 2 * BF16 * (self.q_rank + self.head_dim)
        if self.ratio == 4:
            whole += BF16 * 4 * (self.head_dim + self.index_head_dim)
            whole += BF16 * self.index_heads * (self.index_head_dim + 1) + FP32 * self.top_k
        elif self.ratio == 128:
            whole += BF16 * 2 * self.head_dim
        return KeptBytes(split, whole)

    def context_exchange(self, hidden: int) -> ContextExchange:
        """Return compressed keys and index keys, gathered, and the last window, handed to the next rank; derived."""
        compressed = 0.0 if self.ratio == 1 else self.head_dim / self.ratio
        compressed += self.index_head_dim / self.ratio if self.ratio == 4 else 0.0
        return ContextExchange(per_token_whole=BF16 * compressed, per_sequence_whole=BF16 * self.head_dim * self.window)

    def launch_words(self, framework: str, hidden: int) -> LaunchWords:
        """Return no words of its own: MaxText has the layer in models of its own, others have none."""
        missing = "attention to compressed sequences (DeepSeek-V4)"
        return LaunchWords() if framework == "maxtext" else LaunchWords(refusal=f"it has no {missing}")

    def tensor_divisors(self) -> dict[str, int]:
        """Return heads and groups of the output; the key is on every rank."""
        return {"attention heads": self.heads, "output groups": self.output_groups}
