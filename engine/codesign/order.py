"""The order in which a product is worked through: coarse everywhere at first, and finer from then on.

A rank-1 lattice in whole numbers: the i-th number is i * step modulo the count, with a step that shares no divisor with
the count, so that every number comes exactly once and any of them is known without the others. Of some steps near the
golden section the one is taken whose first numbers lie furthest apart in the product, as in Korobov's search for good
lattices (Niederreiter, "Random Number Generation and Quasi-Monte Carlo Methods", SIAM 1992, chapter 5).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import numpy as np

from engine.executions.arrays import Ints

__all__ = ["digits_of", "spread_ranks"]

GOLDEN: Final = (math.sqrt(5.0) - 1.0) / 2.0
"""Golden ratio less 1: multiples of it, without their whole part, are spread most evenly (Weyl sequence)."""
LOOKED_AT: Final = 64
"""First numbers of an order whose distances decide between steps."""
STEPS_TRIED: Final = 96
"""Multiples of the golden section that are tried as steps. Source: stated by us."""


def digits_of(numbers: Ints, radices: Sequence[int]) -> list[Ints]:
    """Returns the digits of numbers of a product, the most significant first, each an array [numbers].

    Args:
        numbers: from 0 to the product of the radices, without that.
        radices: how many values each digit has.
    """
    found = []
    rest = np.asarray(numbers, np.int64)
    for radix in reversed(radices):
        rest, digit = np.divmod(rest, radix)
        found.append(digit)
    return found[::-1]


def spread_ranks(radices: Sequence[int], ranks: Ints) -> Ints:
    """Returns the numbers of a product that have these ranks in the order, an array [ranks].

    Every number has one rank.

    Args:
        radices: how many values each digit of a number has.
        ranks: places in the order.
    """
    count = math.prod(radices)
    step = _choose_step(tuple(radices))
    # Whole numbers of Python: a product of a rank and a step may exceed 64 bits.
    return np.array([rank * step % count for rank in np.asarray(ranks).tolist()], np.int64)


@lru_cache(maxsize=256)
def _choose_step(radices: tuple[int, ...]) -> int:
    count = math.prod(radices)
    if count < 3:
        return 1
    best, chosen = -1.0, 1
    looked = np.arange(1, min(LOOKED_AT, count))
    scale = [1.0 / radix for radix in radices]
    for number in range(1, STEPS_TRIED + 1):
        step = max(1, int(count * (number * GOLDEN % 1.0)))
        while math.gcd(step, count) > 1:
            step = step % count + 1
        numbers = np.array([rank * step % count for rank in looked.tolist()], np.int64)
        # In a lattice the distance of two points is that of another one from the origin; around the edges, too.
        distance = np.zeros(len(numbers))
        for digit, one, radix in zip(digits_of(numbers, radices), scale, radices, strict=True):
            distance += (np.minimum(digit, radix - digit) * one) ** 2
        least = float(distance.min()) if len(distance) else 0.0
        if least > best * (1 + 1e-9):
            best, chosen = least, step
    return chosen
