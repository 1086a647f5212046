"""Short convolutions (LFM2) and gated linear recurrences (RecurrentGemma)."""

from __future__ import annotations

from typing import Literal

from models.layers.contract import Count, LayerKind, Product, SequenceState, Width

__all__ = ["GatedRecurrenceLayer", "ShortConvolutionLayer"]


class ShortConvolutionLayer(LayerKind):
    """A gated convolution of few taps over the hidden width (LFM2)."""

    kind: Literal["short_conv"] = "short_conv"
    kernel: Count
    """Taps of the convolution."""
    bias: bool = False

    @property
    def word(self) -> str:
        """Word for the kind in patterns."""
        return "short_conv"

    @property
    def title(self) -> str:
        """Name of the kind in sentences."""
        return "short convolution"

    def products(self, hidden: int) -> tuple[Product, ...]:
        """Return the products with weights: two gates and the convolved input in one, and the output."""
        return (Product("input", 3 * hidden, hidden), Product("output", hidden, hidden))

    def count_vectors(self, hidden: int) -> int:
        """Return the weights of the convolution, and of the biases."""
        return hidden * self.kernel + (5 * hidden if self.bias else 0)

    def sequence_state(self, hidden: int) -> SequenceState:
        """Return the last columns of the convolution."""
        return SequenceState(per_sequence={"conv": (self.kernel - 1) * hidden})


class GatedRecurrenceLayer(LayerKind):
    """A real-gated linear recurrent unit (Griffin, De et al. 2024, arXiv:2402.19427) of some width in blocks."""

    kind: Literal["rg_lru"] = "rg_lru"
    width: Width
    """Width of the recurrence [elements]."""
    blocks: Count
    """Diagonal blocks of its two gates."""
    kernel: Count
    """Taps of the convolution."""

    @property
    def word(self) -> str:
        """Word for the kind in patterns."""
        return "rg_lru"

    @property
    def title(self) -> str:
        """Name of the kind in sentences."""
        return "gated linear recurrence"

    def products(self, hidden: int) -> tuple[Product, ...]:
        """Return the products with weights: input, branch, two block-diagonal gates, output."""
        block = self.width // self.blocks
        return (
            Product("input", 2 * self.width, hidden),
            Product("gates", block, block, held=2 * self.blocks, visited=2 * self.blocks),
            Product("output", hidden, self.width),
        )

    def count_vectors(self, hidden: int) -> int:
        """Return the weights of biases, of the convolution, and of the decay."""
        return 2 * self.width + hidden + self.width * (self.kernel + 1) + 3 * self.width

    def sequence_state(self, hidden: int) -> SequenceState:
        """Return the last columns of the convolution, and one state per channel."""
        return SequenceState(per_sequence={"conv": (self.kernel - 1) * self.width, "recurrent": self.width})
