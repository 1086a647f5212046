"""Time of a step in words: of one execution, and of one against another."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from dashboard.charts.elements.palette import TIME_KINDS
from dashboard.charts.execution.time_bar import time_pieces
from dashboard.words.differences import change_text, is_change
from dashboard.words.names import in_sentence
from dashboard.words.numbers import percent
from engine.executions.execution_names import execution_name

__all__ = ["differences_in_time", "losses", "slower_than"]

COMPUTING: Final = ("forward", "backward")
"""Parts of a step that are the arithmetic of the model; all others are losses."""
MOST: Final = 3
"""Parts that are named."""
WORTH_NAMING: Final = 0.002
"""Share of the step below which a loss is not mentioned."""
_NAMES: Final = {kind.key: in_sentence(kind.name) for kind in TIME_KINDS}


def losses(execution: Mapping[str, Any]) -> str:
    """Returns how much of a step computes, and the largest of what does not, as Markdown."""
    pieces, total = time_pieces(execution), float(execution["total_time"])
    computes = sum(pieces[kind] for kind in COMPUTING) / total
    lost = {kind: value / total for kind, value in pieces.items() if kind not in COMPUTING}
    largest = sorted((kind for kind in lost if lost[kind] >= WORTH_NAMING), key=lambda kind: -lost[kind])[:MOST]
    what = "forward and backward" if execution["training"] else "forward"
    told = f"**{percent(computes)}** of the step is {what}"
    if not largest:
        return f"{told}. No other part is large."
    named = ", ".join(f"{_NAMES[kind]} {percent(lost[kind])}" for kind in largest)
    return f"{told}. Lost {'most ' if len(lost) > len(largest) else ''}to {named}."


def slower_than(best: Mapping[str, Any], execution: Mapping[str, Any], among: str = "") -> str:
    """Returns by how much an execution is slower than the fastest, and by what, as Markdown; empty where it is as fast.

    among: of which executions that is the best, such as " without filters".
    """
    behind = float(best["sample_rate"]) / float(execution["sample_rate"]) - 1.0
    if not math.isfinite(behind) or behind < 0 or not is_change(behind, 1.0):
        return ""
    name, why = execution_name(best), differences_in_time(best, execution)
    return f"A sample takes **{percent(behind)}** longer than in the fastest{among}, {name}: {why}."


def differences_in_time(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Returns the largest differences between two steps, each per sample of the batch where batches differ."""
    scale = float(before["batch_size"]) / float(after["batch_size"])
    old, new = time_pieces(before), time_pieces(after)
    changes = {kind: new[kind] * scale - old[kind] for kind in old}
    total = abs(float(before["total_time"]))
    told = [
        f"{_NAMES[kind]} {change_text('total_time', changes[kind], total)}"
        for kind in sorted(changes, key=lambda each: -abs(changes[each]))[:MOST]
        if is_change(changes[kind], total)
    ]
    return ", ".join(told) if told else "no part of the step changes"
