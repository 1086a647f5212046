"""What a model is: the shape the block recipe reads, and the published architecture it comes from."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, model_validator
from pydantic_core import PydanticCustomError

from models.documents import Number, Text, Whole
from models.represent import block_shape, differences

Width = Annotated[int, Whole(1, 2**20)]
Tokens = Annotated[int, Whole(1, 2**26)]
Name = Annotated[str, Text(255, shortest=1)]
Line = Annotated[str, Text(2_000)]
ShortText = Annotated[str, Text(100)]


class Architecture(BaseModel):
    """The published shape of a decoder-only transformer, as its authors' configuration states it.

    `None` means that the source does not say. It is what richer block recipes read; `Model` derives today's from it.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)

    hidden: Width
    """Width of the residual stream [elements]."""
    ffn: Width
    """Width of the MLP [elements]; of each of the two branches where it is gated."""
    layers: Annotated[int, Whole(1, 100_000)]
    """Number of transformer blocks."""
    heads: Annotated[int, Whole(1, 2**16)]
    """Number of query heads."""
    kv_heads: Annotated[int, Whole(1, 2**16)]
    """Number of key and value heads: equal to `heads` for multi-head, 1 for multi-query attention."""
    head_dim: Annotated[int, Whole(1, 2**16)]
    """Width of one head [elements]."""
    vocab: Annotated[int, Whole(1, 2**26)]
    """Rows of the embedding matrix that are used [tokens]."""
    vocab_padded: Annotated[int, Whole(1, 2**26)]
    """Rows of the embedding matrix as stored [tokens]."""
    max_seq: Tokens | None = None
    """Longest context the authors state [tokens]."""
    gated_mlp: bool
    """Whether the MLP multiplies two branches (SwiGLU, GeGLU): three matrices instead of two."""
    tied_embeddings: bool
    """Whether the LM head is the embedding matrix."""
    qkv_bias: bool | None = None
    norm: Annotated[str, Text(40)] | None = None
    """"RMSNorm" or "LayerNorm"."""
    parallel_residual: bool | None = None
    """Whether attention and MLP read the same input and are added together."""
    rope_theta: Annotated[float, Number(1, 1e12)] | None = None
    """Base of the rotary position embedding."""
    sliding_window: Tokens | None = None
    """Tokens that windowed layers attend to; `None` where all layers see everything."""
    params_published_b: Annotated[float, Number(1e-6, 1e6)] | None = None
    """Parameters the authors state [1e9]."""

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
        return self


class BlockShape(BaseModel):
    """The six numbers the block recipe reads: `num_blocks` equal blocks of attention and a two-matrix MLP.

    They are the whole of a Calculon application file. `hidden` need not be `attn_heads * attn_size`.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)

    hidden: Width
    """Width of the residual stream [elements]."""
    feedforward: Annotated[int, Whole(1, 2**22)]
    """Width of the MLP between its two matrices [elements]."""
    seq_size: Tokens
    """Length of one training sample [tokens]."""
    attn_heads: Annotated[int, Whole(1, 2**16)]
    """Number of attention heads, each with its own key and value."""
    attn_size: Annotated[int, Whole(1, 2**16)]
    """Width of one head [elements]."""
    num_blocks: Annotated[int, Whole(1, 100_000)]
    """Number of transformer blocks."""


class Model(BlockShape):
    """A neural network: its six numbers, what they are called, and where they come from.

    Immutable and hashable. Where `architecture` is given, the numbers are those that `block_shape` derives from it,
    and `not_represented` says what they leave out.
    """

    name: Name
    title: Line = ""
    family: ShortText = ""
    source: Line = ""
    """Where the numbers were read."""
    seq_size_basis: Line = ""
    """Why `seq_size` is what it is; a published maximum context is seldom the length a model was trained at."""
    architecture: Architecture | None = None

    @property
    def not_represented(self) -> tuple[str, ...]:
        """Sentences, with their numbers, on what of the published model the block recipe leaves out or changes."""
        return differences(self.architecture, self.seq_size)

    @model_validator(mode="after")
    def _follows_architecture(self) -> Self:
        if self.architecture is None:
            return self
        for key, derived in block_shape(self.architecture).items():
            if getattr(self, key) != derived:
                raise PydanticCustomError(
                    "refused",
                    "has {key} {given} where its architecture gives {derived}; change the architecture or leave it out",
                    {"key": key, "given": getattr(self, key), "derived": derived},
                )
        return self
