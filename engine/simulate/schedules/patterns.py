"""Repeating patterns of V-shaped schedules, and how their warm-up and cool-down are squeezed within the memory.

A pattern gives each rank the slots of one microbatch: forward of the near chunk, forward of the far chunk, gradient of
the far chunk, gradient of the near chunk; the next microbatch comes six slots later. Gradients of weights take free
slots. Then actions of the warm-up and the cool-down move to earlier free slots as long as no rank holds more than
before.

Source: Qi et al., "Pipeline Parallelism with Controllable Memory" (arXiv:2405.15362), sections 3 and 4 and appendix;
the order in which moves are tried is that of sail-sg/zero-bubble-pipeline-parallelism, so that lists come out the
same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Final

__all__ = ["Pattern", "pull_forward", "squeeze_pattern"]

PERIOD: Final = 6
"""Slots from one microbatch to the next: forward, gradient of inputs and gradient of weights of two chunks. Source: the
building blocks of Qi et al. 2024, with equal times of all three."""
FAR_GRADIENT, NEAR_GRADIENT, WEIGHTS = 2, 3, 4
"""Kinds of actions from which gradients of the far chunk, of the near chunk, and of weights begin."""

Pattern = Sequence[tuple[int, int, int, int]]
Slots = list[list[int]]
"""Slots of one rank: for every kind of action the slot of every microbatch."""
Move = tuple[int, int]
"""Kind and microbatch."""


def squeeze_pattern(pattern: Pattern, microbatches: int) -> list[list[Move]]:
    """Returns every rank's order: kinds 0 to 3 as in the pattern, 4 and 5 the weights of the far and near chunk.

    Args:
        pattern: of every rank, the slot of the first microbatch for kinds 0 to 3 [ranks].
        microbatches: of one replica in a step, M.
    """
    slots = [[[first + PERIOD * m for m in range(microbatches)] for first in each] for each in pattern]
    slots = _move_forward(slots, with_weights=True)
    slots = _move_forward([each[:WEIGHTS] for each in slots], with_weights=False)
    ordered = [_with_weights(each[:WEIGHTS], apart=True) for each in slots]
    return [[(kind, m) for _, kind, m in _in_time(each)] for each in ordered]


def _in_time(slots: Slots) -> list[tuple[int, int, int]]:
    """Returns slot, kind and microbatch of a rank's actions in their order."""
    return sorted((slot, kind, m) for kind, each in enumerate(slots) for m, slot in enumerate(each))


def _with_weights(slots: Slots, *, apart: bool = False) -> Slots:
    """Return the slots with weights in every free one; `apart` separates the two chunks, the far one first."""
    kinds: dict[int, int] = {slot: kind for kind, each in enumerate(slots) for slot in each}
    found: Slots = [[], []] if apart else [[]]
    due = [0, 0]
    slot, end = 0, max(kinds)
    while slot <= end or any(due):
        kind = kinds.get(slot)
        if kind is None:
            which = 0 if due[0] else 1
            if due[which]:
                due[which] -= 1
                found[which].append(slot)
        elif kind >= FAR_GRADIENT:
            due[kind - FAR_GRADIENT if apart else 0] += 1
        slot += 1
    return [*slots, *found]


def _peak_chunks(slots: Slots) -> int:
    """Returns the most chunks that a rank holds, each until its weights are done, in the next free slot if not said."""
    if len(slots) > WEIGHTS:
        begun = [(slot, 1) for each in slots[:FAR_GRADIENT] for slot in each]
        done = [(slot, -1) for each in slots[WEIGHTS:] for slot in each]
        return max(accumulate(change for _, change in sorted(begun + done)))
    kinds = {slot: kind for kind, each in enumerate(slots) for slot in each}
    due, held, most = 0, 0, 0
    for slot in range(max(kinds) + 1):
        kind = kinds.get(slot)
        if kind is None:
            if due:
                held, due = held - 1, due - 1
        elif kind < FAR_GRADIENT:
            held += 1
            if held > most:
                most = held
        else:
            due += 1
    return most


