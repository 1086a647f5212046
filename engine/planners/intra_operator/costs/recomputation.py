"""Recomputation in the backward pass, as shares of a layer's forward pass.

On a system the shares come from the calibrated cost model; elsewhere full recomputation repeats all of the forward
pass, selective recomputation attention alone, whose scores are then not kept (Korthikanti et al. 2022), as in Alpa's
count of operations with rematerialisation, 96 per weight and token instead of 72.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from engine.planners.intra_operator.costs.options import Widths
from engine.planners.intra_operator.mesh import Mesh

__all__ = ["RECOMPUTES", "Again", "done_again"]

RECOMPUTES: Final = ("none", "selective", "full")


@dataclass(frozen=True, slots=True)
class Again:
    """Shares of the forward pass that are done again: products of weights, attention, norms and activation functions,
    collectives of the residual stream, exchanges of tokens between experts."""

    linear: float = 0.0
    attention: float = 0.0
    elementwise: float = 0.0
    tensor: float = 0.0
    experts: float = 0.0


def done_again(mesh: Mesh, widths: Widths) -> Again:
    """Returns the shares of the forward pass that are done again.

    Args:
        mesh: whose system, where it has one, says what a kind of recomputation repeats.
        widths: with the kind.
    """
    kernels = mesh.kernels
    if kernels is not None:
        return Again(*kernels.recomputed(widths.recompute))
    if widths.recompute == "full":
        return Again(1.0, 1.0, 1.0, 1.0, 1.0)
    return Again(attention=float(widths.recompute == "selective" and widths.scores))
