"""Rows of models and systems in lists of the library."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hardware import System
    from models import Model

__all__ = ["model_row", "system_row"]


def model_row(model: Model) -> dict[str, Any]:
    """Return the row of a model in lists of the library.

    Args:
        model: of the library.
    """
    return {
        "name": model.name,
        "title": model.title,
        "parameters": model.parameters,
        "sequence": model.seq_size,
        "blocks": None if model.block is None else model.block.num_blocks,
        "hidden": None if model.block is None else model.block.hidden,
        "explorable": model.block is not None,
    }


def system_row(system: System) -> dict[str, Any]:
    """Return the row of a system in lists of the library.

    Args:
        system: of the library.
    """
    return {
        "name": system.name,
        "title": system.title,
        "datatypes": list(system.offered_datatypes),
        "mem1_gib": system.mem1.capacity_gib,
        "mem1_gb_per_s": system.mem1.bandwidth_gb_per_s,
        "mem2_gib": system.mem2.capacity_gib,
        "network_sizes": [network.size for network in system.networks],
        "assumed_values": len(system.assumed_values()),
    }
