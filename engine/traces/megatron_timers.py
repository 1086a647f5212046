"""Reading the timers that Megatron-LM prints: host timers, of which some lie within others.

Source: NVIDIA/Megatron-LM, megatron/core/timers.py and megatron/training.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Final

from engine.traces.limits import TraceError

__all__ = ["NESTED", "TimerLog", "has_timers", "read_timers"]

NESTED: Final[Mapping[str, str]] = {
    "forward-compute": "forward-backward",
    "backward-compute": "forward-backward",
    "batch-generator": "forward-compute",
    **dict.fromkeys(
        (
            "forward-recv",
            "forward-send",
            "backward-recv",
            "backward-send",
            "forward-send-backward-recv",
            "backward-send-forward-recv",
            "forward-send-forward-recv",
            "backward-send-backward-recv",
            "forward-backward-send-forward-backward-recv",
        ),
        "forward-backward",
    ),
    **dict.fromkeys(
        (
            "optimizer-inner-step",
            "optimizer-copy-to-main-grad",
            "optimizer-clip-main-grad",
            "optimizer-unscale-and-check-inf",
            "optimizer-count-zeros",
            "optimizer-copy-main-to-model-params",
        ),
        "optimizer",
    ),
}
"""Timers that lie within another one."""
_TIMER: Final = re.compile(r"^\s{2,}([a-z][a-z0-9-]*) \.*: (?:\(([0-9.eE+-]+), ([0-9.eE+-]+)\)|([0-9.eE+-]+))\s*$")
_NAME: Final = re.compile(r"^\s{2,}([a-z][a-z0-9-]*):\s*$")
_RANK: Final = re.compile(r"^\s+rank\s+(\d+): ([0-9.eE+-]+)\s*$")
_STEP: Final = re.compile(r"elapsed time per iteration \(ms\): ([0-9.]+)")
WAITING: Final = ("all-grads-sync", "params-all-gather", "embedding-grads-all-reduce")
"""Timers in which ranks wait for each other."""


@dataclass(slots=True)
class TimerLog:
    """Timers of a log: the step [ms], least and most over ranks by timer [ms], medians over what was printed."""

    source: str
    step_ms: float | None
    timers_ms: dict[str, dict[str, float]]
    remarks: list[str] = field(default_factory=list)

    def figures(self) -> dict[str, Any]:
        """Return the step, the timers, which of them lie within others, and what their spread says."""
        spreads = {
            name: value["max"] - value["min"]
            for name, value in self.timers_ms.items()
            if name in WAITING and "min" in value and value["max"] > value["min"]
        }
        widest = max(spreads, key=lambda name: spreads[name], default=None)
        return {
            "step_ms": self.step_ms,
            "timers_ms": self.timers_ms,
            "nested": {name: NESTED[name] for name in self.timers_ms if name in NESTED},
            "remark": None if widest is None else f"spread of {widest} {spreads[widest]:.2f} ms: ranks wait",
        }


def has_timers(text: str) -> bool:
    """Return True for text that has timers of Megatron-LM.

    Args:
        text: of a log.
    """
    return re.search(r"times? across ranks \(ms\):", text) is not None


def read_timers(text: str, name: str) -> TimerLog:
    """Return the timers of a log.

    Args:
        text: of the log.
        name: of the file, for messages.

    Raises:
        TraceError: it has no timer.
    """
    least: dict[str, list[float]] = {}
    most: dict[str, list[float]] = {}
    of_ranks: dict[str, list[float]] = {}
    current, inside = "", False
    for line in text.splitlines():
        if re.search(r"times? across ranks \(ms\):", line):
            inside, current = True, ""
        elif inside and (found := _TIMER.match(line)):
            low, high = found[2], found[3] or found[4]
            most.setdefault(found[1], []).append(_number(high, name))
            if low is not None:
                least.setdefault(found[1], []).append(_number(low, name))
        elif inside and (found := _NAME.match(line)):
            current = found[1]
        elif inside and current and (found := _RANK.match(line)):
            of_ranks.setdefault(current, []).append(_number(found[2], name))
        elif line.strip():
            inside = False
    for timer, values in of_ranks.items():
        least.setdefault(timer, []).append(min(values))
        most.setdefault(timer, []).append(max(values))
    if not most:
        raise TraceError(f"{name} has no timer of Megatron-LM; run it with --timing-log-level 1 or 2.")
    steps = [float(each) for each in _STEP.findall(text)]
    timers = {
        timer: ({"min": median(least[timer])} if timer in least else {}) | {"max": median(values)}
        for timer, values in most.items()
    }
    remarks = ["Timers are of the host, with synchronisation. Those within others are not to be added to them."]
    return TimerLog(name, median(steps) if steps else None, timers, remarks)


def _number(text: str, name: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise TraceError(f"{name} has a timer of {text[:40]!r}, which is not a number.") from None
