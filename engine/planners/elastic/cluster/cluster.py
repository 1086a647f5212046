"""The cluster that a workload is replayed on: nodes with GPUs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from engine.planners.contract import PlanError

__all__ = ["MOST_GPUS_PER_NODE", "MOST_NODES", "Cluster", "ClusterSource", "cluster_of"]

MOST_NODES: Final = 512
"""Most nodes of a replayed cluster. Source: stated by us."""
MOST_GPUS_PER_NODE: Final = 9
"""GPUs of a node: placements are written with one decimal digit per node."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Nodes of equal size; the published replays use eight nodes of eight GPUs."""

    nodes: int = 8
    gpus_per_node: int = 8

    @property
    def gpus(self) -> int:
        """Returns the GPUs of all nodes."""
        return self.nodes * self.gpus_per_node


ClusterSource: TypeAlias = "Cluster | Mapping[str, Any] | Sequence[int] | str | int"


def cluster_of(source: ClusterSource) -> Cluster:
    """Returns a cluster from a cluster, text, numbers or a mapping.

    Args:
        source: a cluster; `8x8`, nodes and GPUs of each; a placement such as `8888`; nodes with eight GPUs each as a
            number; a pair of both; or a mapping with `nodes` and `gpus_per_node`.

    Raises `engine.planners.contract.PlanError` for an invalid or too large cluster.
    """
    nodes: Any
    each: Any
    if isinstance(source, Cluster):
        nodes, each = source.nodes, source.gpus_per_node
    elif isinstance(source, Mapping):
        nodes = source.get("nodes", source.get("num_nodes", 8))
        each = source.get("gpus_per_node", source.get("num_gpus", 8))
    elif isinstance(source, bool):
        nodes = each = None
    elif isinstance(source, int):
        nodes, each = source, 8
    elif isinstance(source, str):
        nodes, each = _parse_cluster_text(source)
    else:
        pair = tuple(source)
        nodes, each = pair if len(pair) == 2 else (None, None)
    for title, value, most in (("nodes", nodes, MOST_NODES), ("GPUs per node", each, MOST_GPUS_PER_NODE)):
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            raise PlanError(
                f"The cluster {str(source)[:60]!r} has {str(value)[:20]} {title}; give nodes and GPUs of each, such "
                f"as 8x8, with {title} from 1 to {most}."
            )
    return Cluster(nodes, each)


def _parse_cluster_text(source: str) -> tuple[int | None, int | None]:
    text = source.strip().lower()
    if match := re.fullmatch(r"(\d{1,6})\s*[x\u00d7*]\s*(\d{1,6})", text):
        return int(match[1]), int(match[2])
    if re.fullmatch(r"([1-9])\1*", text) and len(text) <= MOST_NODES:
        return len(text), int(text[0])
    return None, None
