"""Placements: how many GPUs a job has on each of its nodes, as text of one digit per node, such as 8888 or 35."""

from __future__ import annotations

import re
from collections.abc import Sequence
from numbers import Integral
from typing import Any, Final

from engine.planners.contract import PlanError
from models.documents import shown

__all__ = ["MOST_GPUS", "MOST_NODES", "PlacementLike", "gpus_on_nodes", "placement_text", "placements_filling"]

PlacementLike = str | int | Sequence[int]
"""A placement as people write it: 8888, "8888", "16,16" where a node has more than nine GPUs, or [8, 8, 8, 8]."""

MOST_NODES: Final = 4_096
"""Most nodes of a placement. Source: stated by us."""
MOST_GPUS: Final = 1_000_000
"""Most GPUs of a placement. Source: stated by us."""


def gpus_on_nodes(placement: PlacementLike) -> tuple[int, ...]:
    """Returns the GPUs on each node, in the written order.

    Args:
        placement: digits, one per node; numbers with commas; or a list of numbers.

    Raises `engine.planners.contract.PlanError` for an invalid placement.
    """
    parts: list[Any]
    if isinstance(placement, Integral) and not isinstance(placement, bool):
        placement = str(int(placement)) if abs(int(placement)) < 10**400 else "-"
    if isinstance(placement, str):
        text = placement.strip()
        if re.fullmatch(r"[0-9]+", text, re.ASCII):
            parts = [int(digit) for digit in text[: MOST_NODES + 1]]
        elif re.fullmatch(r"[0-9]{1,7}(,[0-9]{1,7})*,?", text, re.ASCII):
            parts = [int(part) for part in text.split(",") if part]
        else:
            raise _no_placement(placement)
    elif isinstance(placement, Sequence):
        parts = list(placement[: MOST_NODES + 1])
    else:
        raise _no_placement(placement)
    if not parts or any(isinstance(part, bool) or not isinstance(part, Integral) or part < 1 for part in parts):
        raise _no_placement(placement)
    if len(parts) > MOST_NODES or sum(parts) > MOST_GPUS:
        raise PlanError(f"A placement has at most {MOST_NODES:,} nodes and {MOST_GPUS:,} GPUs.")
    return tuple(int(part) for part in parts)


def _no_placement(placement: object) -> PlanError:
    return PlanError(
        f"{shown(placement)} is no placement; write the GPUs on each node as digits, such as 8888, or with commas, "
        "such as 16,16."
    )


def placement_text(nodes: Sequence[int]) -> str:
    """Returns a placement as text: digits where no node has more than nine GPUs, else numbers with commas.

    Args:
        nodes: GPUs on each node.
    """
    if all(gpus <= 9 for gpus in nodes):
        return "".join(str(gpus) for gpus in nodes)
    return ",".join(str(gpus) for gpus in nodes) + ("," if len(nodes) == 1 else "")


def placements_filling(gpus: int, gpus_per_node: int) -> tuple[int, ...]:
    """Returns the placement that fills whole nodes, with the rest on a last one.

    Args:
        gpus: of the job.
        gpus_per_node: GPUs of a node.
    """
    whole, rest = divmod(gpus, gpus_per_node)
    return (gpus_per_node,) * whole + ((rest,) if rest else ())
