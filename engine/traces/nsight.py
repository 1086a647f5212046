"""Reading Nsight Systems: the SQLite export, and the summaries that `nsys stats` prints as CSV.

Tables exist only where something was recorded, and columns vary by version, so both are asked for. Source:
docs.nvidia.com/nsight-systems, schema of exported data.
"""

from __future__ import annotations

import csv
import io
import re
import sqlite3
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import numpy as np

from engine.traces.events import Collective, DeviceEvents, HostRanges, RankTrace
from engine.traces.kernel_classes import CLASSES, class_of_copy, class_of_kernel
from engine.traces.kineto import operation_of_name
from engine.traces.limits import DEFAULT_LIMITS, TraceError, TraceLimits

__all__ = ["SQLITE", "KernelSums", "is_kernel_summary", "read_kernel_summary", "read_nsight"]

SQLITE: Final = b"SQLite format 3\0"
"""First bytes of a database. Source: sqlite.org/fileformat.html, section 1.3."""
COPY_KINDS: Final = {1: "Memcpy HtoD", 2: "Memcpy DtoH", 8: "Memcpy DtoD", 9: "Memcpy HtoH", 10: "Memcpy PtoP"}
"""Words of `copyKind`. Source: CUPTI, CUpti_ActivityMemcpyKind."""
RANGE: Final = 59
"""`eventType` of a range that one thread pushed and popped. Source: Nsight Systems, NvtxPushPopRange."""
STEP_RANGE: Final = re.compile(r"^(iteration|train_step|step)\b", re.IGNORECASE)
OPTIMIZER_RANGE: Final = re.compile(r"^(optimizer\b|Optimizer\.step)", re.IGNORECASE)
BACKWARD_RANGE: Final = re.compile(r"^backward", re.IGNORECASE)
PROCESS_BITS: Final = 24
"""`globalTid` holds the process above this many bits of the thread. Source: Nsight Systems, schema of exported data."""
PROCESS_MASK: Final = 0xFFFFFF


def read_nsight(path: Path, limits: TraceLimits = DEFAULT_LIMITS) -> list[RankTrace]:
    """Return one trace per device of an exported database.

    Args:
        path: of the `.sqlite` file.
        limits: largest files and events that are read.

    Raises:
        TraceError: the file is no export of Nsight Systems, or beyond the limits.
    """
    deadline = time.monotonic() + limits.seconds
    try:
        link = sqlite3.connect(f"file:{quote(str(path.resolve()))}?mode=ro&immutable=1", uri=True)
    except sqlite3.Error as error:
        raise TraceError(f"{path.name} cannot be opened as a database: {error}.") from None
    try:
        link.execute("PRAGMA trusted_schema=OFF")
        # A query that takes too long is ended.
        link.set_progress_handler(lambda: time.monotonic() > deadline, 10_000)
        return _NsightReader(link, path.name, limits).read()
    except sqlite3.Error as error:
        what = "it takes too long to read" if time.monotonic() > deadline else str(error)
        raise TraceError(f"{path.name} cannot be read as an export of Nsight Systems: {what}.") from None
    finally:
        link.close()


