"""Events of one rank's trace as columns: work on its devices, launches, and what was running on the host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.traces.kernel_classes import CLASSES

__all__ = ["Collective", "DeviceEvents", "HostRanges", "RankTrace"]

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Collective:
    """A collective operation as it was recorded; empty or 0 where nothing says it."""

    operation: str
    group_name: str = ""
    group_description: str = ""
    group_size: int = 0
    ranks: tuple[int, ...] = ()
    sequence: int = -1
    in_elements: int = 0
    out_elements: int = 0
    datatype: str = ""


@dataclass(frozen=True, slots=True)
class DeviceEvents:
    """Work on devices in order of its start, arrays [events].

    `start`, `end`: [ns] since the first event of the trace. `name`, `stream`, `device`: positions in the lists of the
    trace. `kind`: position in `CLASSES`. `launch_start`, `launch_end`: of the call that launched it [ns]; calls of the
    host may lie before the first event. `thread`: of that call, -1 where the trace has no such call. `collective`:
    position in `RankTrace.collectives`, -1 for other events.
    """

    start: Ints
    end: Ints
    name: Ints
    kind: Ints
    stream: Ints
    device: Ints
    launch_start: Ints
    launch_end: Ints
    thread: Ints
    collective: Ints

    def __len__(self) -> int:
        return len(self.start)

    def is_of(self, *kinds: str) -> npt.NDArray[np.bool_]:
        """Return which events are of these classes [events].

        Args:
            kinds: of `CLASSES`.
        """
        return np.isin(self.kind, [CLASSES.index(kind) for kind in kinds])

    def duration(self) -> Ints:
        """Return the duration of each event [events] [ns]."""
        return self.end - self.start

    def take(self, chosen: npt.NDArray[Any]) -> DeviceEvents:
        """Return some events.

        Args:
            chosen: a truth per event, or positions.
        """
        return DeviceEvents(*(getattr(self, name)[chosen] for name in DeviceEvents.__dataclass_fields__))


@dataclass(frozen=True, slots=True)
class HostRanges:
    """Ranges on the host in order of their start: names, threads (positions), and times [ns]."""

    names: tuple[str, ...]
    thread: Ints
    start: Ints
    end: Ints

    @classmethod
    def of(cls, rows: Sequence[tuple[str, int, int, int]]) -> HostRanges:
        """Return ranges.

        Args:
            rows: name, thread, start and end of each.
        """
        ordered = sorted(rows, key=lambda row: (row[2], -row[3]))
        columns = [np.array([row[place] for row in ordered], np.int64) for place in (1, 2, 3)]
        return cls(tuple(row[0] for row in ordered), *columns)

    def __len__(self) -> int:
        return len(self.names)


@dataclass(slots=True)
class RankTrace:
    """The trace of one rank.

    `steps`, `optimizer`, `backward`, `recompute`: ranges on the host that say what was going on. `device_steps`:
    name -> duration of the profiler's own range on the device [ns]. `remarks`: sentences on what was left out or
    assumed. `rank`, `world_size`: None if the file does not say them. `main_thread`: where no range says what the
    backward pass is, work launched by any other thread is taken for it.
    """

    source: str
    events: DeviceEvents
    names: list[str]
    num_streams: int
    collectives: list[Collective]
    steps: HostRanges
    optimizer: HostRanges
    backward: HostRanges
    recompute: HostRanges
    device_steps: dict[str, int] = field(default_factory=dict)
    rank: int | None = None
    world_size: int | None = None
    device_names: tuple[str, ...] = ()
    groups: list[dict[str, Any]] = field(default_factory=list)
    main_thread: int | None = None
    base_ns: int | None = None
    remarks: list[str] = field(default_factory=list)
