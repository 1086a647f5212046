"""The strategies of a block on a mesh, with the states in which it wants its input and gives its result.

0 splits columns of the weight, 1 tokens, 2 rows, 3 experts; on two axes every axis has a strategy of its own. Without
sequence parallelism a split of rows gives a replicated result, with it one that is split by tokens: a reduce-scatter in
place of an all-reduce (Korthikanti et al. 2022).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

import numpy as np

from engine.executions.arrays import Flags, Ints
from engine.planners.intra_operator.costs.factors import BY_EXPERT, LAST, REPLICATED, TOKENS
from engine.planners.intra_operator.parallel_blocks import ParallelBlock

__all__ = [
    "COLUMNS",
    "EXPERTS",
    "ROWS",
    "SPLIT_TOKENS",
    "BlockOptions",
    "Widths",
    "block_options",
    "repeated_heads",
]

COLUMNS, SPLIT_TOKENS, ROWS, EXPERTS = range(4)
"""Strategies of a block on a mesh axis: columns of its weight, tokens, rows of its weight with an all-reduce, experts.
Source: Alpa's order on a mesh of one axis; the fourth, CFP's for mixtures of experts."""
WANTS: Final = np.array([REPLICATED, TOKENS, LAST, BY_EXPERT])
GIVES: Final = np.array([LAST, TOKENS, REPLICATED, BY_EXPERT])
GIVES_SCATTERED: Final = np.array([LAST, TOKENS, TOKENS, BY_EXPERT])
GIVES_ATTENTION: Final = np.array([LAST, TOKENS, LAST, BY_EXPERT])
"""A split along the contracted dimension of queries, keys and values is all-reduced and then split by heads."""
WORDS: Final = {
    "b": "sequences",
    "a": "heads of keys",
    "g": "groups",
    "e": "experts",
    "f": "columns",
    "h": "columns",
    "shared": "columns",
    "n": "visits of an expert",
    "latent_q": "columns",
    "latent_kv": "columns",
}


@dataclass(frozen=True, slots=True)
class Widths:
    """Bytes of an element, and of a parameter with gradient and optimizer state; whether gradients and optimizer state
    are split over the axis where the weight is not (ZeRO), which changes no volume; whether scores are kept, which
    fused attention computes again; whether weights are split there too and gathered in both passes (FSDP, ZeRO stage
    3); whether what rows add up is split by tokens (sequence parallelism); bytes of an element of a gradient that is
    added up, 0 for the bytes of any element; the recomputation of the backward pass, one of
    `engine.planners.intra_operator.costs.recomputation.RECOMPUTES`; microbatches of a step, whose gradients are added
    up before they are exchanged."""

    element: float = 4.0
    parameter: float = 16.0
    zero: bool = False
    scores: bool = True
    fsdp: bool = False
    sequence: bool = False
    gradient: float = 0.0
    recompute: str = "none"
    accumulation: int = 1


@dataclass(frozen=True)
class BlockOptions:
    """The strategies of a block: their numbers on every mesh axis in `ids` [options, mesh axes], the states of input
    and result, how vectors name them, and why one cannot be, empty where it can. `behind` is the state behind the
    layer where the block is its last."""

    ids: Ints
    wants: Ints
    gives: Ints
    behind: Ints
    words: tuple[int | tuple[int, ...], ...]
    reasons: tuple[str, ...]
    experts: bool
    joined: bool

    def uses(self, strategy: int) -> Flags:
        """Returns which axes have a strategy [options, mesh axes].

        Args:
            strategy: 0 to 3.
        """
        return np.asarray(self.ids == strategy)


def block_options(
    block: ParallelBlock, shape: Sequence[int], widths: Widths, joined: Sequence[str] = ()
) -> BlockOptions:
    """Returns the strategies of a block on a mesh.

    Args:
        block: of a layer.
        shape: devices along every mesh axis, the outer one first.
        widths: for the sharding.
        joined: contractions that end a block of two products, whose columns are the rows of the second.
    """
    ids = np.array(list(product(range(block.space), repeat=len(shape))), np.int64)
    experts = "e" in {dim[0] for dim in block.root.batch}
    core = any(member.contraction.name == "qk" for member in block.members)
    both = any(member.contraction.name in joined for member in block.members)
    plain = GIVES_SCATTERED if widths.sequence else GIVES
    table = GIVES_ATTENTION if core else plain[[ROWS, SPLIT_TOKENS, COLUMNS]] if both else plain
    gives = table[ids]
    words = tuple(row[0] if len(row) == 1 else tuple(row) for row in ids.tolist())
    reasons = tuple(_explain_indivisible(block, row, shape) for row in ids.tolist())
    behind = np.full_like(ids, TOKENS) if experts else gives
    return BlockOptions(ids, WANTS[ids], gives, behind, words, reasons, experts, both)


def repeated_heads(sizes: Mapping[str, int], devices: int) -> int:
    """Returns on how many devices each head of keys and values is repeated; 0 where it is on one or cannot be split.

    Where query heads share fewer heads of keys than there are devices, every device has the one that its queries need.

    Args:
        sizes: of the labels of a layer.
        devices: that split the heads.
    """
    heads, shared = sizes.get("a", 1), sizes.get("r", 1)
    whole = shared > 1 and devices > heads and devices % heads == 0 and heads * shared % devices == 0
    return devices // heads if whole else 0


def _explain_indivisible(block: ParallelBlock, row: Sequence[int], shape: Sequence[int]) -> str:
    """Returns why a strategy is impossible: a dimension that it splits is no multiple of the devices."""
    for member in block.members:
        parts: dict[str, int] = {}
        for number, devices in zip(row, shape, strict=True):
            label = member.labels[number]
            parts[label] = parts.get(label, 1) * devices
        for label, devices in parts.items():
            dim = member.contraction.split_by(label) or (label,)
            size = block.sizes[label]
            inside = 1
            if member.contraction.weight is not None and label != "a":
                for each in dim[1:]:
                    inside *= block.sizes[each]
            if label == "a" and repeated_heads(block.sizes, devices):
                continue
            if size * inside % devices:
                called = WORDS.get(label, "elements")
                return f"{member.contraction.name} splits {size:,} {called}, no multiple of {devices} devices."
    return ""