class _NsightReader:
    """One database, table by table."""

    def __init__(self, link: sqlite3.Connection, name: str, limits: TraceLimits) -> None:
        self.link, self.name, self.limits = link, name, limits
        self.tables = {row[0] for row in link.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        self.threads: dict[int, int] = {}

    def read(self) -> list[RankTrace]:
        """Return one trace per device."""
        if "StringIds" not in self.tables or "CUPTI_ACTIVITY_KIND_KERNEL" not in self.tables:
            raise TraceError(
                f"{self.name} has no kernels of Nsight Systems; export with `nsys export --type sqlite` a report that "
                "was profiled with --trace=cuda."
            )
        launches = self._read_launches()
        rows = self._read_work()
        if not rows:
            raise TraceError(f"{self.name} has no kernels.")
        ranges = self._read_ranges()
        devices = dict.fromkeys(row[5] for row in rows)
        names = {}
        if "TARGET_INFO_GPU" in self.tables:
            names = dict(self.link.execute("SELECT id, name FROM TARGET_INFO_GPU"))
        return [
            self._trace_of([row for row in rows if row[5] == device], launches, ranges, str(names.get(device, "")), one)
            for device in devices
            for one in [len(devices) == 1 or device]
        ]

    def _columns(self, table: str) -> set[str]:
        return {row[1] for row in self.link.execute(f"PRAGMA table_info({table})")}

    def _read_launches(self) -> dict[tuple[int, int], tuple[int, int, int]]:
        found: dict[tuple[int, int], tuple[int, int, int]] = {}
        if "CUPTI_ACTIVITY_KIND_RUNTIME" not in self.tables:
            return found
        query = "SELECT start, end, globalTid, correlationId FROM CUPTI_ACTIVITY_KIND_RUNTIME"
        for start, end, thread, correlation in self.link.execute(query):
            if None in (start, end, thread, correlation):
                continue
            found[(thread >> PROCESS_BITS) & PROCESS_MASK, correlation] = (start, end, self._thread(thread))
            if len(found) > self.limits.events:
                raise TraceError(f"{self.name} has more than {self.limits.events:,} calls; profile fewer steps.")
        return found

    def _thread(self, thread: int) -> int:
        return self.threads.setdefault(thread, len(self.threads))

    def _read_work(self) -> list[tuple[Any, ...]]:
        """Return start, end, name, class, stream, device, process and correlation of all work on devices."""
        found: list[tuple[Any, ...]] = []

        def add(start: Any, end: Any, name: str, kind: str, stream: Any, device: Any, owner: Any, number: Any) -> None:
            if isinstance(start, int) and isinstance(end, int) and end > start:
                process = (owner >> PROCESS_BITS) & PROCESS_MASK if isinstance(owner, int) else 0
                found.append((start, end, name, CLASSES.index(kind), stream, device, process, number))
            if len(found) > self.limits.events:
                raise TraceError(f"{self.name} has more than {self.limits.events:,} events; profile fewer steps.")

        def owner_of(table: str) -> str:
            return "k.globalPid" if "globalPid" in self._columns(table) else "NULL"

        kernels = "CUPTI_ACTIVITY_KIND_KERNEL"
        title = "demangledName" if "demangledName" in self._columns(kernels) else "shortName"
        for start, end, name, stream, device, owner, number in self.link.execute(
            f"SELECT k.start, k.end, s.value, k.streamId, k.deviceId, {owner_of(kernels)}, k.correlationId "
            f"FROM {kernels} k LEFT JOIN StringIds s ON s.id = k.{title}"
        ):
            name = str(name)[: self.limits.name]
            add(start, end, name, class_of_kernel(name), stream, device, owner, number)
        copies = "CUPTI_ACTIVITY_KIND_MEMCPY"
        if copies in self.tables:
            for start, end, kind, stream, device, owner, number in self.link.execute(
                f"SELECT k.start, k.end, k.copyKind, k.streamId, k.deviceId, {owner_of(copies)}, k.correlationId "
                f"FROM {copies} k"
            ):
                name = COPY_KINDS.get(kind, "Memcpy")
                add(start, end, name, class_of_copy(name, is_fill=False), stream, device, owner, number)
        fills = "CUPTI_ACTIVITY_KIND_MEMSET"
        if fills in self.tables:
            for start, end, stream, device, owner, number in self.link.execute(
                f"SELECT k.start, k.end, k.streamId, k.deviceId, {owner_of(fills)}, k.correlationId FROM {fills} k"
            ):
                add(start, end, "Memset", "memset", stream, device, owner, number)
        return sorted(found, key=lambda row: row[:2])

    def _read_ranges(self) -> list[tuple[str, int, int, int]]:
        if "NVTX_EVENTS" not in self.tables:
            return []
        columns = self._columns("NVTX_EVENTS")
        text = "COALESCE(n.text, s.value)" if "textId" in columns else "n.text"
        join = "LEFT JOIN StringIds s ON s.id = n.textId" if "textId" in columns else ""
        query = f"SELECT n.start, n.end, {text}, n.globalTid FROM NVTX_EVENTS n {join} WHERE n.eventType = {RANGE}"
        found: list[tuple[str, int, int, int]] = []
        for start, end, name, thread in self.link.execute(query):
            # A range that was open when the capture ended has no end.
            if isinstance(start, int) and isinstance(end, int) and end > start and isinstance(name, str):
                if len(found) > self.limits.events:
                    raise TraceError(f"{self.name} has more than {self.limits.events:,} ranges; profile fewer steps.")
                found.append((name[: self.limits.name], self._thread(thread or 0), start, end))
        return found

    def _trace_of(
        self,
        rows: list[tuple[Any, ...]],
        launches: dict[tuple[int, int], tuple[int, int, int]],
        ranges: list[tuple[str, int, int, int]],
        device_name: str,
        one: Any,
    ) -> RankTrace:
        zero = rows[0][0]
        names: dict[str, int] = {}
        streams: dict[Any, int] = {}
        collectives: dict[Collective, int] = {}
        table = []
        for start, end, name, kind, stream, device, process, number in rows:
            begun, ended, thread = launches.get((process, number), (zero - 1, zero - 1, -1))
            collective = -1
            if CLASSES[kind] == "comm":
                said = Collective(operation_of_name(name))
                collective = collectives.setdefault(said, len(collectives))
            table.append(
                (
                    start - zero,
                    end - zero,
                    names.setdefault(name, len(names)),
                    kind,
                    streams.setdefault(stream, len(streams)),
                    device,
                    begun - zero,
                    ended - zero,
                    thread,
                    collective,
                )
            )
        columns = np.array(table, np.int64).T
        shifted = [(name, thread, start - zero, end - zero) for name, thread, start, end in ranges]

        def select(pattern: re.Pattern[str]) -> HostRanges:
            return HostRanges.of([row for row in shifted if pattern.search(row[0])])

        steps, backward = select(STEP_RANGE), select(BACKWARD_RANGE)
        remarks = [
            "Groups of collectives are not in Nsight's files: operations are those that kernels are named after."
        ]
        main = None
        if not len(backward) and len(steps):
            main = int(steps.thread[0])
            remarks.append("Work launched by another thread than that of the steps is taken for the backward pass.")
        return RankTrace(
            source=self.name if one is True else f"{self.name}, device {one}",
            events=DeviceEvents(*columns),
            names=list(names),
            num_streams=len(streams),
            collectives=list(collectives),
            steps=steps,
            optimizer=select(OPTIMIZER_RANGE),
            backward=backward,
            recompute=HostRanges.of([]),
            device_names=(device_name,) if device_name else (),
            main_thread=main,
            remarks=remarks,
        )


@dataclass(slots=True)
class KernelSums:
    """Sums of kernels by class, as `nsys stats` prints them: neither overlap nor steps."""

    source: str
    sums_ns: dict[str, int]
    instances: dict[str, int]
    remarks: list[str] = field(default_factory=list)

    def figures(self) -> dict[str, Any]:
        """Return the sums in microseconds; None where overlap would be needed."""
        return {
            "kernel_sum_us": round(sum(self.sums_ns.values()) / 1000, 3),
            "comm_us": round(self.sums_ns.get("comm", 0) / 1000, 3),
            "sum_us": {kind: round(value / 1000, 3) for kind, value in sorted(self.sums_ns.items())},
            "events": dict(sorted(self.instances.items())),
            "steps": None,
            "overlap": None,
        }


TIME: Final = "Total Time (ns)"


def is_kernel_summary(text: str) -> bool:
    """Return True for text that has the header of a summary of `nsys stats`.

    Args:
        text: the beginning of a file.
    """
    return any(TIME in line and ("Name" in line or "Operation" in line) for line in text.splitlines()[:200])


def read_kernel_summary(text: str, name: str) -> KernelSums:
    """Return the sums of a summary of kernels or copies.

    Args:
        text: CSV of `nsys stats`, with any lines before its header.
        name: of the file, for messages.

    Raises:
        TraceError: a row has no name or time.
    """
    lines = text.splitlines()
    start = next(place for place, line in enumerate(lines) if TIME in line)
    found = KernelSums(
        name, {}, {}, ["A summary has no times of single events: no overlap, no exposed time, no steps."]
    )
    for number, row in enumerate(csv.DictReader(io.StringIO("\n".join(lines[start:]))), start + 2):
        if not any(row.values()):
            continue
        title = row.get("Name") or row.get("Operation")
        try:
            taken, instances = int(row[TIME]), int(row.get("Instances") or row.get("Count") or 0)
        except (TypeError, ValueError):
            raise TraceError(f"{name}, line {number}: {TIME} and Instances must be whole numbers.") from None
        if not title or taken < 0 or instances < 0:
            raise TraceError(f"{name}, line {number}: a row needs a name and times of at least 0.")
        if row.get("Name"):
            kind = class_of_kernel(title[: DEFAULT_LIMITS.name])
        else:
            kind = class_of_copy("Memset" if "memset" in title.lower() else title, "memset" in title.lower())
        found.sums_ns[kind] = found.sums_ns.get(kind, 0) + taken
        found.instances[kind] = found.instances.get(kind, 0) + instances
    return found