def _move_forward(ranks: list[Slots], *, with_weights: bool) -> list[Slots]:
    """Returns the slots after one attempt to move every action of the warm-up and the cool-down forward."""
    if with_weights:
        ranks = [_with_weights(each) for each in ranks]
    # Squeezing may not raise the largest peak of any rank.
    limit = max(_peak_chunks(each) for each in ranks)
    last = len(ranks[0][0]) - 1
    taken: list[set[int]] = [set() for _ in ranks]
    everything = sorted((slot, rank, kind, m) for rank, each in enumerate(ranks) for slot, kind, m in _in_time(each))
    steady, cooling = False, False
    for slot, rank, kind, m in everything:
        steady = steady or (kind == NEAR_GRADIENT and rank == 0)
        if (steady and not cooling) or not (steady or with_weights):
            cooling = cooling or (steady and kind == 0 and m == last)
        else:
            ranks[rank][kind][m] = _find_earliest_slot(ranks, taken[rank], slot, rank, kind, m, limit)
        taken[rank].add(ranks[rank][kind][m])
    if not with_weights:
        ranks = [_with_weights(each) for each in ranks]
    return _pack_slots(ranks)


def _find_earliest_slot(
    ranks: list[Slots], taken: set[int], slot: int, rank: int, kind: int, m: int, limit: int
) -> int:
    """Return the first free slot after an action's inputs that keeps the memory limit, or its present slot."""
    own = ranks[rank]
    frees = (
        kind >= FAR_GRADIENT and len(own) > WEIGHTS
    )  # or changes nothing: if weights are given, gradients do not count
    for place in range(1 + max(_list_needed_slots(ranks, rank, kind, m), default=-1), slot):
        if place in taken:
            continue
        own[kind][m] = place
        if frees or _peak_chunks(own) <= limit:
            return place
    own[kind][m] = slot
    return slot


def _list_needed_slots(ranks: list[Slots], rank: int, kind: int, m: int) -> Iterable[int]:
    """Yields the slots after which an action can be: its input's, and that of the microbatch before."""
    if m:
        yield ranks[rank][kind][m - 1]
    if kind >= WEIGHTS:
        yield sorted(ranks[rank][FAR_GRADIENT] + ranks[rank][NEAR_GRADIENT])[m]
        return
    neighbour = rank - 1 if kind in (0, FAR_GRADIENT) else rank + 1
    if 0 <= neighbour < len(ranks):
        yield ranks[neighbour][kind][m]
    if kind:
        yield ranks[rank][kind - 1][m]


def _pack_slots(ranks: list[Slots]) -> list[Slots]:
    """Returns the slots with every action as early as the order and its inputs allow."""
    found: list[Slots] = [[[0] * len(kind) for kind in each] for each in ranks]
    free = [0] * len(ranks)
    for _, rank, kind, m in sorted(
        (slot, rank, kind, m) for rank, each in enumerate(ranks) for slot, kind, m in _in_time(each)
    ):
        ready = [] if kind >= WEIGHTS else [1 + slot for slot in _list_needed_slots(found, rank, kind, m)]
        found[rank][kind][m] = max(free[rank], *ready, 0)
        free[rank] = found[rank][kind][m] + 1
    return found


def pull_forward(ranks: int, microbatches: int) -> list[list[Move]]:
    """Returns every rank's order of V-1F1B: kinds 0 to 3 as in a pattern, gradients being whole backwards.

    Args:
        ranks: of the pipeline, P.
        microbatches: of one replica in a step, M.
    """
    slots = _whole_pattern(ranks, microbatches)
    rows: list[dict[int, tuple[int, int]]] = [
        {slot: (kind, m) for kind, each in enumerate(rank) for m, slot in enumerate(each)} for rank in slots
    ]
    end = max(max(row) for row in rows) + 2
    held = [list(accumulate(_held_change(row.get(slot)) for slot in range(end))) for row in rows]
    limit = max(max(each) for each in held)
    for slot in range(end):
        for rank in range(ranks):
            here = rows[rank].get(slot)
            if here is None:
                continue
            kind, m = here
            place = _find_earlier_slot(slots, rows[rank], held[rank], slot, rank, kind, m, limit)
            if place < slot:
                del rows[rank][slot]
                rows[rank][place] = here
                slots[rank][kind][m] = place
                for each in range(place, slot):
                    held[rank][each] += _held_change(here)
    return [[row[slot] for slot in sorted(row) if row[slot][0] < WEIGHTS] for row in rows]


