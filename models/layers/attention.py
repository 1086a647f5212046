"""Attention over keys and values of earlier tokens: grouped queries, windows, sinks, gates, block-sparse choice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import model_validator
from pydantic_core import PydanticCustomError

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
from models.layers.mixing_terms import BF16, FP32, attended_tokens

__all__ = ["AttentionLayer", "BlockIndexer"]


class BlockIndexer(LayerEntity):
    """Chooses blocks of keys for each query (MiniMax-M3): index heads with one key, compared block by block."""

    heads: Count
    head_dim: Count
    """Width of an index head [elements]."""
    block: Count
    """Tokens of a block of keys."""
    top_k: Count
    """Blocks that a query attends to."""


class AttentionLayer(LayerKind):
    """Grouped-query attention: H query heads of width dk, K key and value heads, values of width dv."""

    kind: Literal["attention"] = "attention"
    heads: Count
    kv_heads: Count
    head_dim: Count
    """Width of a query or key head [elements]."""
    value_head_dim: Count | None = None
    """Width of a value head [elements]; that of a key head where None."""
    window: Width | None = None
    """Tokens that a query attends to; all where None."""
    chunked: bool = False
    """True if windows are fixed chunks (Llama 4), not ones that end at each token."""
    qkv_bias: bool = False
    output_bias: bool = False
    qk_norm: Literal["none", "head", "heads", "weightless"] = "none"
    """Norms of queries and keys: one per head width, one over all heads together, or without weights."""
    sinks: bool = False
    """True if each head has a trained logit that takes part in its softmax (gpt-oss)."""
    gate: Literal["none", "element", "head"] = "none"
    """Gate of the output by the input: of each element (Qwen3-Next), or of each head (Step-3.5)."""
    has_values: bool = True
    """False if keys serve as values (global layers of Gemma 4)."""
    has_keys: bool = True
    """False if keys and values come from an earlier layer (last layers of Gemma 3n)."""
    relative_positions: bool = False
    """True if position vectors have a projection of their own (Transformer-XL, arXiv:1901.02860, section 3.3)."""
    indexer: BlockIndexer | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.heads % self.kv_heads:
            raise PydanticCustomError(
                "refused",
                "has {kv} key/value heads for {q} query heads; kv_heads must divide heads",
                {"kv": self.kv_heads, "q": self.heads},
            )
        if self.window is not None and self.indexer is not None:
            raise PydanticCustomError("refused", "has a window and an indexer that chooses blocks; give one of them")
        return self

    @property
    def word(self) -> str:
        """Word for the kind in patterns."""
        if self.indexer is not None:
            return "block_sparse_attention"
        return "attention" if self.window is None else "window_attention"

    @property
    def value_width(self) -> int:
        """Width of a value head [elements]."""
        return self.head_dim if self.value_head_dim is None else self.value_head_dim

    @property
    def title(self) -> str:
        """Name of the kind in sentences."""
        return {"window_attention": "windowed attention"}.get(self.word, self.word.replace("_", " "))

    def products(self, hidden: int) -> tuple[Product, ...]:
        """Return the products with weights: queries, keys, values, gate, output, and the indexer's."""
        query, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim if self.has_keys else 0
        values = self.kv_heads * self.value_width if self.has_keys and self.has_values else 0
        gates = {"none": 0, "element": self.heads * self.value_width, "head": self.heads}[self.gate]
        shared = (self.kv_heads, (keys + values) // self.kv_heads) if keys else (0, 0)
        found = [
            Product(
                "query_key_value",
                query + keys + values + gates,
                hidden,
                shared_heads=shared[0],
                shared_width=shared[1],
                matrices=1 + bool(keys) + bool(values),
            )
        ]
        if self.relative_positions:
            found.append(Product("positions", query, hidden))
        if self.indexer is not None:
            # Few index heads with one key: every rank needs the same choice.
            found.append(Product("indexer", (self.indexer.heads + 1) * self.indexer.head_dim, hidden, split="none"))
        return (*found, Product("attention_output", hidden, self.heads * self.value_width, split="inputs"))

    def softmax(self) -> SoftmaxShape | None:
        """Return the shape of the attention; None where an indexer chooses blocks of keys."""
        if self.indexer is not None:
            return None
        return SoftmaxShape(self.heads, self.kv_heads, self.head_dim, self.value_width, self.window)

    def count_vectors(self, hidden: int) -> int:
        """Return the weights of biases, norms of queries and keys, sinks, and norms of the indexer."""
        keys = self.kv_heads if self.has_keys else 0
        found = self.heads * self.head_dim + keys * (self.head_dim + self.value_width) if self.qkv_bias else 0
        found += hidden if self.output_bias else 0
        norms = 2 if self.has_keys else 1  # of queries, and of keys where there are any
        found += {"head": norms, "heads": self.heads + keys}.get(self.qk_norm, 0) * self.head_dim
        found += self.heads if self.sinks else 0
        return found + (2 * self.indexer.head_dim if self.indexer is not None else 0)

    def sequence_state(self, hidden: int) -> SequenceState:
        """Return the cached keys and values, inside the window if there is one, and index keys."""
        kept = self.kv_heads * (self.head_dim + self.value_width) if self.has_keys else 0
        if not kept:
            return SequenceState()
        if self.window is not None:
            return SequenceState(windowed=kept, window=self.window, kv_heads=self.kv_heads)
        indexed = {} if self.indexer is None else {"indexer": self.indexer.head_dim}
        return SequenceState({"kv": kept, **indexed}, kv_heads=self.kv_heads)

    def count_cache_reads(self, hidden: int, context: float, tensor_par: Any = 1) -> Any:
        """Return the keys and values of all tokens, or of the chosen blocks and all index keys."""
        if self.indexer is None:
            return super().count_cache_reads(hidden, context, tensor_par)
        kept = self.sequence_state(hidden)
        seen = attended_tokens(context, self.indexer.block * self.indexer.top_k, causal=False)
        keys = kept.per_token.get("kv", 0) * kept.share("kv", tensor_par)
        return keys * seen + kept.per_token.get("indexer", 0) * context

    def mixing(self, hidden: int, tokens: float, *, causal: bool) -> MixingWork:
        """Return scores and weighted values, gates, and scores of an indexer over all tokens.

        Norms of queries and keys are fused with the rotary embedding and move nothing of their own.
        """
        chosen = self.window if self.indexer is None else self.indexer.block * self.indexer.top_k
        keys = attended_tokens(tokens, chosen, causal=causal, chunked=self.chunked)
        # Dao et al. 2022: q k' and p v, 2 FLOP per pair of tokens and column of each.
        matrix = 2.0 * self.heads * (self.head_dim + self.value_width) * keys
        values, kernels = self.heads * self.value_width, 1
        # Reads output and gate, writes their product.
        moved = {"none": 0.0, "element": 3.0 * BF16 * values, "head": BF16 * (2.0 * values + self.heads)}[self.gate]
        kernels += self.gate != "none"
        if self.indexer is None:
            return MixingWork(matrix=matrix, moved=moved, kernels=kernels)
        pairs = attended_tokens(tokens, None, causal=causal)
        scores = 2.0 * self.indexer.heads * self.indexer.head_dim * pairs
        # The largest score of each block and index head is written and read by the choice; counted, not measured.
        blocks = 2.0 * FP32 * self.indexer.heads * pairs / self.indexer.block
        return MixingWork(matrix + scores, 0.0, moved + blocks, kernels + 2, scores, blocks)

    def kept(self, hidden: int) -> KeptBytes:
        """Return queries, keys, values, output and log-sum-exps, inputs of norms and gates, and choices of blocks."""
        keys = self.kv_heads if self.has_keys else 0
        queries, values = self.heads * self.head_dim, self.heads * self.value_width
        split = BF16 * (queries + keys * (self.head_dim + self.value_width)) + BF16 * values + FP32 * self.heads
        if self.qk_norm != "none":
            split += BF16 * (queries + keys * self.head_dim)
        # Gate and product (the gate of a head is one number).
        split += {"none": 0, "element": 2 * BF16 * values, "head": BF16 * (self.heads + values)}[self.gate]
        if self.indexer is None:
            return KeptBytes(split)
        # Index queries and key before and after their norms, and 32-bit places of the chosen blocks; counted.
        whole = 2 * BF16 * (self.indexer.heads + 1) * self.indexer.head_dim + FP32 * self.indexer.top_k
        return KeptBytes(split, whole)

    def context_exchange(self, hidden: int) -> ContextExchange:
        """Return keys and values, which go round a ring or are gathered, and index keys."""
        kept = self.kv_heads * (self.head_dim + self.value_width) if self.has_keys else 0
        whole = 0 if self.indexer is None else BF16 * self.indexer.head_dim
        return ContextExchange(per_token=BF16 * kept, is_gathered=True, per_token_whole=whole)

    def tensor_divisors(self) -> dict[str, int]:
        """Return the query heads; key and value heads are repeated where there are fewer than ranks."""
        return {"attention heads": self.heads}

    def launch_words(self, framework: str, hidden: int) -> LaunchWords:
        """Return "*" of Megatron-LM's patterns, with one shape for all layers of a model."""
        if framework != "megatron":
            return LaunchWords()  # shapes are the framework's to check
        missing = {
            "attention to chosen blocks of keys": self.indexer is not None,
            "windows in a pattern of layers": self.window is not None,
            f"values of {self.value_width} elements beside keys of {self.head_dim}": self.value_width != self.head_dim,
            "keys that serve as values": not self.has_values,
            "keys and values of an earlier layer": not self.has_keys,
            "relative positions of Transformer-XL in a pattern of layers": self.relative_positions,
            "gate for each head": self.gate == "head",
            "common norm of all heads of queries and keys": self.qk_norm == "heads",
            "bias of the output without biases of queries, keys and values": self.output_bias and not self.qkv_bias,
        }
        if found := [words for words, is_met in missing.items() if is_met]:
            return LaunchWords(refusal=f"it has no {' and no '.join(found)}")
        return LaunchWords(
            "*",
            {
                "num_attention_heads": self.heads,
                "group_query_attention": True,
                "num_query_groups": self.kv_heads,
                "kv_channels": self.head_dim,
                "qk_layernorm": self.qk_norm == "head",
                "qk_l2_norm": self.qk_norm == "weightless",
                "attention_output_gate": self.gate == "element",
                "softmax_type": "learnable" if self.sinks else "vanilla",
                "add_bias_linear": self.output_bias,
                # Part of all linear biases where there are these.
                "add_qkv_bias": self.qkv_bias and not self.output_bias,
            },
        )

    @classmethod
    def from_launch_words(cls, framework: str, letter: str, arguments: Mapping[str, Any], hidden: int) -> Self | None:
        """Return the layer of "*" of Megatron-LM's patterns."""
        if letter != "*":
            return None
        heads = arguments["num_attention_heads"]
        kv_heads = arguments["num_query_groups"] if arguments["group_query_attention"] else heads
        linear_bias = bool(arguments["add_bias_linear"])
        normed: Literal["none", "head", "weightless"] = "head" if arguments["qk_layernorm"] else "none"
        return cls(
            heads=heads,
            kv_heads=kv_heads,
            head_dim=arguments.get("kv_channels") or hidden // heads,
            qkv_bias=linear_bias or bool(arguments["add_qkv_bias"]),
            output_bias=linear_bias,
            qk_norm="weightless" if arguments["qk_l2_norm"] else normed,
            sinks=arguments["softmax_type"] == "learnable",
            gate="element" if arguments["attention_output_gate"] else "none",
        )
