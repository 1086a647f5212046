"""Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434, section 2.1), also with an indexer (DeepSeek-V3.2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self

from models.documents import Whole
from models.layers.contract import (
    ContextExchange,
    Count,
    KeptBytes,
    LaunchWords,
    LayerEntity,
    LayerKind,
    MixingWork,
    Product,
    SequenceState,
    SoftmaxShape,
    Width,
)
from models.layers.mixing_terms import BF16, FP32, attended_tokens, merge_work

__all__ = ["LatentAttentionLayer", "TokenIndexer"]

_LATENT_ARGUMENTS: Final = {
    "heads": "num_attention_heads",
    "q_rank": "q_lora_rank",
    "kv_rank": "kv_lora_rank",
    "nope_head_dim": "qk_head_dim",
    "rope_head_dim": "qk_pos_emb_head_dim",
    "v_head_dim": "v_head_dim",
}
_INDEXER_ARGUMENTS: Final = {
    "heads": "dsa_indexer_n_heads",
    "head_dim": "dsa_indexer_head_dim",
    "top_k": "dsa_indexer_topk",
}
"""Megatron-LM's arguments by field. Source: transformer_config.py, `MLATransformerConfig`, d98e8a64."""


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
            Product("index_query", self.heads * self.head_dim, source, split="none"),
            Product("index_key", self.head_dim + self.heads, hidden, split="none"),
            *((Product("index_pool", self.head_dim, hidden, split="none"),) if self.pooled > 1 else ()),
        )

    def count_vectors(self) -> int:
        """Return the weights of the LayerNorm of index keys, and of positions inside a pool."""
        return 0 if self.is_shared else (2 + (self.pooled if self.pooled > 1 else 0)) * self.head_dim

    def mixing(self, tokens: float, *, causal: bool) -> MixingWork:
        """Return the scores of all tokens, which every tensor-parallel rank computes; nothing where they are shared.

        Args:
            tokens: length of the sequence [tokens].
            causal: True leaves out what a causal mask discards.
        """
        if self.is_shared:
            return MixingWork()
        pairs = attended_tokens(tokens, None, causal=causal)
        scores = 2.0 * self.heads * self.head_dim * pairs
        # One score per pair in 32 bits, written by its kernel and read by the choice; counted, not measured.
        moved = 2.0 * FP32 * pairs
        return MixingWork(scores, 0.0, moved, 2, scores, moved)

    def kept_bytes(self) -> int:
        """Return index queries, index key and weights of index heads, and 32-bit places of the chosen tokens."""
        if self.is_shared:
            return 0
        return BF16 * (self.heads * self.head_dim + self.head_dim + self.heads) + FP32 * self.top_k


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
            found.append(Product("gate", self.heads * (1 if self.gate_per_head else self.v_head_dim), hidden))
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

    @property
    def _absorbed(self) -> float:
        """FLOP per pair with the latent as key and value of all heads (DeepSeek-V2, section 2.1.2)."""
        return 2.0 * self.heads * (2 * self.kv_rank + self.rope_head_dim)

    @property
    def _expanded(self) -> float:
        """FLOP per pair with keys and values of each head."""
        return 2.0 * self.heads * (self.nope_head_dim + self.rope_head_dim + self.v_head_dim)

    def mixing(self, hidden: int, tokens: float, *, causal: bool) -> MixingWork:
        """Return attention with expanded keys and values; with an indexer, absorbed attention on the chosen tokens."""
        gate = 3.0 * BF16 * self.heads * self.v_head_dim if self.gated else 0.0  # reads output and gate, writes one
        kernels = 2 if self.gated else 1
        if self.indexer is None:
            keys = attended_tokens(tokens, None, causal=causal)
            return MixingWork(matrix=self._expanded * keys, moved=gate, kernels=kernels)
        # Kernels for chosen tokens run on the latents, in training too (Megatron-LM d98e8a64: tilelang and cuDNN).
        keys = attended_tokens(tokens, self.indexer.top_k, causal=causal)
        # Each query gathers the latents of its tokens on every tensor-parallel rank, without reuse between queries;
        # counted, not measured.
        gathered = BF16 * (self.kv_rank + self.rope_head_dim) * keys
        core = MixingWork(matrix=self._absorbed * keys, moved=gate + gathered, kernels=kernels, repeated_moved=gathered)
        return merge_work(core, self.indexer.mixing(tokens, causal=causal))

    def count_mixing_flops(self, hidden: int, tokens: float, *, causal: bool) -> float:
        """Return the matrix operations with expanded keys and values, and of the indexer [FLOP]."""
        if self.indexer is None:
            return self._expanded * attended_tokens(tokens, None, causal=causal)
        chosen = attended_tokens(tokens, self.indexer.top_k, causal=causal)
        return self._expanded * chosen + self.indexer.mixing(tokens, causal=causal).matrix

    def decoding(self, hidden: int, context: float) -> MixingWork:
        """Return absorbed attention to all tokens, or to the chosen ones after the indexer's scores of all."""
        gate = 3.0 * BF16 * self.heads * self.v_head_dim if self.gated else 0.0
        seen = attended_tokens(context, None if self.indexer is None else self.indexer.top_k, causal=False)
        core = MixingWork(matrix=self._absorbed * seen, moved=gate, kernels=2 if self.gated else 1)
        return core if self.indexer is None else merge_work(core, self.indexer.mixing(context, causal=False))

    def count_cache_reads(self, hidden: int, context: float, tensor_par: Any = 1) -> float:
        """Return the latents of all or of the chosen tokens, and all index keys."""
        width = self.kv_rank + self.rope_head_dim
        if self.indexer is None:
            return width * context
        keys = 0 if self.indexer.is_shared else self.indexer.head_dim
        return width * attended_tokens(context, self.indexer.top_k, causal=False) + keys * context

    def kept(self, hidden: int) -> KeptBytes:
        """Return latents before and after their norms, expanded or absorbed queries, keys and values, and outputs."""
        heads, query = self.heads, self.nope_head_dim + self.rope_head_dim
        # The key-value latent before and after its norm and as input of the product that expands it; compressed queries
        # once, as their norm is made again; the rotated key.
        whole = BF16 * (self.q_rank or 0) + 3 * BF16 * self.kv_rank + BF16 * self.rope_head_dim
        split = BF16 * heads * (query + self.v_head_dim) + FP32 * heads  # queries, output, log-sum-exp
        split += 2 * BF16 * heads * self.v_head_dim if self.gated else 0  # gate and product
        if self.indexer is None:
            # Keys and values, and the expanded part that keys are copied from; values are a view of it.
            return KeptBytes(split + BF16 * heads * (query + self.v_head_dim + self.nope_head_dim), whole)
        # Queries and outputs on the latent; nothing is expanded.
        split += BF16 * heads * (2 * self.kv_rank + self.rope_head_dim)
        return KeptBytes(split, whole + self.indexer.kept_bytes())

    def context_exchange(self, hidden: int) -> ContextExchange:
        """Return expanded keys and values of a ring, or gathered latents and index keys (Megatron-LM)."""
        if self.indexer is None:
            width = self.nope_head_dim + self.rope_head_dim + self.v_head_dim
            return ContextExchange(per_token=BF16 * self.heads * width, is_gathered=True)
        keys = 0 if self.indexer.is_shared else self.indexer.head_dim
        return ContextExchange(per_token_whole=BF16 * (self.kv_rank + self.rope_head_dim + keys))

    def tensor_divisors(self) -> dict[str, int]:
        """Return the heads; compressed queries, latents and an indexer are computed by every rank."""
        return {"attention heads": self.heads}

    def launch_words(self, framework: str, hidden: int) -> LaunchWords:
        """Return "+" of Megatron-LM's patterns, "D" with an indexer; torchtitan has no indexer."""
        if framework != "megatron":
            return (
                super().launch_words(framework, hidden) if self.indexer and framework == "torchtitan" else LaunchWords()
            )
        if self.gated:
            return LaunchWords(refusal="it has no gate of latent attention")
        shape: dict[str, Any] = {words: getattr(self, name) for name, words in _LATENT_ARGUMENTS.items()}
        shape |= {"multi_latent_attention": True, "add_bias_linear": False}
        told = ("Latents are not normalised in a pattern of layers",)  # hybrid_layer_specs.py, `mla_layer`
        if self.indexer is None:
            return LaunchWords("+", shape, told)
        if self.indexer.is_shared:
            return LaunchWords(refusal="it shares no indexer between layers of a pattern")
        if self.q_rank is None:
            return LaunchWords(refusal="its indexer needs a compressed query (q_rank)")
        chosen = {words: getattr(self.indexer, name) for name, words in _INDEXER_ARGUMENTS.items()}
        return LaunchWords("D", shape | chosen, told)

    @classmethod
    def from_launch_words(cls, framework: str, letter: str, arguments: Mapping[str, Any], hidden: int) -> Self | None:
        """Return the layer of "+" or "D" of Megatron-LM's patterns."""
        if letter not in ("+", "D"):
            return None
        shape = {name: arguments[words] for name, words in _LATENT_ARGUMENTS.items() if name != "q_rank"}
        shape["q_rank"] = arguments.get("q_lora_rank")
        if letter == "+":
            return cls(**shape)
        chosen = {name: arguments[words] for name, words in _INDEXER_ARGUMENTS.items()}
        return cls(**shape, indexer=TokenIndexer(**chosen))
