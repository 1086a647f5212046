"""Additions to the residual stream of a block: hyper-connections, attention over residuals, alternating updates."""

from __future__ import annotations

from typing import Literal

from models.layers.contract import Count, KeptBytes, LayerKind, MixingWork, Product
from models.layers.mixing_terms import BF16, FP32

__all__ = ["AlternatingUpdates", "HyperConnections", "ResidualAttention"]


class HyperConnections(LayerKind):
    """N residual streams, mixed before and after both sublayers of a block (DeepSeek-V4)."""

    kind: Literal["hyper_connections"] = "hyper_connections"
    streams: Count

    @property
    def word(self) -> str:
        """Word for the kind."""
        return "hyper_connections"

    def products(self, hidden: int) -> tuple[Product, ...]:
        """Return the products with weights: all mixing numbers of both sublayers from all streams."""
        numbers = self.streams**2 + 2 * self.streams
        return (Product("mixing", numbers, self.streams * hidden, held=2, visited=2, split="none"),)

    def count_vectors(self, hidden: int) -> int:
        """Return the weights of the biases and of three scales, for both sublayers."""
        return 2 * (self.streams**2 + 2 * self.streams + 3)

    @property
    def residual_streams(self) -> int:
        """Residual streams n."""
        return self.streams

    def mixing(self, hidden: int, tokens: float, *, causal: bool) -> MixingWork:
        """Return reads and writes of all streams before and after both sublayers; counted, not measured."""
        # Per sublayer n streams are read to one input, then n read and n written with the output: 2 (2n + 2) vectors.
        moved = 2 * 2.0 * (2 * self.streams + 2) * BF16 * hidden
        return MixingWork(moved=moved, kernels=2 * 3)

    def kept(self, hidden: int) -> KeptBytes:
        """Return the streams besides the one that a sublayer keeps anyway, and 32-bit mixing numbers; counted."""
        numbers = self.streams**2 + 2 * self.streams
        return KeptBytes(2 * BF16 * (self.streams - 1) * hidden, 2 * FP32 * numbers)


class ResidualAttention(LayerKind):
    """Residuals of earlier blocks, weighed by the token (Kimi K3): two projections and two norms in a block."""

    kind: Literal["residual_attention"] = "residual_attention"
    block_size: Count

    @property
    def word(self) -> str:
        """Word for the kind."""
        return "residual_attention"

    def products(self, hidden: int) -> tuple[Product, ...]:
        """Return the products with weights."""
        return (Product("residual", 2, hidden, split="none"),)

    def count_vectors(self, hidden: int) -> int:
        """Return the weights of two norms."""
        return 2 * hidden

    def mixing(self, hidden: int, tokens: float, *, causal: bool) -> MixingWork:
        """Return the weighed sum of its block's residual and one earlier one, twice; deeper blocks read more, which is
        not modelled."""
        return MixingWork(moved=2 * 3.0 * BF16 * hidden, kernels=4)

    def kept(self, hidden: int) -> KeptBytes:
        """Return inputs of two norms; counted."""
        return KeptBytes(2.0 * BF16 * hidden)


class AlternatingUpdates(LayerKind):
    """Several predicted residual streams, a low-rank side branch and inputs per layer (Gemma 3n)."""

    kind: Literal["alternating_updates"] = "alternating_updates"
    streams: Count
    side_rank: Count
    """Width of the low-rank side branch [elements]."""
    input_width: Count
    """Width of the input of each layer from a table of its own [elements]."""

    @property
    def word(self) -> str:
        """Word for the kind."""
        return "alternating_updates"

    def products(self, hidden: int) -> tuple[Product, ...]:
        """Return the products with weights: side branch, input of the layer, router and coefficients of streams."""
        streams = self.streams
        return (
            Product("side_down", self.side_rank, hidden, split="none"),
            Product("side_up", hidden, self.side_rank, split="none"),
            Product("input_gate", self.input_width, hidden, split="none"),
            Product("input", hidden, self.input_width, split="none"),
            Product("router", streams, hidden, split="none"),
            Product("predict", streams**2, streams, split="none"),
            Product("correct", streams, streams, split="none"),
        )

    def count_vectors(self, hidden: int) -> int:
        """Return the weights of the scale of the corrected output."""
        return hidden

    @property
    def residual_streams(self) -> int:
        """Predicted residual streams."""
        return self.streams

    def mixing(self, hidden: int, tokens: float, *, causal: bool) -> MixingWork:
        """Return prediction and correction of all streams; counted, not measured."""
        # Prediction reads and writes n streams; correction reads n and the output, and writes n.
        return MixingWork(moved=BF16 * (4.0 * self.streams + 1) * hidden, kernels=6)

    def kept(self, hidden: int) -> KeptBytes:
        """Return the streams besides one, before and after prediction, and inside the side branch and the gate of the
        layer's input; counted."""
        whole = 2 * BF16 * (self.side_rank + 2 * self.input_width)
        return KeptBytes(2 * BF16 * (self.streams - 1) * hidden, whole)
