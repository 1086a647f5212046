"""A model as a pattern of blocks: embedding, runs of equal blocks, final norm, head."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Self, TypeVar, get_args

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from models.documents import Whole
from models.layers.contract import LayerEntity, LayerKind, Width
from models.layers.registry import Addition, FeedForward, Mixer

__all__ = ["Block", "EdgeProduct", "LayerPattern", "Run", "block_of_letter", "block_titles", "runs_of"]

MOST_LAYERS = 100_000
"""Blocks of a model at most."""
MOST_DESCRIBED = 8
"""Runs that are listed in words."""


class Block(LayerEntity):
    """Layers between two points of the residual stream."""

    mixers: Annotated[tuple[Mixer, ...], Field(strict=False)] = ()
    """Layers that mix tokens: one, two in turn (LongCat), side by side (Falcon-H1), or none (Nemotron-H)."""
    feedforwards: Annotated[tuple[FeedForward, ...], Field(strict=False)] = ()
    """Layers that work on each token alone: one, experts beside a dense one (Arctic), or none."""
    additions: Annotated[tuple[Addition, ...], Field(strict=False)] = ()
    norms: Annotated[int, Whole(0, 16)] = 2
    """Norms of the residual stream."""

    @property
    def layers(self) -> tuple[LayerKind, ...]:
        """All layers of the block, and its additions."""
        return (*self.mixers, *self.feedforwards, *self.additions)

    @property
    def sublayers(self) -> int:
        """Additions to the residual stream: one for mixers and one for feed-forward layers, or as many as the norms
        tell apart where they follow each other (LongCat)."""
        halves = bool(self.mixers) + bool(self.feedforwards)
        return max(halves, min(self.norms, len(self.mixers) + len(self.feedforwards)))

    @property
    def title(self) -> str:
        """Name of the block in sentences, such as "gated delta net with experts"."""
        mixers, rest = (" + ".join(each.title for each in side) for side in (self.mixers, self.feedforwards))
        return f"{mixers} with {rest}" if mixers and rest else mixers or rest

    @property
    def word(self) -> str:
        """Word for the block in patterns, such as "gated_deltanet|experts"."""
        sides = (self.mixers, self.feedforwards)
        return "|".join("+".join(each.word for each in side) or "none" for side in sides)


def block_of_letter(framework: str, letter: str, arguments: Mapping[str, Any], hidden: int) -> Block | None:
    """Return the block of one layer with one norm that a letter of a framework's patterns means; None for an unknown
    letter.

    Args:
        framework: name of it, as in `engine.launch.FRAMEWORKS`.
        letter: of the layer.
        arguments: values by the framework's argument, as in `LayerKind.from_launch_words`.
        hidden: width of the residual stream [elements].
    """
    for side, kinds in (("mixers", Mixer), ("feedforwards", FeedForward)):
        for kind in get_args(get_args(kinds)[0]):
            layer = kind.from_launch_words(framework, letter, arguments, hidden)
            if layer is not None:
                return Block(norms=1, **{side: (layer,)})
    return None


class Run(LayerEntity):
    """Equal blocks one after the other."""

    block: Annotated[int, Whole(0, MOST_LAYERS)]
    """Place of the block in the list of different blocks."""
    count: Annotated[int, Whole(1, MOST_LAYERS)]


class EdgeProduct(LayerEntity):
    """A product before or after the blocks: of patches of an image, or of a tower's tokens for the language model."""

    outputs: Width
    inputs: Width
    bias: bool = False
    count: Annotated[int, Whole(1, 1_000)] = 1
    """Equal products."""
    merged: Annotated[int, Whole(1, 2**16)] = 1
    """Tokens of the pattern in one row of the product."""

    @property
    def parameters(self) -> int:
        """Weights in memory, with biases."""
        return self.count * self.outputs * (self.inputs + self.bias)


