"""Groups of processors that a collective belongs to, and the communication of each that nothing hides.

A group is known by the description that the framework gave it, else by its operation: all-to-alls are of experts,
sends between stages of a pipeline. All else is "unknown".

Source: names of groups in Megatron-LM's parallel_state.py (d98e8a64) and torchtitan's parallel_dims.py.
"""

from __future__ import annotations

import re
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from engine.traces.events import Collective, DeviceEvents, RankTrace
from engine.traces.figures import COPIES
from engine.traces.intervals import intersect, measure, share_exposed, unite

__all__ = ["GROUPS", "exposed_by_group", "group_of"]

GROUPS: Final = ("tensor", "context", "expert", "pipeline", "data", "unknown")
"""Kinds of groups, by the dimension of parallelism."""
DESCRIPTIONS: Final = (
    ("data", r"^(EXPERT_)?DATA_PARALLEL_GROUP|^INTRA_(PARTIAL_DATA_PARALLEL|DISTRIBUTED_OPTIMIZER)"),
    ("data", r"^(fsdp|dp_replicate|dp_shard|dp|efsdp|dp_shard_cp)$"),
    ("expert", r"^EXPERT_(MODEL|TENSOR)|^ep$"),
    ("tensor", r"^TENSOR_MODEL_PARALLEL_GROUP|^TENSOR_AND_CONTEXT_PARALLEL_GROUP|^tp$"),
    ("context", r"^CONTEXT_PARALLEL_GROUP|^HIERARCHICAL_CONTEXT|^HYBRID_DP_CP_GROUP|^cp$"),
    ("pipeline", r"^PIPELINE_MODEL_PARALLEL_GROUP|^pp$|^(POSITION_)?EMBEDDING_GROUP"),
)
OPERATIONS: Final = (
    ("expert", r"^all_?to_?all"),
    ("pipeline", r"^(send|recv|coalesced)"),
)


def group_of(collective: Collective) -> str:
    """Return the kind of group of a collective, of `GROUPS`.

    Args:
        collective: as it was recorded.
    """
    for kind, pattern in DESCRIPTIONS:
        if re.search(pattern, collective.group_description):
            return kind
    for kind, pattern in OPERATIONS:
        if re.search(pattern, collective.operation, re.IGNORECASE):
            return kind
    return "unknown"


def exposed_by_group(trace: RankTrace, chosen: npt.NDArray[np.bool_] | None = None) -> dict[str, dict[str, Any]]:
    """Return the communication of each group present: `exposed_us`, `hidden_us`, `link_us` and `events`.

    A moment with several groups counts in equal parts for each, so that exposed times add up to the exposed time of
    the trace.

    Args:
        trace: of one rank.
        chosen: events that count [events]; all if None.
    """
    events: DeviceEvents = trace.events if chosen is None else trace.events.take(chosen)
    kinds = np.array([GROUPS.index(group_of(each)) for each in trace.collectives], np.int64)
    of_event = np.where(events.collective >= 0, kinds[events.collective] if len(kinds) else -1, -1)
    works = ~events.is_of("comm", *COPIES)
    computing = unite(events.start[works], events.end[works])
    present = [place for place in range(len(GROUPS)) if (of_event == place).any()]
    unions = [unite(events.start[of_event == place], events.end[of_event == place]) for place in present]
    exposed, _ = share_exposed(unions, computing)
    return {
        GROUPS[place]: {
            "exposed_us": round(bare / 1000, 3),
            "hidden_us": round(intersect(union, computing) / 1000, 3),
            "link_us": round(measure(union) / 1000, 3),
            "events": int((of_event == place).sum()),
        }
        for place, union, bare in zip(present, unions, exposed, strict=True)
    }
