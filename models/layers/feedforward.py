"""Feedforward layers: an MLP of two matrices, or of three where it is gated."""

from __future__ import annotations

from typing import Annotated, Literal

from models.documents import Whole
from models.layers.contract import Activation, LayerKind, Product, Width

__all__ = ["FeedForwardLayer"]


class FeedForwardLayer(LayerKind):
    """An MLP of width f."""

    kind: Literal["feedforward"] = "feedforward"
    width: Width
    """Width f [elements]; of each of the two branches where it is gated."""
    gated: bool = True
    bias: bool = False
    activation_weights: Annotated[int, Whole(0, 16)] = 0
    """Trained numbers in the activation: 2 of xIELU (Apertus)."""

    @property
    def word(self) -> str:
        """Word for the kind in patterns."""
        return "dense"

    @property
    def title(self) -> str:
        """Name of the kind in sentences."""
        return "MLP"

    def products(self, hidden: int) -> tuple[Product, ...]:
        """Return the products with weights."""
        return (
            Product("feedforward_up", (2 if self.gated else 1) * self.width, hidden),
            Product("feedforward_down", hidden, self.width, split="inputs"),
        )

    def activation(self) -> Activation:
        """Return the activation function between the two products."""
        return Activation(self.width, self.gated)

    def count_vectors(self, hidden: int) -> int:
        """Return the weights of biases and of the activation."""
        biases = (2 if self.gated else 1) * self.width + hidden if self.bias else 0
        return biases + self.activation_weights
