"""Devices that the next stage may take: HPGO's three policies, given the devices of earlier stages on each machine.

Machines are filled from their first device on, so the number of taken devices identifies them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

from engine.planners.layerwise.cluster import MachineCluster

__all__ = ["Taken", "copies_of", "empty", "placements"]

Taken = tuple[int, ...]
"""Devices taken of each machine."""


def empty(cluster: MachineCluster) -> Taken:
    """Returns the state without taken devices.

    Args:
        cluster: machines with their devices and networks.
    """
    return (0,) * len(cluster.machines)


@lru_cache(maxsize=65_536)
def placements(sizes: Taken, taken: Taken, need: int) -> tuple[Taken, ...]:
    """Returns the devices that the next stage takes of each machine, in up to three ways, in the order of the policies.

    Fresh First fills idle machines in order, Append First machines in use; Scatter First takes one device of each
    machine in turn. A policy for which there are too few devices gives nothing.

    Args:
        sizes: devices of each machine.
        taken: devices of earlier stages on each machine.
        need: devices that the stage has.
    """
    free = [size - used for size, used in zip(sizes, taken, strict=True)]
    fresh = _fill_machines(free, need, [at for at, used in enumerate(taken) if not used])
    append = _fill_machines(free, need, [at for at, used in enumerate(taken) if used])
    scatter = _scatter_devices(free, need)
    return tuple(dict.fromkeys(each for each in (fresh, append, scatter) if each is not None))


def _fill_machines(free: Sequence[int], need: int, machines: Iterable[int]) -> Taken | None:
    found = [0] * len(free)
    for at in machines:
        found[at] = min(need, free[at])
        need -= found[at]
    return None if need else tuple(found)


def _scatter_devices(free: Sequence[int], need: int) -> Taken | None:
    if sum(free) < need:
        return None
    found = [0] * len(free)
    while need:
        for at, most in enumerate(free):
            if need and found[at] < most:
                found[at] += 1
                need -= 1
    return tuple(found)


def devices(cluster: MachineCluster, taken: Taken, more: Taken) -> tuple[int, ...]:
    """Returns the numbers of the next `more` devices behind the `taken` ones.

    Args:
        cluster: machines with their devices and networks.
        taken: devices that are taken already, by machine [machines].
        more: devices that are taken besides, by machine [machines].
    """
    return tuple(
        cluster.first[at] + used + number
        for at, (used, count) in enumerate(zip(taken, more, strict=True))
        for number in range(count)
    )


def sizes_of(cluster: MachineCluster) -> Taken:
    """Returns devices of each machine.

    Args:
        cluster: machines with their devices and networks.
    """
    return tuple(machine.devices for machine in cluster.machines)


def added(taken: Taken, more: Taken) -> Taken:
    """Returns the taken devices of each machine after adding `more`.

    Args:
        taken: devices in use, by machine [machines].
        more: devices to add, by machine [machines].
    """
    return tuple(a + b for a, b in zip(taken, more, strict=True))


def copies_of(cluster: MachineCluster, taken: Taken, need: int, copies: int) -> tuple[Taken, ...]:
    """Returns the devices that `copies` of a stage may take, placed one after the other by any policy, in lexicographic
    order.

    Args:
        cluster: machines with their devices and networks.
        taken: devices that are taken already, by machine [machines].
        need: devices of each copy.
        copies: how many are placed.
    """
    sizes = sizes_of(cluster)
    reached = {taken}
    for _ in range(copies):
        reached = {added(before, more) for before in reached for more in placements(sizes, before, need)}
    return tuple(sorted(tuple(b - a for a, b in zip(taken, after, strict=True)) for after in reached))
