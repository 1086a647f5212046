"""Comparison of two deployments: settings that differ, figures of one over the other, and what makes the difference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from engine.serving.columns import FIELDS, HEADLINE, STEP_PARTS, by_name
from engine.serving.exploration import BEST_BY
from engine.serving.recommended import COMPARISON_ERROR

__all__ = ["DeploymentComparison", "compare_deployments"]


@dataclass(frozen=True, slots=True)
class DeploymentComparison:
    """Two deployments side by side."""

    one: Mapping[str, Any]
    other: Mapping[str, Any]
    differs: Mapping[str, tuple[Any, Any]]
    """Fields with other values, by name."""
    ratios: Mapping[str, float]
    """Ratio of each figure, the second over the first, by name; without figures that either lacks."""
    step: Mapping[str, float]
    """Difference of each part of a decode step, the second less the first [s]."""
    is_too_close: bool
    """True if the outputs per GPU differ by less than the error of a comparison."""

    @property
    def sentence(self) -> str:
        """Return what the difference is, and the part of a decode step that makes most of it."""
        ratio = self.ratios.get(BEST_BY)
        if ratio is None:
            return "One of the deployments has no figures."
        if not self.differs and ratio == 1.0:
            return "Both are the same deployment."
        more = f"{100 * abs(ratio - 1.0):.1f} % {'more' if ratio >= 1 else 'less'} output per GPU"
        close = f", inside the error of {100 * COMPARISON_ERROR:.0f} %" if self.is_too_close else ""
        text = f"The second has {more}{close}."
        name = max(self.step, key=lambda each: abs(self.step[each]))
        change = self.step[name]
        if change:
            text += (
                f" Largest difference in a decode step: {by_name(name).label.lower()}, {1e3 * abs(change):,.3g} ms "
                f"{'longer' if change > 0 else 'shorter'}."
            )
        return text


def compare_deployments(one: Mapping[str, Any], other: Mapping[str, Any]) -> DeploymentComparison:
    """Return two deployments side by side.

    Args:
        one, other: deployments with all figures, as `ServingExploration.evaluate_ids` has them; of one system or two.
    """
    differs = {
        column.name: (one[column.name], other[column.name])
        for column in FIELDS
        if str(one[column.name]) != str(other[column.name])
    }
    ratios = {}
    for column in HEADLINE:
        first, second = one.get(column.name), other.get(column.name)
        if not pd.isna(first) and not pd.isna(second) and float(first) > 0:
            ratios[column.name] = float(second) / float(first)
    step = {name: float(other[name]) - float(one[name]) for name in STEP_PARTS}
    ratio = ratios.get(BEST_BY, 1.0)
    return DeploymentComparison(
        one, other, differs, ratios, step, 1 / (1 + COMPARISON_ERROR) <= ratio <= 1 + COMPARISON_ERROR
    )