def _held_change(action: tuple[int, int] | None) -> int:
    """Returns by how much an action changes the chunks that a rank holds."""
    if action is None or FAR_GRADIENT <= action[0] < WEIGHTS:
        return 0
    return 1 if action[0] < FAR_GRADIENT else -1


def _find_earlier_slot(
    slots: list[Slots],
    row: dict[int, tuple[int, int]],
    held: list[int],
    slot: int,
    rank: int,
    kind: int,
    m: int,
    limit: int,
) -> int:
    """Return the slot of an action of V-1F1B: an earlier one, or the present one."""
    first = 1 + max(_needed_whole(slots, rank, kind, m), default=-1)
    if kind >= FAR_GRADIENT:
        while first < slot and (first in row or (kind < WEIGHTS and first + 1 in row)):
            first += 1
        return first
    while first in row and first < slot:
        first += 1
    place = slot
    while place > first and held[place - 1] < limit:
        place -= 1
    while place < slot and place in row:
        place += 1
    return place


def _needed_whole(slots: list[Slots], rank: int, kind: int, m: int) -> Iterable[int]:
    """Yields the slots after which an action of V-1F1B can be; a whole backward ends with its weights."""
    own, ranks = slots[rank], len(slots)
    if m:
        yield own[kind][m - 1]
    if kind >= WEIGHTS:
        yield own[kind - 2][m]
    elif kind in (0, FAR_GRADIENT):
        if rank:
            yield slots[rank - 1][0 if kind == 0 else WEIGHTS][m]
        elif kind:
            yield own[1][m]
    elif rank < ranks - 1:
        yield slots[rank + 1][1 if kind == 1 else WEIGHTS + 1][m]
    else:
        yield own[0 if kind == 1 else WEIGHTS][m]


def _whole_pattern(ranks: int, microbatches: int) -> list[Slots]:
    """Return the slots of V-1F1B before squeezing; a backward and its weights have neighbouring slots.

    The slots of a microbatch are laid out one after the other, three backwards to a round of six slots with the third
    of them followed by a gap of three, so that the residues of one rank do not meet.
    """
    residues = [[0] * PERIOD for _ in range(ranks)]
    there, back = range(ranks), range(ranks - 1, -1, -1)
    now = 0
    for kind, way in ((0, there), (1, back)):
        for rank in way:
            now += 1
            residues[rank][kind] = now
    now += 1 if ranks % 3 else 4
    cycle = -(ranks + 2) % 3
    for kind, way in ((FAR_GRADIENT, there), (NEAR_GRADIENT, back)):
        for rank in way:
            residues[rank][kind], residues[rank][kind + 2] = now, now + 1
            cycle, now = cycle + 1, now + 2
            if cycle == 3:
                cycle, now = 0, now + 3
    slots: list[Slots] = [[[] for _ in range(PERIOD)] for _ in range(ranks)]
    first = PERIOD
    for kind, way in ((0, there), (1, back), (FAR_GRADIENT, there), (NEAR_GRADIENT, back)):
        for rank in way:
            first += (residues[rank][kind] - first) % PERIOD
            slots[rank][kind] = [first + PERIOD * m for m in range(microbatches)]
            first += 1
            if kind >= FAR_GRADIENT:
                weights = first + (residues[rank][kind + 2] - first) % PERIOD
                slots[rank][kind + 2] = [weights + PERIOD * m for m in range(microbatches)]
    return slots
