"""Spare nodes: as many as stand still for repair at once, with a stated probability."""

from __future__ import annotations

from typing import Final

__all__ = ["COVERED", "spare_nodes"]

COVERED: Final = 0.99
"""Probability that the spare nodes suffice. Source: stated by us."""


def spare_nodes(gpus: int, node: int, mtbf_h: float, repair_h: float) -> int:
    """Return the least number of spare nodes that covers failures under repair with probability 0.99.

    Nodes under repair are Poisson with mean gpus * repair_h / mtbf_h, as in an M/G/infinity queue: every failure takes
    its node away for the time of its repair.

    Args:
        gpus: of the pool.
        node: GPUs of a node.
        mtbf_h: time between failures of one GPU [h].
        repair_h: time until a failed node is back [h].
    """
    from scipy.special import pdtr

    mean = gpus * repair_h / mtbf_h
    nodes = gpus // node
    return next((spare for spare in range(nodes) if pdtr(spare, mean) >= COVERED), nodes)
