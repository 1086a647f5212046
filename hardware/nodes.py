"""Systems as a job gets them: nodes with fewer processors, and a limit of the bandwidth between nodes."""

from __future__ import annotations

from typing import Any

from hardware.editing import edited
from hardware.schema import System

__all__ = ["limit_nodes"]


def limit_nodes(system: System, node_size: int, bandwidth_gb_per_s: float = 0.0) -> System:
    """Returns the system with nodes of another size, and with another bandwidth between nodes.

    No network within a node joins more processors than the node has. The network next to the nodes gets that
    bandwidth; no network further out stays faster, since its traffic passes through it too. A system without a network
    between nodes has none to limit.

    Args:
        system: with nodes of `System.node_size` processors.
        node_size: processors of a node.
        bandwidth_gb_per_s: between nodes, per processor and direction [1e9 bytes/s]; 0 for the system's own.

    Raises `SystemFileError` for a value out of range.
    """
    changes: dict[str, Any] = {}
    inside = system.tier_spanning(system.node_size)
    if node_size != system.node_size:
        for tier, network in enumerate(system.networks[: inside + 1]):
            if tier == inside or network.size > node_size:
                changes[f"networks.{tier}.size"] = node_size
    if bandwidth_gb_per_s:
        for tier, network in enumerate(system.networks[inside + 1 :], start=inside + 1):
            if tier == inside + 1 or network.bandwidth_gb_per_s > bandwidth_gb_per_s:
                changes[f"networks.{tier}.bandwidth_gb_per_s"] = bandwidth_gb_per_s
    return edited(system, changes) if changes else system
