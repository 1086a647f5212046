"""Two activities that partly hide each other."""

from __future__ import annotations

import numpy as np

from engine.executions.arrays import Floats

__all__ = ["overlapped"]


def overlapped(first: Floats, second: Floats, exponent: Floats | float) -> Floats:
    """Returns how long two activities take that overlap in part: (x^g + y^g)^(1/g).

    With exponent 1 they follow each other, and the larger it is the more the shorter one is hidden. Both are divided by
    the longer one first: x^g itself overflows for exponents of some tens and times in milliseconds.

    Args:
        first, second: their durations, 0 or more [any one unit].
        exponent: of the p-norm, above 0.

    Source: artifact of Morphling/Rubick, performance model, overlap of gradient exchange with the backward pass.
    """
    longer = np.maximum(first, second)
    shorter = np.minimum(first, second)
    share = np.divide(shorter, longer, out=np.zeros_like(longer), where=longer > 0)
    return np.asarray(longer * (1.0 + share**exponent) ** (1.0 / np.asarray(exponent, np.float64)), np.float64)
