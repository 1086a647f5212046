"""Schema of a model: a published architecture, a pattern of layers, or the six numbers of Calculon's block recipe."""

from __future__ import annotations

import dataclasses
import functools
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from models.architecture import Architecture, Count, Layers, Tokens, Width
from models.documents import Change, DocumentError, Text, Whole
from models.layers import LayerPattern, ParameterCounts, pattern_counts
from models.patterns import pattern_of
from models.represent import block_shape, differences, obstacles
from models.tuning import ModelTuning, PackedSamples, packing_of, tuning_problem

Name = Annotated[str, Text(255, shortest=1)]
Line = Annotated[str, Text(2_000)]
ShortText = Annotated[str, Text(100)]
Changes = Annotated[tuple[Change, ...], Field(strict=False, max_length=1_000)]
Lines = Annotated[tuple[Line, ...], Field(strict=False, max_length=200)]


class ModelFileError(DocumentError):
    """A model that cannot be used: an unknown name, an unreadable file, or a document that is not such a model."""


class BlockShape(BaseModel):
    """The six numbers Calculon's block recipe reads: `num_blocks` equal blocks of attention and a two-matrix MLP.

    They are the whole of a Calculon application file. `hidden` need not be `attn_heads * attn_size`.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)

    hidden: Width
    """Width of the residual stream [elements]."""
    feedforward: Annotated[int, Whole(1, 2**23)]
    """Width of the MLP between its two matrices [elements]."""
    seq_size: Tokens
    """Length of one training sample [tokens]."""
    attn_heads: Count
    """Number of attention heads, each with its own key and value."""
    attn_size: Count
    """Width of one head [elements]."""
    num_blocks: Layers
    """Number of transformer blocks."""


class Model(BaseModel):
    """A neural network: its architecture or block numbers, its name, and the source of the numbers.

    Immutable and hashable. Every model has a `seq_size`, and an `architecture`, `calculon`'s six numbers, or both.
    Where only the architecture is given, the six numbers are derived from it, if they can stand for it at all:
    `block` is `None` for mixtures of experts and latent attention, and each of `hidden`, `feedforward`, `attn_heads`,
    `attn_size` and `num_blocks` then raises the `ModelFileError` that `require_block` raises.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)

    name: Name
    title: Line = ""
    family: ShortText = ""
    source: Line = ""
    """Source of the numbers."""
    seq_size: Tokens
    """Length of one training sample [tokens]."""
    seq_size_basis: Line = ""
    """Reason for `seq_size`; a published maximum context is seldom the length a model was trained at."""
    calculon: BlockShape | None = None
    """The six numbers where they were given rather than derived; `None` where they follow from `architecture`."""
    architecture: Architecture | None = None
    """The published shape; `None` where it is not recorded, as in Calculon's files."""
    layers: LayerPattern | None = None
    """The pattern of blocks of a model that no `architecture` describes, such as one with state spaces in some
    layers."""
    tower: LayerPattern | None = None
    """The part that reads images, with the projection of its tokens; its attention is not causal. It is counted apart
    and in no time or memory."""
    unverified_fields: Lines = ()
    """Values that were recalled rather than read in the cited source: paths, each with an optional ": remark"."""
    notes: Lines = ()
    left_out: Lines = ()
    """Parts of the published model that its architecture has no place for, such as a vision tower, in sentences."""
    derived_from: Annotated[str, Text(255)] = ""
    """Name of the model that this one is an edited copy of; empty for an original."""
    changes: Changes = ()
    """Every field in which it differs from that one."""
    tuning: ModelTuning | None = None
    """The trained part, the loss and the samples of a training step; None trains all weights on full samples."""

    @model_validator(mode="after")
    def _one_shape(self) -> Self:
        given, architecture = self.calculon, self.architecture
        if self.layers is not None and not self.layers.vocab:
            raise PydanticCustomError("refused", "has layers with vocab 0, which only a tower has; give its tokens")
        if self.layers is not None and (given is not None or architecture is not None):
            raise PydanticCustomError("refused", "has layers beside another shape; give one of them")
        if self.layers is not None:
            return self
        if given is None and architecture is None:
            raise PydanticCustomError("refused", "has neither block numbers nor an architecture; give one of them")
        if given is None:
            return self
        if given.seq_size != self.seq_size:
            raise PydanticCustomError("refused", "has two different values of seq_size; give one")
        if architecture is None:
            return self
        if found := obstacles(architecture):
            raise PydanticCustomError(
                "refused",
                "has block numbers beside {what}, which they cannot represent; leave them out",
                {"what": " and ".join(found)},
            )
        for key, derived in block_shape(architecture).items():
            # the width of the MLP is a choice where it is gated, and Calculon's authors made their own
            if key != "feedforward" and getattr(given, key) != derived:
                raise PydanticCustomError(
                    "refused",
                    "has {key} {given} where its architecture gives {derived}; change one of them",
                    {"key": key, "given": getattr(given, key), "derived": derived},
                )
        return self

    @model_validator(mode="after")
    def _tunable(self) -> Self:
        if self.tuning is None:
            return self
        if problem := tuning_problem(self.pattern_or_assumed(), self.tuning, self.seq_size):
            raise PydanticCustomError("refused", "{problem}", {"problem": problem})
        return self

    @functools.cached_property
    def block(self) -> BlockShape | None:
        """The six numbers of Calculon's block recipe; None if they cannot represent the architecture."""
        if self.tuning is not None:
            return None
        if self.calculon is not None or self.architecture is None:
            return self.calculon
        if obstacles(self.architecture):
            return None
        return BlockShape(**block_shape(self.architecture), seq_size=self.seq_size)

    def require_block(self) -> BlockShape:
        """Returns the six numbers of Calculon's block recipe. Raises `ModelFileError` where the architecture has
        none."""
        if self.layers is not None:
            words = dict.fromkeys(each.title for block in self.layers.blocks for each in block.mixers)
            raise ModelFileError(
                f"{self.name} has layers of {' and '.join(words)}, which Calculon's block recipe cannot represent; "
                "choose a cost model that reads the layers themselves."
            )
        if self.tuning is not None:
            raise ModelFileError(
                f"{self.name} has {self.tuning.describe()}, which Calculon's block recipe cannot represent; "
                "choose the cost model calibrated."
            )
        if self.block is None:
            found = " and ".join(obstacles(self.architecture)) if self.architecture else "no shape"
            raise ModelFileError(
                f"{self.name} has {found}, which Calculon's block recipe cannot represent; "
                "choose a dense model, or a cost model that reads the architecture itself."
            )
        return self.block

    @property
    def hidden(self) -> int:
        """Width of the residual stream [elements]. Raises `ModelFileError` without a `block`."""
        return self.require_block().hidden

    @property
    def feedforward(self) -> int:
        """Width of the two-matrix MLP [elements]. Raises `ModelFileError` without a `block`."""
        return self.require_block().feedforward

    @property
    def attn_heads(self) -> int:
        """Number of attention heads. Raises `ModelFileError` without a `block`."""
        return self.require_block().attn_heads

    @property
    def attn_size(self) -> int:
        """Width of one attention head [elements]. Raises `ModelFileError` without a `block`."""
        return self.require_block().attn_size

    @property
    def num_blocks(self) -> int:
        """Number of transformer blocks. Raises `ModelFileError` without a `block`."""
        return self.require_block().num_blocks

    @property
    def not_represented(self) -> tuple[str, ...]:
        """Sentences, with numbers, on the parts of the published model that Calculon's recipe leaves out or changes."""
        if self.layers is not None:
            return (f"The pattern of layers, {self.layers.describe()}, which has no six numbers.",)
        feedforward = None if self.calculon is None else self.calculon.feedforward
        return differences(self.architecture, self.seq_size, feedforward)

    @functools.cached_property
    def counts(self) -> ParameterCounts | None:
        """Weights in all and by kind, and bytes that a sequence keeps; `None` where only six numbers are recorded."""
        pattern = pattern_of(self.architecture) if self.architecture is not None else self.layers
        if pattern is None:
            return None
        tower = 0 if self.tower is None else pattern_counts(self.tower).total
        return dataclasses.replace(pattern_counts(pattern), tower=tower)

    @property
    def parameters(self) -> int | None:
        """Weights of the published model; `None` where only six numbers are recorded."""
        return None if self.counts is None else self.counts.total

    @property
    def active_parameters(self) -> int | None:
        """Weights that one token passes through; `None` where only six numbers are recorded."""
        return None if self.counts is None else self.counts.active

    @property
    def packing(self) -> PackedSamples:
        """Packing of the samples of a training step into sequences of `seq_size`."""
        return packing_of(self.tuning, self.seq_size)

    @property
    def tokens_per_sample(self) -> float:
        """Real tokens of a sequence in training: `seq_size`, or fewer where packed samples leave room."""
        return self.seq_size if self.tuning is None else self.seq_size * self.packing.fill

    def pattern_or_assumed(self) -> LayerPattern:
        """Return the pattern of blocks, of `architecture_or_assumed` where the model has no layers of its own."""
        return self.layers if self.layers is not None else pattern_of(self.architecture_or_assumed())

    def architecture_or_assumed(self, vocab: int = 51_200) -> Architecture:
        """Returns the published architecture, or one that has exactly the six given numbers and a GPT's embedding.

        `vocab` [tokens] is assumed where the architecture is not recorded: 51,200 is Megatron-LM's (arXiv:2104.04473).
        """
        if self.architecture is not None:
            return self.architecture
        if self.layers is not None:
            raise ModelFileError(
                f"{self.name} has its layers in a pattern, {self.layers.describe()}; choose a model whose blocks all "
                "have the same attention."
            )
        block = self.calculon
        if block is None:
            raise ModelFileError(f"{self.name} has no recorded shape.")
        return Architecture(
            hidden=block.hidden,
            ffn=block.feedforward,
            layers=block.num_blocks,
            heads=block.attn_heads,
            kv_heads=block.attn_heads,
            head_dim=block.attn_size,
            gated_mlp=False,
            norm="LayerNorm",
            vocab=vocab,
            vocab_padded=vocab,
            tied_embeddings=True,
        )
