"""Feedforward layers: an MLP of two matrices, or of three where it is gated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from models.documents import Whole
from models.layers.contract import Activation, KeptBytes, LaunchWords, LayerKind, MixingWork, Product, Width
from models.layers.mixing_terms import BF16

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
        branches = 2 if self.gated else 1
        return (
            Product("feedforward_up", branches * self.width, hidden, matrices=branches),
            Product("feedforward_down", hidden, self.width, split="inputs"),
        )

    def activation(self) -> Activation:
        """Return the activation function between the two products."""
        return Activation(self.width, self.gated)

    def count_vectors(self, hidden: int) -> int:
        """Return the weights of biases and of the activation."""
        biases = (2 if self.gated else 1) * self.width + hidden if self.bias else 0
        return biases + self.activation_weights

    def mixing(self, hidden: int, tokens: float, *, causal: bool) -> MixingWork:
        """Return the activation: it reads one branch, or two, and writes their product."""
        return MixingWork(moved=(3.0 if self.gated else 2.0) * BF16 * self.width, kernels=1)

    def kept(self, hidden: int) -> KeptBytes:
        """Return inputs and output of the activation."""
        return KeptBytes((3 if self.gated else 2) * BF16 * self.width)

    def tensor_divisors(self) -> dict[str, int]:
        """Return the width."""
        return {"MLP width": self.width}

    def launch_words(self, framework: str, hidden: int) -> LaunchWords:
        """Return "-" of Megatron-LM's patterns."""
        if framework != "megatron":
            return LaunchWords()
        if self.activation_weights:
            return LaunchWords(refusal="it has no activation with trained numbers")
        told = {"ffn_hidden_size": self.width, "swiglu": self.gated, "add_bias_linear": self.bias}
        return LaunchWords("-", told)

    @classmethod
    def from_launch_words(cls, framework: str, letter: str, arguments: Mapping[str, Any], hidden: int) -> Self | None:
        """Return the layer of "-" of Megatron-LM's patterns."""
        if letter != "-":
            return None
        gated, bias = bool(arguments["swiglu"]), bool(arguments["add_bias_linear"])
        return cls(width=arguments["ffn_hidden_size"], gated=gated, bias=bias)
