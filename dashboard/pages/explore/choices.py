"""Metrics and colours of the map."""

from __future__ import annotations

from typing import Final

from dashboard.charts.elements.colour_scale import Domain
from dashboard.queries.economics import Metric, metrics, unstored_metrics
from engine import Exploration

__all__ = ["domain_of", "known_metrics"]

_DOMAINS: Final[dict[str, Domain]] = {"near": "near best", "zero": "from zero", "log": "logarithmic"}
"""Ranges of the map's colours by their name in the link."""


def known_metrics(exploration: Exploration) -> dict[str, Metric]:
    """Returns the metrics that the map of an exploration can have, by their names in the link."""
    return metrics(exploration.scenario) | (unstored_metrics(exploration.scenario) if exploration.feasible else {})


def domain_of(metric: Metric, domain: str) -> Domain:
    """Returns the range of the map's colours for a metric.

    domain: name of the range in the link.
    """
    # For a share of the step the distance from zero matters, not from the least one.
    return "from zero" if metric.of_fastest and domain == "near" else _DOMAINS[domain]
