"""Tuning of a model: adapters on frozen weights, the chunk of the loss, and the lengths of packed samples.

Sources: adapters of low rank, LoRA (arXiv:2106.09685, section 4.1); frozen weights in 4 bits, QLoRA (arXiv:2305.14314,
section 3); packing without attention between samples, Krell et al. (arXiv:2107.02027).
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from models.documents import Text, Whole, did_you_mean
from models.layers import LayerPattern, Product

__all__ = [
    "TARGET_GROUPS",
    "ModelTuning",
    "PackedSamples",
    "count_adapted_norms",
    "pack_samples",
    "packing_of",
    "products_parameters",
    "targeted_products",
    "tuning_problem",
]

TARGET_GROUPS: Final = {
    "all_linear": "all linear layers",
    "attention": "the linear layers of attention",
    "mlp": "the linear layers of MLP and experts",
}
"""Groups of targets of adapters, in words."""
MOST_LENGTHS: Final = 4_096
"""Lengths of samples at most: a histogram needs no more."""


class ModelTuning(BaseModel):
    """Trained part of a model, its loss and its samples. The defaults train all weights on samples of full length."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)

    adapter_rank: Annotated[int, Whole(0, 2**16)] = 0
    """Rank of the adapters [elements]; 0 trains all weights, without adapters."""
    adapter_targets: Annotated[str, Text(500, shortest=1)] = "all_linear"
    """One of `TARGET_GROUPS`, or names of products joined by +."""
    frozen_weight_bits: Literal[32, 16, 8, 4] = 16
    """Width of the frozen weights of blocks in memory [bits]: 32 where sharded training keeps master weights of all,
    below 16 where they are quantised."""
    loss_chunk: Annotated[int, Whole(0, 2**30)] = 0
    """Tokens whose logits are in memory at once; 0 for all of a microbatch."""
    sample_lengths: Annotated[
        tuple[Annotated[int, Whole(1, 2**30)], ...], Field(strict=False, max_length=MOST_LENGTHS)
    ] = ()
    """Lengths of samples that are packed into sequences [tokens]; empty for sequences of one sample each."""

    @model_validator(mode="after")
    def _frozen_only(self) -> Self:
        if not self.adapter_rank and self.frozen_weight_bits != 16:
            raise PydanticCustomError(
                "refused", "has frozen_weight_bits without adapters; give an adapter_rank such as 16"
            )
        if not self.adapter_rank and self.adapter_targets != "all_linear":
            raise PydanticCustomError(
                "refused", "has adapter_targets without adapters; give an adapter_rank such as 16"
            )
        return self

    @property
    def is_frozen(self) -> bool:
        """True if only adapters are trained."""
        return self.adapter_rank > 0

    def describe(self) -> str:
        """Return the tuning in words, such as "adapters of rank 16 on all linear layers"; empty for the defaults."""
        parts = []
        if self.is_frozen:
            targets = TARGET_GROUPS.get(self.adapter_targets, self.adapter_targets.replace("+", ", "))
            parts.append(f"adapters of rank {self.adapter_rank:,} on {targets}")
        if self.frozen_weight_bits != 16:
            parts.append(f"frozen weights in {self.frozen_weight_bits} bits")
        if self.loss_chunk:
            parts.append(f"loss in chunks of {self.loss_chunk:,} tokens")
        if self.sample_lengths:
            parts.append(f"samples of {sum(self.sample_lengths) / len(self.sample_lengths):,.0f} tokens packed")
        return ", ".join(parts)


def targeted_products(pattern: LayerPattern, tuning: ModelTuning) -> tuple[tuple[Product, ...], ...]:
    """Return the products with an adapter, of every different block of a pattern.

    Routers and other products without a time of their own have none, nor have embedding and head.

    Args:
        pattern: of the model's blocks.
        tuning: with the targets; products without adapters where nothing is frozen.
    """
    if not tuning.is_frozen:
        return tuple(() for _ in pattern.blocks)
    group, names = tuning.adapter_targets, frozenset(tuning.adapter_targets.split("+"))
    found = []
    for block in pattern.blocks:
        sides = {"attention": block.mixers, "mlp": block.feedforwards}
        layers = sides.get(group, (*block.mixers, *block.feedforwards))
        products = [each for layer in layers for each in layer.products(pattern.hidden) if not each.negligible]
        found.append(tuple(each for each in products if group in TARGET_GROUPS or each.name in names))
    return tuple(found)


