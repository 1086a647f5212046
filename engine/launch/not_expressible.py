"""Sentences about fields that several frameworks cannot express."""

from __future__ import annotations

from engine.launch.contract import LaunchOrder
from engine.launch.report import Report

__all__ = ["without_predictions"]


def without_predictions(order: LaunchOrder, report: Report) -> None:
    """Notes that a configuration trains no layers for multi-token prediction, where the model trains some.

    Args:
        order: what shall be written.
        report: where what cannot be said is noted.
    """
    if order.model.layers is not None:
        return  # a pattern records no such layers
    trained = order.model.architecture_or_assumed().trained_prediction_layers
    if trained:
        layers = "The layer" if trained == 1 else f"The {trained} layers"
        report.not_expressible(f"{layers} for multi-token prediction: not written, the model is trained without.")
