"""Profiler traces: where the time of a real step went, by the terms of the cost model.

found = engine.traces.read("rank0.pt.trace.json.gz")
found.figures()["whole"]["comm_exposed_us"]
"""

from __future__ import annotations

from engine.traces.beside_model import StepBesideModel, TermRow, compare_step
from engine.traces.events import RankTrace
from engine.traces.limits import DEFAULT_LIMITS, TraceError, TraceLimits
from engine.traces.megatron_timers import TimerLog
from engine.traces.nsight import KernelSums
from engine.traces.reading import Trace, read, read_content
from engine.traces.terms import StepTerms

__all__ = [
    "DEFAULT_LIMITS",
    "KernelSums",
    "RankTrace",
    "StepBesideModel",
    "StepTerms",
    "TermRow",
    "TimerLog",
    "Trace",
    "TraceError",
    "TraceLimits",
    "compare_step",
    "read",
    "read_content",
]
