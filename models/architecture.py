"""The published shape of a decoder-only transformer: attention, MLP or experts, layer pattern, embeddings."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, model_validator
from pydantic_core import PydanticCustomError

from models.documents import Number, Text, Whole

Width = Annotated[int, Whole(1, 2**20)]
Tokens = Annotated[int, Whole(1, 2**26)]
Count = Annotated[int, Whole(1, 2**16)]
Layers = Annotated[int, Whole(1, 100_000)]
Billions = Annotated[float, Number(1e-6, 1e6)]


class _ArchitectureEntity(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)


class Experts(_ArchitectureEntity):
    """A mixture of experts: which layers have one, how many MLPs it holds, and how many of them a token visits."""

    routed: Count
    """Experts of one layer among which the router chooses."""
    top_k: Count
    """Routed experts that each token visits."""
    ffn: Width
    """Width of one routed expert [elements]; of each of the two branches where MLPs are gated."""
    shared: Annotated[int, Whole(0, 2**16)] = 0
    """Experts that every token visits."""
    shared_ffn: Width | None = None
    """Width of all shared experts of a layer together [elements]; `None` for `shared * ffn`."""
    leading_dense_layers: Annotated[int, Whole(0, 100_000)] = 0
    """First layers that have an ordinary MLP instead."""
    every: Layers = 1
    """Interval of layers with experts: layers whose number, from 1, is a multiple of it; the others have an ordinary
    MLP."""
    groups: Count = 1
    """Groups of equally many experts, each on one node or device: a token visits only some of them (DeepSeek-V2,
    arXiv:2405.04434, section 2.2.2)."""
    groups_per_token: Count = 1
    """Most groups whose experts a token visits, hence nodes that receive it (DeepSeek-V3, arXiv:2412.19437, section
    2.1.2)."""
    router_bias: bool = False
    """True if the router has one trained bias per expert (gpt-oss, ERNIE 4.5)."""

    @property
    def shared_width(self) -> int:
        """Width of all shared experts of a layer together [elements]; 0 without shared experts."""
        return self.shared * self.ffn if self.shared_ffn is None else self.shared_ffn

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.top_k > self.routed:
            raise PydanticCustomError(
                "refused",
                "has top_k {top_k} of {routed} routed experts; top_k must be at most that",
                {"top_k": self.top_k, "routed": self.routed},
            )
        if self.routed % self.groups or self.groups_per_token > self.groups:
            raise PydanticCustomError(
                "refused",
                "has {routed} routed experts in {groups} groups, of which a token visits {groups_per_token}; groups "
                "must divide the experts and be at least as many as a token visits",
                {"routed": self.routed, "groups": self.groups, "groups_per_token": self.groups_per_token},
            )
        reached = self.routed // self.groups * self.groups_per_token
        if self.top_k > reached:
            raise PydanticCustomError(
                "refused",
                "has top_k {top_k}, but the groups that a token visits hold {reached} experts; raise groups_per_token",
                {"top_k": self.top_k, "reached": reached},
            )
        if self.shared_ffn is not None and not self.shared:
            raise PydanticCustomError(
                "refused", "has a shared_ffn without shared experts; set shared to at least 1 or leave shared_ffn out"
            )
        return self


class LatentAttention(_ArchitectureEntity):
    """Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434, section 2.1): keys and values from a small latent."""

    q_rank: Width | None = None
    """Width of the compressed query [elements]; `None` where queries are projected directly."""
    kv_rank: Width
    """Width of the compressed key and value, the content of the KV cache [elements]."""
    nope_head_dim: Count
    """Width of the part of a query or key head without position [elements]."""
    rope_head_dim: Count
    """Width of the rotated part of a query head, and of the one rotated key that all heads share [elements]."""
    v_head_dim: Count
    """Width of a value head [elements]."""

    @property
    def qk_head_dim(self) -> int:
        """Width of a query or key head [elements]."""
        return self.nope_head_dim + self.rope_head_dim


class SparseAttention(_ArchitectureEntity):
    """An indexer that picks the tokens each query attends to (DeepSeek-V3.2 technical report, section 2)."""

    heads: Count
    """Heads of the indexer."""
    head_dim: Count
    """Width of one of them [elements]."""
    top_k: Tokens
    """Tokens that a query attends to [tokens]."""
    layers: Layers | None = None
    """Layers with an indexer; the others reuse the tokens that the layer before them picked (GLM-5.2). `None` where all
    have."""


class Architecture(_ArchitectureEntity):
    """The published shape of a decoder-only transformer, as its authors' configuration states it.

    `None` means that the source does not say, unless the field says otherwise. Block recipes read it; the six numbers
    of Calculon's recipe derive from it where they can.
    """

    hidden: Width
    """Width of the residual stream [elements]."""
    ffn: Annotated[int, Whole(1, 2**22)]
    """Width of an ordinary MLP [elements]; of each of the two branches where it is gated. Where every layer has
    experts, what the configuration states, used by none."""
    layers: Layers
    """Number of transformer blocks, without those for multi-token prediction."""
    heads: Count
    """Number of query heads."""
    kv_heads: Count
    """Number of key and value heads: equal to `heads` for multi-head, 1 for multi-query attention."""
    head_dim: Count
    """Width of one query or key head [elements]."""
    latent_attention: LatentAttention | None = None
    """Ranks and widths of multi-head latent attention; `None` for ordinary attention."""
    sparse_attention: SparseAttention | None = None
    """The indexer before attention; `None` without sparse attention."""
    qkv_bias: bool | None = None
    """True if query, key and value projections have biases."""
    linear_bias: bool | None = None
    """True if the output projection, the MLP and the experts have biases."""
    qk_norm: bool | None = None
    """True if queries and keys are normalised before attention."""
    qk_norm_over: Literal["head", "heads"] = "head"
    """Extent of one norm of queries or keys: each head, or all heads together (OLMo 2, MiniMax-M2)."""
    qk_norm_weighted: bool = True
    """False if the norms of queries and keys have no weights (Llama 4)."""
    attention_sinks: bool = False
    """True if each head has a trained logit that takes part in its softmax (gpt-oss)."""
    sliding_window: Tokens | None = None
    """Tokens that windowed layers attend to; `None` where all layers see everything."""
    window_kind: Literal["sliding", "chunked"] = "sliding"
    """Kind of window: ending at each token, or fixed chunks of that size."""
    full_attention_every: Layers | None = None
    """With a window: of the layers, numbered from 1, multiples of this see everything; `None` if none does."""
    gated_mlp: bool
    """True if the MLP multiplies two branches (SwiGLU, GeGLU): three matrices instead of two."""
    experts: Experts | None = None
    """The mixture of experts; `None` for a dense model."""
    parallel_residual: bool | None = None
    """True if attention and MLP read the same input and are added together."""
    norm: Annotated[str, Text(40)] | None = None
    """"RMSNorm" or "LayerNorm"."""
    norms_per_block: Annotated[int, Whole(0, 8)] = 2
    """Norms in a block, except the norms of queries and keys."""
    norm_shift: bool = True
    """False if a LayerNorm has a scale only (Cohere, DBRX, MPT)."""
    norm_scale: bool = True
    """False if norms have no weights at all (OLMo 1)."""
    activation_weights: Annotated[int, Whole(0, 16)] = 0
    """Trained numbers in the activation of one MLP: 2 of xIELU (Apertus)."""
    vocab: Annotated[int, Whole(1, 2**26)]
    """Rows of the embedding matrix that are used [tokens]."""
    vocab_padded: Annotated[int, Whole(1, 2**26)]
    """Rows of the embedding matrix as stored [tokens]."""
    tied_embeddings: bool
    """True if the LM head is the embedding matrix."""
    positions: Literal["rotary", "learned", "relative", "alibi", "none"] | None = None
    """Encoding of positions: "learned" adds a matrix of `max_seq` rows, "relative" (Transformer-XL) one more projection
    per block."""
    rope_theta: Annotated[float, Number(1, 1e12)] | None = None
    """Base of the rotary position embedding."""
    max_seq: Tokens | None = None
    """Longest context the authors state [tokens]."""
    prediction_layers: Annotated[int, Whole(0, 64)] = 0
    """Further blocks for multi-token prediction (DeepSeek-V3, arXiv:2412.19437, section 2.2)."""
    trained_prediction_layers: Annotated[int, Whole(0, 64)] = 0
    """Number of `prediction_layers` that a run trains with the model, 0 by default. The calibrated cost model counts
    them: each a block, a projection of two vectors to one, and another pass of the head."""
    params_published_b: Billions | None = None
    """Parameters the authors state, without multi-token prediction [1e9]."""
    params_active_published_b: Billions | None = None
    """Parameters used per token that the authors state [1e9]."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.kv_heads > self.heads or self.heads % self.kv_heads:
            raise PydanticCustomError(
                "refused",
                "has {kv} key/value heads for {q} query heads; kv_heads must divide heads",
                {"kv": self.kv_heads, "q": self.heads},
            )
        if self.vocab_padded < self.vocab:
            raise PydanticCustomError(
                "refused",
                "has vocab_padded {padded} below vocab {vocab}; it must be at least as large",
                {"padded": self.vocab_padded, "vocab": self.vocab},
            )
        latent = self.latent_attention
        if latent is not None and (self.head_dim != latent.qk_head_dim or self.kv_heads != self.heads):
            raise PydanticCustomError(
                "refused",
                "has latent attention with head_dim {given} and {kv} key/value heads; they must be "
                "nope_head_dim + rope_head_dim = {sum} and heads = {q}",
                {"given": self.head_dim, "kv": self.kv_heads, "sum": latent.qk_head_dim, "q": self.heads},
            )
        if self.trained_prediction_layers > self.prediction_layers:
            raise PydanticCustomError(
                "refused",
                "has trained_prediction_layers {trained} of {all} prediction_layers; it must be at most as many",
                {"trained": self.trained_prediction_layers, "all": self.prediction_layers},
            )
        if self.full_attention_every is not None and self.sliding_window is None:
            raise PydanticCustomError(
                "refused", "has full_attention_every without a sliding_window; give the window or leave it out"
            )
        if self.positions == "learned" and self.max_seq is None:
            raise PydanticCustomError(
                "refused", "has learned positions but no max_seq; give the number of positions as max_seq"
            )
        sparse = self.sparse_attention
        if sparse is not None and sparse.layers is not None and sparse.layers > self.layers:
            raise PydanticCustomError(
                "refused",
                "has {indexers} layers with an indexer of {layers}; sparse_attention.layers must be at most that",
                {"indexers": sparse.layers, "layers": self.layers},
            )
        if self.experts is not None and not any(self.expert_layers):
            raise PydanticCustomError(
                "refused",
                "has experts in none of its {layers} layers; lower leading_dense_layers or every",
                {"layers": self.layers},
            )
        return self

    @property
    def expert_layers(self) -> tuple[bool, ...]:
        """Returns for each layer, from the first, whether it has a mixture of experts in place of an ordinary MLP."""
        if self.experts is None:
            return (False,) * self.layers
        first, every = self.experts.leading_dense_layers, self.experts.every
        return tuple(layer > first and layer % every == 0 for layer in range(1, self.layers + 1))

    @property
    def indexer_layers(self) -> int:
        """Number of layers with an indexer of sparse attention."""
        sparse = self.sparse_attention
        return 0 if sparse is None else self.layers if sparse.layers is None else sparse.layers

    @property
    def windows(self) -> tuple[int | None, ...]:
        """The window of each layer, from the first [tokens]; `None` where the layer attends to everything."""
        every = self.full_attention_every
        return tuple(
            None if every is not None and layer % every == 0 else self.sliding_window
            for layer in range(1, self.layers + 1)
        )

    @property
    def value_head_dim(self) -> int:
        """Width of one value head [elements]."""
        return self.head_dim if self.latent_attention is None else self.latent_attention.v_head_dim
