"""Short convolutions (LFM2) and gated linear recurrences (RecurrentGemma)."""

from __future__ import annotations

from typing import Literal

from models.layers.contract import (
    ContextExchange,
    Count,
    KeptBytes,
    LayerKind,
    MixingWork,
    Product,
    SequenceState,
    Width,
)
from models.layers.mixing_terms import BF16, FP32, convolution_bytes, decode_state

__all__ = ["GatedRecurrenceLayer", "ShortConvolutionLayer"]


class ShortConvolutionLayer(LayerKind):
    """A gated convolution of few taps over the hidden width (LFM2)."""

    kind: Literal["short_conv"] = "short_conv"
    kernel: Count
    """Taps of the convolution."""
    bias: bool = False

    @property
    def is_scan(self) -> bool:
        """True: tokens are mixed through a state of fixed size."""
        return True

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
        return (Product("input", 3 * hidden, hidden), Product("output", hidden, hidden, split="inputs"))

    def count_vectors(self, hidden: int) -> int:
        """Return the weights of the convolution, and of the biases."""
        return hidden * self.kernel + (5 * hidden if self.bias else 0)

    def sequence_state(self, hidden: int) -> SequenceState:
        """Return the last columns of the convolution."""
        return SequenceState(per_sequence={"conv": (self.kernel - 1) * hidden})

    def mixing(self, hidden: int, tokens: float, *, causal: bool) -> MixingWork:
        """Return two gates, before and after the convolution, element by element; counted, not measured."""
        # A gate reads two tensors and writes one.
        moved = convolution_bytes(hidden) + 2 * 3.0 * BF16 * hidden
        return MixingWork(vector=2.0 * (self.kernel + 1) * hidden, moved=moved, kernels=3)

    def decoding(self, hidden: int, context: float) -> MixingWork:
        """Return one step of the convolution, at any length of context."""
        moved = decode_state((self.kernel - 1) * hidden, 0) + 2 * 3.0 * BF16 * hidden
        return MixingWork(vector=2.0 * (self.kernel + 1) * hidden, moved=moved, kernels=3)

    def kept(self, hidden: int) -> KeptBytes:
        """Return both gates and their input, input and output of the convolution, and the product after it; counted."""
        return KeptBytes(BF16 * (3 + 2 + 1) * hidden)

    def context_exchange(self, hidden: int) -> ContextExchange:
        """Return the convolution columns that a rank hands to the next."""
        return ContextExchange(per_sequence=BF16 * (self.kernel - 1) * hidden)


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
    def is_scan(self) -> bool:
        """True: tokens are mixed through a state of fixed size."""
        return True

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
        return (
            Product("input", 2 * self.width, hidden),
            Product("gates", 2 * self.width, self.width // self.blocks),  # each output sees its own block
            Product("output", hidden, self.width, split="inputs"),
        )

    def count_vectors(self, hidden: int) -> int:
        """Return the weights of biases, of the convolution, and of the decay."""
        return 2 * self.width + hidden + self.width * (self.kernel + 1) + 3 * self.width

    def sequence_state(self, hidden: int) -> SequenceState:
        """Return the last columns of the convolution, and one state per channel."""
        return SequenceState(per_sequence={"conv": (self.kernel - 1) * self.width, "recurrent": self.width})

    def mixing(self, hidden: int, tokens: float, *, causal: bool) -> MixingWork:
        """Return the convolution, the gates and the recurrence, element by element; counted, not measured."""
        # De et al. 2024, equations 3 to 6: two sigmoids, decay as exponential, root, three products and a sum.
        vector = (2.0 * self.kernel + 10) * self.width
        # Gates and input to decay and weighed input in 32 bits; those to the state; state and branch to the output.
        moved = convolution_bytes(self.width) + self.width * (3 * BF16 + 2 * FP32 + 2 * FP32 + BF16 + 3.0 * BF16)
        return MixingWork(vector=vector, moved=moved, kernels=4)

    def decoding(self, hidden: int, context: float) -> MixingWork:
        """Return one step of the recurrence, at any length of context."""
        moved = decode_state((self.kernel - 1) * self.width, self.width) + 6.0 * BF16 * self.width
        return MixingWork(vector=(2.0 * self.kernel + 10) * self.width, moved=moved, kernels=4)

    def kept(self, hidden: int) -> KeptBytes:
        """Return branches, output of the convolution, gates, decays and states in 32 bits, and product; counted."""
        return KeptBytes((BF16 * (2 + 1 + 2 + 2) + 2 * FP32) * self.width)

    def context_exchange(self, hidden: int) -> ContextExchange:
        """Return the state per channel and the convolution columns that a rank hands to the next."""
        return ContextExchange(per_sequence=(FP32 + BF16 * (self.kernel - 1)) * self.width)

    def tensor_divisors(self) -> dict[str, int]:
        """Return the diagonal blocks of the gates, which keep their inputs on one rank."""
        return {"gate blocks": self.blocks}