class LayerPattern(LayerEntity):
    """A model: its different blocks and the order in which they follow each other."""

    hidden: Width
    """Width of the residual stream [elements]."""
    blocks: Annotated[tuple[Block, ...], Field(strict=False, min_length=1, max_length=1_000)]
    """The different blocks."""
    runs: Annotated[tuple[Run, ...], Field(strict=False, min_length=1, max_length=MOST_LAYERS)]
    """Their order."""
    vocab: Annotated[int, Whole(0, 2**26)]
    """Rows of the embedding matrix as stored [tokens]; 0 of a tower, which has neither embedding nor head."""
    tied_embeddings: bool
    """True if the head is the embedding matrix."""
    norm_width: Annotated[int, Whole(0, 2)] = 1
    """Weights of a norm per element: 1 of a scale, 2 with a shift."""
    final_norms: Annotated[int, Whole(0, 8)] = 1
    """Norms of the residual stream outside blocks."""
    edges: Annotated[tuple[EdgeProduct, ...], Field(strict=False, max_length=100)] = ()
    """Products of a tower before and after its blocks."""
    other_parameters: Annotated[int, Whole(0, 2**50)] = 0
    """Weights outside blocks, embedding, head and final norm, such as tables of inputs per layer."""
    max_seq: Annotated[int, Whole(1, 2**30)] | None = None
    """Longest context that the authors state [tokens]."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (last := max(each.block for each in self.runs)) >= len(self.blocks):
            raise PydanticCustomError(
                "refused",
                "has a run of block {last} of {number} blocks; blocks are numbered from 0",
                {"last": last, "number": len(self.blocks)},
            )
        if self.layers > MOST_LAYERS:
            raise PydanticCustomError(
                "refused",
                "has {layers} layers; up to {most} can be represented",
                {"layers": self.layers, "most": MOST_LAYERS},
            )
        return self

    @property
    def layers(self) -> int:
        """Number of blocks."""
        return sum(each.count for each in self.runs)

    def describe(self) -> str:
        """Return the order of blocks in words, such as "6 x (7 Mamba-2 with MLP, attention with MLP)"."""
        runs = [(each.block, each.count) for each in self.runs]
        period = next(
            size
            for size in range(1, len(runs) + 1)
            if len(runs) % size == 0 and runs == runs[:size] * (len(runs) // size)
        )
        if period > MOST_DESCRIBED:
            counted = [f"{count} {block.title}" for block, count in self.counted_blocks()]
            return f"{self.layers} layers, in some order: {', '.join(counted)}"
        words = ", ".join(
            f"{count} {self.blocks[block].title}" if count > 1 else self.blocks[block].title
            for block, count in runs[:period]
        )
        return words if period == len(runs) else f"{len(runs) // period} x ({words})"

    def counted_blocks(self) -> Iterator[tuple[Block, int]]:
        """Yield the different blocks with how often each occurs."""
        for place, block in enumerate(self.blocks):
            yield block, sum(run.count for run in self.runs if run.block == place)


def block_titles(pattern: LayerPattern) -> tuple[str, ...]:
    """Return a title for every different block, numbered where two have the same, such as "Mamba-2 #2".

    Args:
        pattern: of the blocks.
    """
    found: list[str] = []
    for block in pattern.blocks:
        title = block.title[:1].upper() + block.title[1:]
        same = sum(known.partition(" #")[0] == title for known in found)
        found.append(f"{title} #{same + 1}" if same else title)
    return tuple(found)


Alike = TypeVar("Alike", bound=Hashable)


def runs_of(layers: Sequence[Alike]) -> tuple[tuple[Alike, ...], tuple[Run, ...]]:
    """Return (the different layers in the order of their first place, the runs of equal ones).

    Args:
        layers: from the first: blocks, or keys of blocks.
    """
    places: dict[Alike, int] = {}
    runs: list[tuple[int, int]] = []
    for layer in layers:
        place = places.setdefault(layer, len(places))
        if runs and runs[-1][0] == place:
            runs[-1] = (place, runs[-1][1] + 1)
        else:
            runs.append((place, 1))
    return tuple(places), tuple(Run(block=place, count=count) for place, count in runs)
