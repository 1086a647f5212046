"""DistIR's 1F1B: in every time step each stage takes ready work of the kind that it did not do last; no warm-up cap.

Source: Santhanam et al., "DistIR" (arXiv:2111.05426), and its PipeDream scheduler: unit time steps, lowest microbatch
first, results ready in the next step. Without a cap a stage holds nearly twice the activations of the textbook's 1F1B.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from engine.simulate.schedules.contract import BACKWARD, FORWARD, Entry, ScheduleRule, ScheduleShape

__all__ = ["RULES"]


def _list_greedily(shape: ScheduleShape) -> list[list[Entry]]:
    """Lists what every stage picks in 2 (M+P-1) steps."""
    last = shape.ranks - 1
    ready: list[list[deque[int]]] = [[deque(), deque()] for _ in range(shape.ranks)]
    ready[0][0].extend(range(shape.microbatches))
    before = [1] * shape.ranks
    entries: list[list[Entry]] = [[] for _ in range(shape.ranks)]
    for _ in range(2 * (shape.microbatches + last)):
        picked: list[tuple[int, int, int]] = []
        for rank in range(shape.ranks):
            for kind in (1 - before[rank], before[rank]):
                if ready[rank][kind]:
                    picked.append((rank, kind, ready[rank][kind].popleft()))
                    break
        for rank, kind, m in picked:
            before[rank] = kind
            entries[rank].append(((BACKWARD if kind else FORWARD, rank, m),))
            if kind == 0:
                ready[rank if rank == last else rank + 1][int(rank == last)].append(m)
            elif rank:
                ready[rank - 1][1].append(m)
    return entries


RULES: Final = (
    ScheduleRule(
        name="distir-1f1b",
        title="1F1B, greedy (DistIR)",
        order=_list_greedily,
        source="Santhanam et al. 2021 (arXiv:2111.05426), the PipeDream scheduler of its program",
    ),
)
