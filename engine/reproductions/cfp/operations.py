"""Arithmetic operations of a step as CFP counts them."""

from __future__ import annotations

from engine.reproductions.alpa.suite_models import suite_layers

__all__ = ["tflop_count"]


def tflop_count(name: str, *, batch: int, layers: int) -> float:
    """Returns the arithmetic operations of a step as CFP counts them [TFLOP].

    Three times the contractions of the layers, less the gradient of the first layer's input, which is not needed.
    Embedding and head are left out. Source: CFP's published figures, which it reproduces exactly.

    Args:
        name: such as "gpt F".
        batch: sequences.
        layers: how many.

    Raises:
        PlanError: as `suite_layers`.
    """
    found = suite_layers(name, batch=batch, layers=layers)
    root = found[0].contractions[0].left
    first = sum(each.flop(found[0].sizes) for each in found[0].contractions if each.left == root)
    return (3.0 * sum(each.flop for each in found) - first) / 1e12
