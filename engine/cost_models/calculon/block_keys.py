"""The fields that a block's figures depend on, and telling apart rows by them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["BlockKeys", "distinct"]

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

FULL, ATTENTION_ONLY, NONE = range(3)
ALL_REDUCE, P2P_RS_AG, RS_AG = range(3)
NO_OVERLAP, RING, PIPE = range(3)
SMALL_TABLE = 4
"""Numbers that packed keys may span per row for a table to tell them apart."""


@dataclass(slots=True)
class BlockKeys:
    """The fields that a block's figures depend on, each an array [keys]; words are positions in their choices."""

    tensor_par: Ints
    tensor_par_net: Ints
    microbatch_size: Ints
    fused_activation: Bools
    attention_type: Ints
    activation_recompute: Ints
    tensor_par_comm_type: Ints
    tensor_par_overlap: Ints
    seq_par_ag_redo: Bools
    training: Bools


def pack(*parts: Ints | Bools) -> Ints:
    """One whole number per row that tells rows with different parts apart."""
    result = np.zeros(len(parts[0]), np.int64)
    for part in parts:
        values = part.astype(np.int64)
        low, span = int(values.min(initial=0)), int(values.max(initial=0)) - int(values.min(initial=0)) + 1
        if int(result.max(initial=0)) >= 2**62 // span:
            result = np.unique(result, return_inverse=True)[1].astype(np.int64)
        result = result * span + (values - low)
    return result


def distinct(*parts: Ints | Bools) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """(position of the first row of each distinct combination, which combination each row is)."""
    keys = pack(*parts)
    most = int(keys.max(initial=0)) + 1
    if most <= SMALL_TABLE * len(keys):
        # A table of all that keys may be is filled several times sooner than keys are sorted.
        rows = np.arange(len(keys))
        seen = np.full(most, -1)
        seen[keys[::-1]] = rows[::-1]
        present = np.flatnonzero(seen >= 0)
        number = np.empty(most, np.intp)
        number[present] = np.arange(len(present))
        return seen[present], number[keys]
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    return first, inverse
