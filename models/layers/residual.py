"""Additions to the residual stream of a block: hyper-connections, attention over residuals, alternating updates."""

from __future__ import annotations

from typing import Literal

from models.layers.contract import Count, LayerKind, Product

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
        return (Product("mixing", numbers, self.streams * hidden, held=2, visited=2),)

    def count_vectors(self, hidden: int) -> int:
        """Return the weights of the biases and of three scales, for both sublayers."""
        return 2 * (self.streams**2 + 2 * self.streams + 3)


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
        return (Product("residual", 2, hidden),)

    def count_vectors(self, hidden: int) -> int:
        """Return the weights of two norms."""
        return 2 * hidden


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
            Product("side_down", self.side_rank, hidden),
            Product("side_up", hidden, self.side_rank),
            Product("input_gate", self.input_width, hidden),
            Product("input", hidden, self.input_width),
            Product("router", streams, hidden),
            Product("predict", streams**2, streams),
            Product("correct", streams, streams),
        )

    def count_vectors(self, hidden: int) -> int:
        """Return the weights of the scale of the corrected output."""
        return hidden