def count_adapted_norms(pattern: LayerPattern, tuning: ModelTuning) -> tuple[int, ...]:
    """Return the norms of every different block whose output an adapter reads: of mixers, and of feed-forward layers.

    Args:
        pattern: of the model's blocks.
        tuning: with the targets.
    """
    adapted = targeted_products(pattern, tuning)
    found = []
    for block, products in zip(pattern.blocks, adapted, strict=True):
        reading = {each for each in products if each.held == 1 and each.inputs == pattern.hidden}
        halves = (
            (each for layer in side for each in layer.products(pattern.hidden))
            for side in (block.mixers, block.feedforwards)
        )
        found.append(sum(any(each in reading and each.split != "inputs" for each in half) for half in halves))
    return tuple(found)


def tuning_problem(pattern: LayerPattern, tuning: ModelTuning, seq_size: int) -> str:
    """Return the reason why a model cannot be tuned so, a clause after its name; empty where it can.

    Args:
        pattern: of the model's blocks.
        tuning: the tuning.
        seq_size: length of a sequence [tokens].
    """
    if tuning.sample_lengths and max(tuning.sample_lengths) > seq_size:
        return (
            f"has a sample of {max(tuning.sample_lengths):,} tokens in sequences of {seq_size:,}; "
            "cut samples or lengthen the sequence"
        )
    if not tuning.is_frozen:
        return ""
    every = targeted_products(pattern, tuning.model_copy(update={"adapter_targets": "all_linear"}))
    names = list(dict.fromkeys(each.name for products in every for each in products))
    if tuning.adapter_targets not in TARGET_GROUPS:
        for name in tuning.adapter_targets.split("+"):
            if name not in names:
                accepted = ", ".join((*TARGET_GROUPS, *names))
                return (
                    f"has no linear layer '{name[:60]}' for an adapter{did_you_mean(name, names)}; "
                    f"adapter_targets are one of {accepted}, or names joined by +"
                )
    chosen = [each for products in targeted_products(pattern, tuning) for each in products]
    if not chosen:
        return f"has no {tuning.adapter_targets} to adapt; choose other adapter_targets"
    least = min(min(each.outputs, each.inputs) for each in chosen)
    if tuning.adapter_rank > least:
        return f"has linear layers of width {least:,}; adapter_rank must be at most that, not {tuning.adapter_rank:,}"
    return ""


@dataclass(frozen=True, slots=True)
class PackedSamples:
    """Samples packed into sequences of one length."""

    sequences: int
    """Sequences that the samples fill."""
    fill: float
    """Share of their tokens that are real, above 0 and up to 1 [dimensionless]."""
    square_share: float
    """Sum of the squared lengths of samples over that of whole sequences, above 0 and up to 1 [dimensionless]: the
    share of scores that attention within samples computes."""


def pack_samples(lengths: Sequence[int], seq_size: int) -> PackedSamples:
    """Return the packing of samples into sequences by first fit in order of decreasing length.

    At most 11/9 of the least number of sequences, and 6/9 of one more (Dósa, ESCAPE 2007).

    Args:
        lengths: of the samples [tokens], each at least 1 and at most `seq_size`.
        seq_size: length of a sequence [tokens].

    Raises `ValueError` without samples, or for a length that is out of range.
    """
    if not lengths or min(lengths) < 1 or max(lengths) > seq_size:
        raise ValueError(f"lengths of samples must be 1 to {seq_size:,} tokens")
    rooms: list[int] = []
    for length in sorted(lengths, reverse=True):
        place = next((number for number, room in enumerate(rooms) if room >= length), None)
        if place is None:
            rooms.append(seq_size - length)
        else:
            rooms[place] -= length
    whole = len(rooms) * seq_size
    squares = sum(length * length for length in lengths)
    return PackedSamples(len(rooms), sum(lengths) / whole, squares / (whole * seq_size))


_FEWEST_SAMPLES: Final = 1_024
"""Samples that are packed together: few fit worse than a whole set of data."""


@functools.lru_cache(maxsize=64)
def _packed(lengths: tuple[int, ...], seq_size: int) -> PackedSamples:
    """Return the packing of a set of data with these lengths, each equally often."""
    return pack_samples(lengths * -(-_FEWEST_SAMPLES // len(lengths)), seq_size)


def packing_of(tuning: ModelTuning | None, seq_size: int) -> PackedSamples:
    """Return the packing of a model's samples; full sequences of one sample each without lengths.

    Args:
        tuning: of the model; None for the defaults.
        seq_size: length of a sequence [tokens].
    """
    if tuning is None or not tuning.sample_lengths:
        return PackedSamples(1, 1.0, 1.0)
    return _packed(tuning.sample_lengths, seq_size)


def products_parameters(products: Iterable[Product], rank: int) -> int:
    """Return the weights of the adapters of some products: r (inputs + outputs) for each matrix that they join.

    Args:
        products: with adapters.
        rank: of the adapters [elements].
    """
    return sum(rank * (each.matrices * each.inputs + each.outputs) * each.held for each in products)
