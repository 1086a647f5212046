"""A number format as data: storage, rates, partners, and the words that other programs have for it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

__all__ = ["Datatype", "SustainedRatio"]


@dataclass(frozen=True, slots=True)
class SustainedRatio:
    """Measured ratio of the rates that long products sustain in two datatypes on one chip."""

    datatype: str
    """Datatype that the ratio is relative to."""
    ratio: float
    """Sustained rate over that of `datatype`, at most [dimensionless]."""
    source: str


@dataclass(frozen=True, slots=True)
class Datatype:
    """One number format."""

    name: str
    """Name in executions, links, files and the peaks of systems; Calculon's where it has one."""
    label: str
    """Text on screen."""
    bits: int
    """Bits of an element without its scale."""
    source: str
    """Definition of the format."""
    use: Literal["products", "weights"] = "products"
    """`products`: matrix products take both factors in it. `weights`: it stores weights, which products widen first."""
    scale_bits: int = 0
    """Bits of a scale that a block of elements shares; 0 where a whole tensor shares one, which is not counted."""
    block: int = 1
    """Elements of an activation that share a scale."""
    weight_block: int = 0
    """Elements of a weight that share a scale; 0: as many as of an activation."""
    rates_of: tuple[str, ...] = ()
    """Datatypes at whose stated peak a chip computes in this one, if its system states no peak of its own."""
    generations: tuple[str, ...] = ()
    """Generations of accelerators that do so (`hardware.Accelerator.generation`)."""
    sustained: SustainedRatio | None = None
    """Measured bound of the sustained rate; None where it is the peak times the share of this width."""
    measured_as: str = ""
    """Datatype whose measured runs include this one; empty where no run in this datatype was measured."""
    gradients: tuple[str, ...] = ("float32", "bfloat16")
    """Datatypes in which gradients are exchanged, the default first."""
    master: str = "float32"
    """Datatype of the optimizer's copy of the weights."""
    encoding: str = ""
    """Words of Transformer Engine for the split into exponent and mantissa: "e4m3", "e2m1"; "hybrid" is e4m3 forward
    and e5m2 backward."""
    words: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Words of each program of `PROGRAMS` for the datatype. The first is written, all are read. A program without
    words cannot use the datatype."""

    @property
    def is_for_products(self) -> bool:
        """True if matrix products take both factors in it."""
        return self.use == "products"

    @property
    def is_scaled(self) -> bool:
        """True if blocks of elements share scales, which take space and traffic."""
        return self.scale_bits > 0

    @property
    def stored_bits(self) -> float:
        """Bits of an element of an activation with its part of the scale [bits]."""
        return self.bits + self.scale_bits / self.block

    @property
    def weight_bits(self) -> float:
        """Bits of an element of a weight with its part of the scale [bits]."""
        return self.bits + self.scale_bits / (self.weight_block or self.block)

    @property
    def num_bytes(self) -> float:
        """Bytes of an element of an activation with its part of the scale [bytes]."""
        return self.stored_bits / 8.0

    @property
    def halvings(self) -> float:
        """Halvings of the width from 16 bits: 1 for 8 bits, 2 for 4; 0 for 16 bits and more."""
        return max(math.log2(16.0 / self.bits), 0.0)
