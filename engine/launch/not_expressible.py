"""Sentences about fields that several frameworks cannot express."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from engine.columns import called, choice_label
from engine.launch.contract import LaunchOrder
from engine.launch.report import Report

__all__ = ["EVEN_LOAD", "name_expert_load", "name_unwritten", "read_expert_load", "without_predictions"]

EVEN_LOAD: Final = 100
"""Load of the busiest expert rank where tokens are spread evenly [%]."""


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


def read_expert_load(report: Report) -> None:
    """Sets the load of the busiest expert rank, which no configuration states, to the mean, and says so for models with
    experts.

    Args:
        report: of the configuration.
    """
    report.say("expert_imbalance", lambda: EVEN_LOAD)

    def note() -> None:
        if report.model.known("experts"):
            report.remark("The router decides how evenly experts are loaded; the busiest is read as 100 % of the mean.")

    report.note(note)


def name_expert_load(e: Mapping[str, Any], report: Report) -> None:
    """Notes an uneven load of experts, which no configuration sets.

    Args:
        e: fields of the execution by name.
        report: where what cannot be said is noted.
    """
    if e["expert_imbalance"] != EVEN_LOAD:
        report.not_expressible(f"{called('expert_imbalance')} {e['expert_imbalance']}: the router decides it.")


def name_unwritten(e: Mapping[str, Any], report: Report, written: Mapping[str, Any], why: str) -> None:
    """Notes the fields whose value a framework has no word for.

    Args:
        e: fields of the execution by name.
        report: where what cannot be said is noted.
        written: the value that counts there, by field.
        why: the reason, to the full stop.
    """
    for field, value in written.items():
        if e[field] != value:
            report.not_expressible(f"{called(field)} {choice_label(field, e[field])}: {why}")
