"""Systems as a job gets them: nodes with fewer processors, and a limit of the bandwidth between nodes."""

from __future__ import annotations

from typing import Any

from hardware.editing import edited
from hardware.schema import System

__all__ = ["limit_nodes"]


def limit_nodes(system: System, node_size: int, bandwidth_gb_per_s: float = 0.0) -> System:
    """Returns the system with nodes of another size, and with another bandwidth between nodes.

    The network next to the nodes gets that bandwidth; no network further out stays faster, since its traffic passes
    through it too. A system of one network has none between nodes.

    Args:
        system: whose innermost network is a node.
        node_size: processors of a node.
        bandwidth_gb_per_s: between nodes, per processor and direction [1e9 bytes/s]; 0 for the system's own.

    Raises `SystemFileError` for a value out of range.
    """
    changes: dict[str, Any] = {}
    if node_size != system.node_size:
        changes["networks.0.size"] = node_size
    if bandwidth_gb_per_s:
        for tier, network in enumerate(system.networks[1:], start=1):
            if tier == 1 or network.bandwidth_gb_per_s > bandwidth_gb_per_s:
                changes[f"networks.{tier}.bandwidth_gb_per_s"] = bandwidth_gb_per_s
    return edited(system, changes) if changes else system
