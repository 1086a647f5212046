"""Linear attention: a state per head in place of cached keys, updated by a delta rule or a decay."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import model_validator
from pydantic_core import PydanticCustomError

from models.layers.contract import Count, LayerKind, Product, SequenceState

__all__ = ["GatedDeltaNetLayer", "KimiDeltaLayer", "LightningLayer"]


class GatedDeltaNetLayer(LayerKind):
    """Gated delta net (Yang et al. 2024, arXiv:2412.06464): Hk key heads of dk, Hv value heads of dv, a convolution."""

    kind: Literal["gated_deltanet"] = "gated_deltanet"
    key_heads: Count
    value_heads: Count
    key_head_dim: Count
    value_head_dim: Count
    kernel: Count
    """Taps of the convolution over queries, keys and values."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.value_heads % self.key_heads:
            raise PydanticCustomError(
                "refused",
                "has {keys} key heads for {values} value heads; key_heads must divide value_heads",
                {"keys": self.key_heads, "values": self.value_heads},
            )
        return self

    @property
    def word(self) -> str:
        """Word for the kind in patterns."""
        return "gated_deltanet"

    @property
    def convolved(self) -> int:
        """Channels of the convolution: queries, keys, values."""
        return 2 * self.key_heads * self.key_head_dim + self.value_heads * self.value_head_dim

    @property
    def title(self) -> str:
        """Name of the kind in sentences."""
        return "gated delta net"

    def products(self, hidden: int) -> tuple[Product, ...]:
        """Return the products with weights: queries, keys, values with their gate, decay and strength, output."""
        values = self.value_heads * self.value_head_dim
        return (
            Product("input", self.convolved + values + 2 * self.value_heads, hidden),
            Product("output", hidden, values),
        )

    def count_vectors(self, hidden: int) -> int:
        """Return the weights of the convolution, of decays and their biases, and of the norm of a value head."""
        return self.convolved * self.kernel + 2 * self.value_heads + self.value_head_dim

    def sequence_state(self, hidden: int) -> SequenceState:
        """Return the last columns of the convolution, and a dk x dv state per value head."""
        recurrent = self.value_heads * self.key_head_dim * self.value_head_dim
        return SequenceState(per_sequence={"conv": (self.kernel - 1) * self.convolved, "recurrent": recurrent})


class KimiDeltaLayer(LayerKind):
    """Kimi delta attention (Kimi Linear, arXiv:2510.26692): H heads of d, a decay per channel, an output gate."""

    kind: Literal["kda"] = "kda"
    heads: Count
    head_dim: Count
    kernel: Count
    """Taps of the convolutions over queries, keys and values."""
    full_rank_gate: bool = False
    """True if the output gate is one matrix; else it goes through d elements."""
    full_rank_decay: bool = False
    """True if the decay is one matrix (Ling 3); else it goes through d elements."""

    @property
    def word(self) -> str:
        """Word for the kind in patterns."""
        return "kda"

    @property
    def title(self) -> str:
        """Name of the kind in sentences."""
        return "Kimi delta attention"

    def products(self, hidden: int) -> tuple[Product, ...]:
        """Return the products with weights: queries, keys, values, strength, decay, gate, output."""
        width, dim = self.heads * self.head_dim, self.head_dim
        gate = (
            [Product("gate", width, hidden)]
            if self.full_rank_gate
            else [Product("gate_down", dim, hidden), Product("gate_up", width, dim)]
        )
        decay = (
            [Product("decay", width, hidden)]
            if self.full_rank_decay
            else [Product("decay_down", dim, hidden), Product("decay_up", width, dim)]
        )
        return (
            Product("input", 3 * width + self.heads, hidden),
            *decay,
            *gate,
            Product("output", hidden, width),
        )

    def count_vectors(self, hidden: int) -> int:
        """Return the weights of the convolutions, of decays, their biases, and of the norm of a head."""
        width = self.heads * self.head_dim
        return 3 * width * self.kernel + self.heads + width + self.head_dim

    def sequence_state(self, hidden: int) -> SequenceState:
        """Return the last columns of the convolutions, and a d x d state per head."""
        width = self.heads * self.head_dim
        return SequenceState(per_sequence={"conv": (self.kernel - 1) * 3 * width, "recurrent": width * self.head_dim})


class LightningLayer(LayerKind):
    """Lightning attention (MiniMax-01, arXiv:2501.08313): H heads of d, a fixed decay per head, a gated output."""

    kind: Literal["lightning"] = "lightning"
    heads: Count
    head_dim: Count

    @property
    def word(self) -> str:
        """Word for the kind in patterns."""
        return "lightning"

    @property
    def title(self) -> str:
        """Name of the kind in sentences."""
        return "lightning attention"

    def products(self, hidden: int) -> tuple[Product, ...]:
        """Return the products with weights: queries, keys, values, gate, output."""
        width = self.heads * self.head_dim
        return (Product("qkv", 3 * width, hidden), Product("gate", width, hidden), Product("output", hidden, width))

    def count_vectors(self, hidden: int) -> int:
        """Return the weights of the norm of the output."""
        return self.heads * self.head_dim

    def sequence_state(self, hidden: int) -> SequenceState:
        """Return a d x d state per head."""
        return SequenceState(per_sequence={"recurrent": self.heads * self.head_dim**2})
