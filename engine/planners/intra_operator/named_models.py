"""Models that a package above adds to the planner: published sizes by name, with layers and widths of their own."""

from __future__ import annotations

from typing import Protocol

from engine.planners.intra_operator.layer_graphs import LayerGraph

__all__ = ["NamedModels", "named_models", "register_models"]


class NamedModels(Protocol):
    """A family of models by name, and the widths that their source counts with."""

    @property
    def element_bytes(self) -> float:
        """Return the width of an element [bytes]."""

    @property
    def keeps_scores(self) -> bool:
        """Return whether scores of attention are kept for the backward pass."""

    @property
    def is_sequence_parallel(self) -> bool:
        """Return whether results of rows are split by tokens."""

    def has(self, name: str) -> bool:
        """Return whether a name is meant for one of these models.

        Args:
            name: such as "gpt F".
        """

    def depth(self, name: str) -> int:
        """Return the number of layers of a model.

        Args:
            name: such as "gpt F".

        Raises:
            engine.planners.contract.PlanError: unknown model.
        """

    def layers(self, name: str, *, batch: int, layers: int) -> list[LayerGraph]:
        """Return the layers of a model, from the first.

        Args:
            name: such as "gpt F".
            batch: sequences.
            layers: number of layers.

        Raises:
            engine.planners.contract.PlanError: unknown model, or a number out of range.
        """


_REGISTERED: dict[str, NamedModels] = {}


def register_models(family: str, models: NamedModels) -> None:
    """Add a family of models, or replace it.

    Args:
        family: name of the family.
        models: models of the family.
    """
    _REGISTERED[family] = models


def named_models(name: object) -> NamedModels | None:
    """Return the registered family of a model; None for models of the library.

    Args:
        name: of the model, or the model itself.
    """
    if not isinstance(name, str):
        return None
    return next((models for models in _REGISTERED.values() if models.has(name)), None)
