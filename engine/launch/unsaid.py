"""What several frameworks have no place for, in the same words."""

from __future__ import annotations

from engine.columns import called, choice_label
from engine.launch.contract import Order
from engine.launch.report import Report

__all__ = ["cut_evenly"]


def cut_evenly(order: Order, report: Report) -> None:
    """Notes that a framework cuts the layers evenly, where an execution has them cut otherwise.

    Args:
        order: what shall be written.
        report: where what cannot be said is noted.
    """
    layout = order.execution["stage_layout"]
    if layout != "even" and order.execution["pipeline_par"] > 1:
        told = choice_label("stage_layout", layout)
        report.not_expressible(f"{called('stage_layout')} {told}: stages are cut as evenly as layers divide.")
