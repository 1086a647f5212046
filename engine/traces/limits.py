"""Limits of profiler traces, and the error beyond them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["DEFAULT_LIMITS", "TraceError", "TraceLimits"]


class TraceError(ValueError):
    """A trace that cannot be read; the message is one sentence that names the file and what would do."""


@dataclass(frozen=True, slots=True)
class TraceLimits:
    """Largest traces that are read."""

    json_bytes: int = 2_000_000_000
    """Unpacked bytes of one JSON file [bytes]."""
    events: int = 20_000_000
    """Events that are kept."""
    depth: int = 32
    """Levels of nesting in JSON; Kineto writes six."""
    expansion: int = 200
    """Unpacked over packed size beyond `expansion_from`; traces have 5 to 30."""
    expansion_from: int = 100_000_000
    """Unpacked size from which the expansion counts [bytes]."""
    name: int = 2_000
    """Characters of a name that are kept."""
    text: int = 16_000_000
    """Bytes of one JSON string [bytes]; the longest known are call stacks of some kilobytes."""
    ranks: int = 4_096
    """Files read together."""
    steps: int = 1_000
    """Steps whose figures are computed."""
    seconds: float = 60.0
    """Time of one query of an Nsight database [s]."""


DEFAULT_LIMITS: Final = TraceLimits()
