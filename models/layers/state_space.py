"""State spaces: Mamba-1 (Gu and Dao 2023, arXiv:2312.00752) and Mamba-2 (Dao and Gu 2024, arXiv:2405.21060)."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import model_validator
from pydantic_core import PydanticCustomError

from models.layers.contract import Count, LayerKind, Product, SequenceState, Width

__all__ = ["Mamba1Layer", "Mamba2Layer"]


class Mamba2Layer(LayerKind):
    """H heads of P elements with N states each; inputs and outputs of the states shared by G groups of heads."""

    kind: Literal["mamba2"] = "mamba2"
    heads: Count
    head_dim: Count
    states: Count
    groups: Count
    kernel: Count
    """Taps of the convolution."""
    normed: bool = True
    """False if the gated output has no norm (Falcon-H1)."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.heads % self.groups:
            raise PydanticCustomError(
                "refused",
                "has {groups} groups for {heads} Mamba-2 heads; groups must divide heads",
                {"groups": self.groups, "heads": self.heads},
            )
        return self

    @property
    def word(self) -> str:
        """Word for the kind in patterns."""
        return "mamba2"

    @property
    def inner(self) -> int:
        """Width of all heads [elements]."""
        return self.heads * self.head_dim

    @property
    def convolved(self) -> int:
        """Channels of the convolution: heads, and inputs and outputs of the states."""
        return self.inner + 2 * self.groups * self.states

    @property
    def title(self) -> str:
        """Name of the kind in sentences."""
        return "Mamba-2"

    def products(self, hidden: int) -> tuple[Product, ...]:
        """Return the products with weights: gate, heads, states and steps in one, and the output."""
        return (
            Product("input", self.inner + self.convolved + self.heads, hidden),
            Product("output", hidden, self.inner),
        )

    def count_vectors(self, hidden: int) -> int:
        """Return the weights of the convolution with its bias, of decay, step bias and skip, and of the norm."""
        return self.convolved * (self.kernel + 1) + 3 * self.heads + (self.inner if self.normed else 0)

    def sequence_state(self, hidden: int) -> SequenceState:
        """Return the last columns of the convolution, and P x N states per head."""
        return SequenceState(
            per_sequence={"conv": (self.kernel - 1) * self.convolved, "recurrent": self.inner * self.states}
        )


class Mamba1Layer(LayerKind):
    """Di channels with N states each; steps through a rank of R elements."""

    kind: Literal["mamba1"] = "mamba1"
    inner: Width
    """Channels [elements]."""
    states: Count
    step_rank: Count
    kernel: Count
    """Taps of the convolution."""
    normed: bool = False
    """True if steps, inputs and outputs of the states are normalised (Jamba)."""

    @property
    def word(self) -> str:
        """Word for the kind in patterns."""
        return "mamba1"

    @property
    def title(self) -> str:
        """Name of the kind in sentences."""
        return "Mamba-1"

    def products(self, hidden: int) -> tuple[Product, ...]:
        """Return the products with weights: channels and gate, states and steps, output."""
        return (
            Product("input", 2 * self.inner, hidden),
            Product("states", self.step_rank + 2 * self.states, self.inner),
            Product("steps", self.inner, self.step_rank),
            Product("output", hidden, self.inner),
        )

    def count_vectors(self, hidden: int) -> int:
        """Return the weights of the convolution with its bias, of the step bias, decays, skip, and norms."""
        norms = self.step_rank + 2 * self.states if self.normed else 0
        return self.inner * (self.kernel + 1) + self.inner + self.inner * (self.states + 1) + norms

    def sequence_state(self, hidden: int) -> SequenceState:
        """Return the last columns of the convolution, and N states per channel."""
        return SequenceState(
            per_sequence={"conv": (self.kernel - 1) * self.inner, "recurrent": self.inner * self.states}
        )
