"""An independent restatement of Calculon's model of one execution: plain Python numbers, one execution at a time.

It exists to check the vectorised engine and shares nothing with it: no arrays, no tables of unique keys, no shortcuts.
It reads Calculon's own dictionaries (model, system, execution as in its JSON files).

Where a required bandwidth has no time to hide in, Calculon divides by zero; here the requirement is infinite, also when
there is nothing to move (0/0).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from . import checks
from .batch import Counts, memory_needs, statistics
from .block import block_totals
from .hardware import Machine, TableGapError, Tier
from .layers import block_layers, layer_figures, situation

__all__ = ["evaluate", "layer_table"]

Ok = tuple[Literal["ok"], dict[str, float | None]]
Refused = tuple[Literal["infeasible", "invalid"], str, str]


def evaluate(model: Mapping[str, int], system: Mapping[str, Any], execution: Mapping[str, Any]) -> Ok | Refused:
    """Evaluate one execution.

    Returns ("ok", the 96 statistics), or ("infeasible", reason, text) for what Calculon itself reports as an error, or
    ("invalid", reason, text) for what it asserts or misreads.
    """
    try:
        checks.check_types(execution)
        checks.check_schedule(execution)
        checks.check_networks(execution, [Tier(network) for network in system["networks"]])
        checks.check_datatype_known(execution["datatype"])
        checks.check_blocks(model, execution)
        checks.check_datatype_supported(system, execution["datatype"])
        at = situation(system, execution)
        block = block_totals(block_layers(model, execution), at, model, execution)
        counts = Counts.of(model, execution)
        need = memory_needs(block, counts, execution)
        checks.check_memory((need.tier1, need.tier2), Machine(system, execution["datatype"]))
    except checks.RejectedError as rejected:
        return (rejected.status, rejected.reason, rejected.text)
    except TableGapError as gap:
        return ("invalid", "efficiency_table", str(gap))
    return ("ok", statistics(block, at, counts, execution, need))


def layer_table(
    model: Mapping[str, int], system: Mapping[str, Any], execution: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Figures of every layer of one block, in order."""
    at = situation(system, execution)
    return [layer_figures(layer, at) for layer in block_layers(model, execution)]
