"""Limits of a space in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dashboard.words.executions import OFFLOADS
from dashboard.words.markdown import literal
from dashboard.words.names import in_sentence
from engine.columns import by_name, choice_label
from engine.executions.limits import EXCESS
from hardware import System, network_names

__all__ = ["describe", "in_words"]


def describe(limits: Mapping[str, Any], system: System) -> str:
    """Returns the limits in a few words of Markdown: "no restrictions", "**TP 8**, **no offload**, the rest free".

    system: names the networks.
    """
    if not limits:
        return "no restrictions"
    words = in_words(limits, system)
    more = len(words) - 3
    shown = [f"**{literal(word)}**" for word in words[:3]] + ([f"{more} more limits"] if more > 0 else [])
    return f"{', '.join(shown)}, the rest free"


def in_words(limits: Mapping[str, Any], system: System) -> list[str]:
    """Returns every limit in plain words: "TP 8", "no offload", "TP network NVLink".

    system: to name networks by.
    """
    left = dict(limits)
    words = []
    if all(left.get(name) == [False] for name in OFFLOADS):
        words.append("no offload")
        left = {name: limit for name, limit in left.items() if name not in OFFLOADS}
    return [*words, *(_in_words(name, limit, system) for name, limit in left.items())]


def _in_words(name: str, limit: Any, system: System) -> str:
    """One limit in a few words: "TP 1 or 2", "weights not offloaded", "recompute none"."""
    if name == "uneven_pipelines":
        return "uneven pipelines too"
    if name == EXCESS:
        return f"memory up to {limit} % above the capacity"
    column = by_name(name)
    short = column.dtype == "int64" and not column.of_network
    label = column.short if short else in_sentence(column.label)
    if isinstance(limit, Mapping):
        low, high = limit["min"], limit["max"]
        return f"{label} up to {high:,}" if low <= 1 else f"{label} {low:,} to {high:,}"
    if column.dtype == "bool" and len(limit) == 1:
        if name in OFFLOADS:
            return f"{OFFLOADS[name]} {'' if limit[0] else 'not '}offloaded"
        return label if limit[0] else f"no {label}"
    values = [f"{value:,}" if short else choice_label(column, value, network_names(system)) for value in limit]
    listed = " or ".join(values) if len(values) < 4 else f"{', '.join(values[:2])} … {values[-1]}"
    return f"{label} {listed}"
