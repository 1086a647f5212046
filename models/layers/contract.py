"""Contract of a kind of layer: its products, its vectors, and the state that it keeps of a sequence."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, model_serializer

from models.documents import Whole

__all__ = ["Count", "LayerEntity", "LayerKind", "Product", "SequenceState", "Width"]

Width = Annotated[int, Whole(1, 2**22)]
Count = Annotated[int, Whole(1, 2**16)]


class LayerEntity(BaseModel):
    """A part of a model's document: immutable, with these keys and no others."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)


@dataclass(frozen=True, slots=True)
class Product:
    """A product of each token with a matrix of weights."""

    name: str
    outputs: int
    inputs: int
    held: int = 1
    """Equal matrices in memory, such as one per expert."""
    visited: int = 1
    """Matrices of them that one token passes through."""

    @property
    def parameters(self) -> int:
        """Weights in memory."""
        return self.outputs * self.inputs * self.held

    @property
    def visited_parameters(self) -> int:
        """Weights that one token passes through; a token's forward FLOP are twice as many."""
        return self.outputs * self.inputs * self.visited


@dataclass(frozen=True, slots=True)
class SequenceState:
    """Elements that a layer keeps of a sequence while it generates tokens."""

    per_token: Mapping[str, float] = field(default_factory=dict)
    """For each token of the context, without bound [elements by name]."""
    windowed: float = 0
    """For each token inside the window [elements]."""
    window: int = 0
    """Tokens of the window."""
    per_sequence: Mapping[str, int] = field(default_factory=dict)
    """Fixed: convolution columns and recurrent states [elements by name]."""


class LayerKind(LayerEntity):
    """A layer of some kind, with its shape."""

    @model_serializer(mode="wrap")
    def _with_kind(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Add the kind to documents that leave defaults out: a reader needs it."""
        return {"kind": getattr(self, "kind", ""), **handler(self)}

    @property
    @abstractmethod
    def word(self) -> str:
        """Word for the kind in patterns, such as "attention"."""

    @property
    def title(self) -> str:
        """Name of the kind in sentences."""
        return self.word.replace("_", " ")

    @abstractmethod
    def products(self, hidden: int) -> tuple[Product, ...]:
        """Return the products with weights.

        Args:
            hidden: width of the residual stream [elements].
        """

    @abstractmethod
    def count_vectors(self, hidden: int) -> int:
        """Return the weights that are not in products: biases, norms inside the layer, convolutions, decays.

        Args:
            hidden: width of the residual stream [elements].
        """

    def count_visited_vectors(self, hidden: int) -> int:
        """Return the weights of `count_vectors` that one token passes through.

        Args:
            hidden: width of the residual stream [elements].
        """
        return self.count_vectors(hidden)

    def sequence_state(self, hidden: int) -> SequenceState:
        """Return the elements that a sequence keeps of the layer; none by default.

        Args:
            hidden: width of the residual stream [elements].
        """
        return SequenceState()

    def count_parameters(self, hidden: int) -> int:
        """Return all weights of the layer.

        Args:
            hidden: width of the residual stream [elements].
        """
        return sum(each.parameters for each in self.products(hidden)) + self.count_vectors(hidden)

    def count_visited_parameters(self, hidden: int) -> int:
        """Return the weights that one token passes through.

        Args:
            hidden: width of the residual stream [elements].
        """
        return sum(each.visited_parameters for each in self.products(hidden)) + self.count_visited_vectors(hidden)
