"""Names of strategy vectors in the terms of the field."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

__all__ = ["DATA_PARALLEL", "EXPERT_PARALLEL", "MEGATRON", "MIXED", "vector_name"]

DATA_PARALLEL: Final = "data parallel"
MEGATRON: Final = "Megatron tensor parallel"
EXPERT_PARALLEL: Final = "data and expert parallel"
MIXED: Final = "mixed"
NAMED: Final[dict[tuple[str, tuple[int, ...]], str]] = {
    ("dense", (1, 1, 1, 1)): DATA_PARALLEL,
    ("dense", (0, 2, 0, 2)): MEGATRON,
    ("experts", (1, 1, 1, 1)): DATA_PARALLEL,
    ("experts", (1, 1, 1, 3)): EXPERT_PARALLEL,
}
"""Shoeybi et al. 2019 split columns, then rows, in attention and in the MLP; Lepikhin et al. 2021 split experts."""


def vector_name(vector: Sequence[int], layers: Sequence[str]) -> str:
    """Returns the name of a vector, "mixed" where it has none.

    Args:
        vector: four strategies per layer.
        layers: names of the layers, one for four strategies.
    """
    found = set()
    for at, layer in enumerate(layers):
        kind = "experts" if layer == "experts" else "dense"
        found.add(NAMED.get((kind, tuple(vector[4 * at : 4 * at + 4])), MIXED))
    if found == {DATA_PARALLEL, EXPERT_PARALLEL}:
        return EXPERT_PARALLEL
    return found.pop() if len(found) == 1 else MIXED
