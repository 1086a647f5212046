"""Clusters of machines with devices: time of exchanges between groups of devices, and the paper's three clusters.

Rates and rules come from HPGO 0.9.2, whose constants are the defaults: a network of 25 Gb/s between machines, of which
an all-reduce sustains 3 GB/s and a transfer 1 GB/s, 25 GB/s inside a machine, and 16 GB of memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

from engine.planners.contract import PlanError

__all__ = [
    "MOST_DEVICES",
    "PRESETS",
    "ClusterMachine",
    "MachineCluster",
    "MachineClusterError",
    "MachineLevel",
    "cluster_of",
    "flat",
    "hierarchical",
]

MOST_DEVICES: Final = 4_096
"""Devices that a cluster may have."""


class MachineClusterError(PlanError):
    """An invalid cluster; the message says how to correct it."""


@dataclass(frozen=True, slots=True)
class ClusterMachine:
    """Some devices of one kind in one machine. `kind` names the profile that its devices follow, empty for the profile
    itself; `memory` is per device [bytes]."""

    devices: int
    kind: str = ""
    memory: float = 16e9


@dataclass(frozen=True, slots=True)
class MachineLevel:
    """A network that joins several machines, but not the whole cluster: `devices` in a row share one, at `rate` each
    [bytes/s]."""

    devices: int
    rate: float


@dataclass(frozen=True)
class MachineCluster:
    """Machines in order; devices are numbered through. Rates are [bytes/s].

    `inside` is one device's link within a machine, `all_reduce` and `transfer` are what a machine's network sustains of
    either. `switched` says that devices of a machine are joined by a switch; else, as in HPGO, an all-reduce inside a
    machine goes over as many links as there are pairs of devices. `levels` are networks between a machine and the
    cluster, innermost first: a group that one of them joins exchanges at its rate.
    """

    machines: tuple[ClusterMachine, ...]
    inside: float = 25e9
    all_reduce: float = 3e9
    transfer: float = 1e9
    name: str = ""
    switched: bool = False
    levels: tuple[MachineLevel, ...] = ()

    @cached_property
    def size(self) -> int:
        """Returns the number of devices."""
        return sum(machine.devices for machine in self.machines)

    @cached_property
    def first(self) -> tuple[int, ...]:
        """Returns the number of each machine's first device."""
        return tuple(sum(machine.devices for machine in self.machines[:at]) for at in range(len(self.machines)))

    @cached_property
    def machine_of(self) -> tuple[int, ...]:
        """Returns the machine of each device."""
        return tuple(at for at, machine in enumerate(self.machines) for _ in range(machine.devices))

    @cached_property
    def ends(self) -> list[int]:
        """Returns where each machine's numbers end: `[8, 16]` are two machines with eight devices each."""
        return [first + machine.devices for first, machine in zip(self.first, self.machines, strict=True)]

    @cached_property
    def _areas(self) -> tuple[tuple[int, int, float], ...]:
        """First device, end and rate [bytes/s] of every area that a home can be: machines, then each level's
        networks."""
        machines = zip(self.first, self.ends, strict=True)
        return (
            *((first, end, self.inside) for first, end in machines),
            *(
                (first, min(first + level.devices, self.size), level.rate)
                for level in self.levels
                for first in range(0, self.size, level.devices)
            ),
        )

    @cached_property
    def homes(self) -> range:
        """Returns the homes of groups that one machine, or one network of a level, joins; see `home`."""
        return range(len(self._areas))

    def _area(self, group: Sequence[int]) -> int:
        """Return the innermost area with a whole group; -1 without one."""
        low, high = min(group), max(group)
        if self.machine_of[low] == self.machine_of[high]:
            return self.machine_of[low]
        at = len(self.machines)
        for level in self.levels:
            if low // level.devices == high // level.devices:
                return at + low // level.devices
            at += -(-self.size // level.devices)
        return -1

    def spans(self, group: Sequence[int]) -> bool:
        """Returns whether a group's lowest and highest device are in different machines."""
        return self.machine_of[min(group)] != self.machine_of[max(group)]

    def reduce_time(self, group: Sequence[int], size: float) -> float:
        """Returns the time of an all-reduce of `size` [bytes] over a group [s]: a ring moves 2 (n - 1) / n of it."""
        count = len(group)
        if count < 2:
            return 0.0
        # HPGO 0.9.2: V = 2 S (n - 1)/n; V / 3 GB/s between machines, V / (25 GB/s floor(n/2)) inside one.
        moved = 2 * size * (count - 1) / count
        if self.spans(group):
            home = self._area(group)
            return moved / (self.all_reduce if home < 0 else self._areas[home][2])
        return moved / self.inside / (1 if self.switched else count // 2)

    def move_rate(self, senders: Sequence[int], receivers: Sequence[int]) -> float:
        """Returns the time that a byte takes from one group to another, senders splitting and receivers joining it
        [s/byte]."""
        return self.move_rate_to(senders, self.home(receivers))

    def home(self, group: Sequence[int]) -> int:
        """Returns the number of a group's machine; beyond the machines that of the innermost level's network that joins
        it; -1 where only the whole cluster does."""
        return self._area(group)

    def move_rate_to(self, senders: Sequence[int], home: int) -> float:
        """Returns `move_rate` to a group at `home` [s/byte].

        Receivers that only the whole cluster joins take at the rate of an all-reduce, others at that of a transfer what
        comes from elsewhere; so the rule has it that spreading receivers is faster. What a level joins with all
        receivers takes its rate.
        """
        if self.levels and home >= 0:
            return self._rate_over_levels(senders, home)
        if home < 0:
            # HPGO 0.9.2: S / 3 GB/s to several machines; else q of |F| senders elsewhere: S (q / |F|) / 1 GB/s.
            return 1 / self.all_reduce
        away = sum(self.machine_of[device] != home for device in senders)
        return away / len(senders) / self.transfer if away else 1 / self.inside

    def _rate_over_levels(self, senders: Sequence[int], home: int) -> float:
        """Return `move_rate_to` on a cluster with levels: what each network moves, one after the other [s/byte]."""
        first, end, rate = self._areas[home]
        moved: dict[float, int] = {}
        for device in senders:
            if home < len(self.machines) and first <= device < end:
                continue
            area = self._area((device, first, end - 1))
            over = self.transfer if area < 0 else self._areas[area][2]
            moved[over] = moved.get(over, 0) + 1
        return sum(count / len(senders) / over for over, count in moved.items()) or 1 / rate

    def kinds(self, group: Sequence[int]) -> set[str]:
        """Returns the kinds of device in a group."""
        return {self.machines[self.machine_of[device]].kind for device in group}

    def memory(self, group: Sequence[int]) -> float:
        """Returns the memory of the smallest device of a group [bytes]."""
        return min(self.machines[self.machine_of[device]].memory for device in group)

    @cached_property
    def uniform(self) -> bool:
        """Returns whether all devices are of one kind."""
        return len({machine.kind for machine in self.machines}) == 1

    def flattened(self) -> MachineCluster:
        """Returns the same devices, each in a machine of its own."""
        alone = tuple(replace(machine, devices=1) for machine in self.machines for _ in range(machine.devices))
        return replace(self, machines=alone, name=f"{self.name} flat".strip())

    def document(self) -> dict[str, Any]:
        """Returns everything that plans depend on, as JSON."""
        machines = [{"devices": each.devices, "kind": each.kind, "memory": each.memory} for each in self.machines]
        rates = {"inside": self.inside, "all_reduce": self.all_reduce, "transfer": self.transfer}
        levels = [{"devices": each.devices, "rate": each.rate} for each in self.levels]
        return {"machines": machines, **rates, "switched": self.switched, **({"levels": levels} if levels else {})}


def cluster_of(machines: MachineCluster | Sequence[int], memory: float = 16e9) -> MachineCluster:
    """Returns a cluster from where its machines' device numbers end, as in `[8, 16]`; a `MachineCluster` is checked.

    Args:
        machines: whole numbers that rise, or a cluster.
        memory: of each device where `machines` are numbers [bytes].

    Raises:
        ClusterError: it has no devices, too many, or a rate that is not above 0.
    """
    made = machines if isinstance(machines, MachineCluster) else _from_ends(machines, memory)
    if not made.machines:
        raise MachineClusterError("The cluster has no machines; [8, 16] are two machines with eight devices each.")
    for number, machine in enumerate(made.machines, start=1):
        if machine.devices < 1:
            raise MachineClusterError(f"Machine {number} has {machine.devices} devices; it must have at least one.")
        if not (math.isfinite(machine.memory) and machine.memory > 0):
            raise MachineClusterError(
                f"Machine {number} has {machine.memory:g} bytes of memory; it must have more than none."
            )
    if made.size > MOST_DEVICES:
        raise MachineClusterError(f"The cluster has {made.size:,} devices; at most {MOST_DEVICES:,} can be planned.")
    for field in ("inside", "all_reduce", "transfer"):
        value = getattr(made, field)
        if not (math.isfinite(value) and value > 0):
            raise MachineClusterError(
                f"The rate {field} is {value:g}; it must be a number of bytes per second above 0."
            )
    for number, level in enumerate(made.levels, start=1):
        if level.devices < 1 or not (math.isfinite(level.rate) and level.rate > 0):
            raise MachineClusterError(
                f"Level {number} joins {level.devices} devices at {level.rate:g} bytes per second; "
                "both must be above 0."
            )
    return made


def _from_ends(ends: Sequence[int], memory: float) -> MachineCluster:
    try:
        numbers = [int(end) for end in ends]
        whole = all(number == end for number, end in zip(numbers, ends, strict=True))
    except (TypeError, ValueError, OverflowError):
        numbers, whole = [], False
    if not whole or not numbers:
        raise MachineClusterError(
            "Machines are given by where their devices' numbers end: [8, 16] are two machines of eight."
        )
    if numbers[-1] > MOST_DEVICES:
        raise MachineClusterError(f"The cluster has {numbers[-1]:,} devices; at most {MOST_DEVICES:,} can be planned.")
    sizes = [after - before for before, after in zip([0, *numbers], numbers, strict=False)]
    if min(sizes) < 1:
        raise MachineClusterError(f"Where machines end must rise: {numbers} leaves a machine without devices.")
    return MachineCluster(tuple(ClusterMachine(size, memory=memory) for size in sizes))


def hierarchical(machines: int, devices: int, **changes: Any) -> MachineCluster:
    """Returns a cluster of machines with equally many devices.

    Args:
        machines: how many there are.
        devices: of every machine.
        changes: further fields of the cluster; `memory` [bytes] and `kind` of its devices.
    """
    memory, kind = changes.pop("memory", 16e9), changes.pop("kind", "")
    return cluster_of(MachineCluster((ClusterMachine(devices, kind, memory),) * machines, **changes))


def flat(devices: int, **changes: Any) -> MachineCluster:
    """Returns a cluster of machines with one device each.

    Args:
        devices: how many there are, and as many machines.
        changes: further fields of the cluster; `memory` [bytes] and `kind` of its devices.
    """
    return hierarchical(devices, 1, **changes)


def _network_rates(gigabits: float) -> dict[str, Any]:
    """Returns the rates of a network in proportion to HPGO's for 25 Gb/s."""
    return {"all_reduce": 3e9 * gigabits / 25, "transfer": 1e9 * gigabits / 25}


PRESETS: Final = {
    "A": hierarchical(2, 8, name="A: 2 machines of 8, 25 Gb/s between them"),
    "B": flat(16, name="B: 16 machines of 1, 25 Gb/s"),
    "C": flat(16, name="C: 16 machines of 1, 10 Gb/s", **_network_rates(10)),
}
"""The clusters of Fan et al., "DAPPLE" (PPoPP 2021). HPGO's constants are for 25 Gb/s; cluster C has them in
proportion."""
