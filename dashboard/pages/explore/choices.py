"""Choices of the map in the link: its metric, its colours, and whether it is a table."""

from __future__ import annotations

from typing import Final

from dashboard.charts.elements.colour_scale import Domain
from dashboard.link import state
from dashboard.queries.economics import QUICK, Metric, metrics, unstored_metrics
from engine import Exploration

__all__ = ["DOMAINS", "as_table", "domain_of", "known_metrics", "metric_in_link"]

DOMAINS: Final[dict[str, tuple[Domain, str]]] = {
    "near": ("near best", "40 to 100 % of the best"),
    "zero": ("from zero", "from zero"),
    "log": ("logarithmic", "logarithmic"),
}
"""Ranges of the map's colours by their name in the link, with their labels."""


def known_metrics(exploration: Exploration) -> dict[str, Metric]:
    """Returns the metrics that the map of an exploration can have, by their names in the link."""
    return metrics(exploration.scenario) | (unstored_metrics(exploration.scenario) if exploration.feasible else {})


def metric_in_link(exploration: Exploration) -> Metric:
    """Returns the metric of the map."""
    known = known_metrics(exploration)
    return known[state.url_value("metric", QUICK[0], tuple(known))]


def domain_of(metric: Metric) -> Domain:
    """Returns the range of the map's colours for a metric."""
    domain = state.url_value("map_domain", next(iter(DOMAINS)), tuple(DOMAINS))
    # For a share of the step the distance from zero matters, not from the least one.
    return "from zero" if metric.of_fastest and domain == "near" else DOMAINS[domain][0]


def as_table() -> bool:
    """Returns whether the map is shown as a table."""
    return state.url_value("map_table", "off", ("on", "off")) == "on"
