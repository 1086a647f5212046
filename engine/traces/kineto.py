"""Reading the JSON traces of PyTorch's profiler (Kineto), event by event.

Times are decimal text in microseconds; they are kept as whole nanoseconds since the first event, since a float holds
times since 1970 to a quarter of a microsecond only. Source: pytorch/kineto, libkineto/src/output_json.cpp.
"""

from __future__ import annotations

import json
import re
from array import array
from collections import deque
from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, TypeGuard

import ijson
import numpy as np
import numpy.typing as npt

from engine.traces.byte_streams import CheckedJson, open_unpacked
from engine.traces.events import Collective, DeviceEvents, HostRanges, RankTrace
from engine.traces.kernel_classes import CLASSES, class_of_copy, class_of_kernel
from engine.traces.limits import DEFAULT_LIMITS, TraceError, TraceLimits

__all__ = ["read_kineto"]

DEVICE_WORK: Final = {
    "kernel": "kernel",
    "gpu_memcpy": "copy",
    "gpu_memset": "fill",
    "Kernel": "kernel",
    "Memcpy": "copy",
    "Memset": "fill",
}
LAUNCHING: Final = frozenset({"cuda_runtime", "cuda_driver", "Runtime", "Driver"})
RANGES: Final = ("user_annotation", "gpu_user_annotation", "cpu_op", "Operator")
READ_CATEGORIES: Final = frozenset(DEVICE_WORK) | LAUNCHING | frozenset(RANGES)
BACKWARD: Final = "autograd::engine::evaluate_function"
RECORDED: Final = "record_param_comms"
HEADER: Final = 1 << 20
"""Bytes at either end of the text that are searched for facts about the whole trace [bytes]."""
WARNED_SHARE: Final = 0.01
"""Share of events with unreadable times from which a remark calls it many [dimensionless]. Source: stated by us."""


class _KeptText:
    """A stream that keeps both ends of what passes."""

    def __init__(self, stream: CheckedJson) -> None:
        self.head = b""
        self._stream = stream
        self._last: deque[bytes] = deque()

    def read(self, size: int = -1) -> bytes:
        found = self._stream.read(size)
        if len(self.head) < HEADER:
            self.head += found[: HEADER - len(self.head)]
        self._last.append(found)
        # The last piece but one reaches back far enough once what follows it does.
        if sum(map(len, self._last)) - len(self._last[0]) >= HEADER:
            self._last.popleft()
        return found

    @property
    def tail(self) -> bytes:
        """The end of the text."""
        return b"".join(self._last)[-HEADER:]


def read_kineto(source: Path | bytes, name: str, limits: TraceLimits = DEFAULT_LIMITS) -> RankTrace:
    """Return the trace of one rank.

    Args:
        source: path of a `.json` or `.json.gz` file, or its content.
        name: of the file, for messages.
        limits: largest files and events that are read.

    Raises:
        TraceError: the file is no trace, or beyond the limits.
    """
    packed = len(source) if isinstance(source, bytes) else source.stat().st_size
    with open_unpacked(source) as opened:
        checked = CheckedJson(opened, name, packed, limits)
        text = _KeptText(checked)
        reader = _KinetoReader(name, limits)
        try:
            for event in _events_in(text, name):
                reader.add(event)
        except TraceError:
            raise
        except ijson.IncompleteJSONError as error:
            if "premature EOF" not in str(error) or not reader.num_events:
                raise TraceError(f"{name} is not JSON: {_first_line(error)}.") from None
            reader.remarks.append(f"{name} ends in the middle: {reader.num_events:,} events were read.")
        except (ijson.JSONError, ValueError, ArithmeticError) as error:
            raise TraceError(f"{name} is not JSON that can be read: {_first_line(error)}.") from None
    if checked.replaced:
        reader.remarks.append(f"{checked.replaced:,} values that are not numbers (NaN, Infinity) were left out.")
    return reader.finish(_facts_of(text.head, text.tail))


def _first_line(error: BaseException) -> str:
    return str(error).strip().split("\n", 1)[0].rstrip(". ")[:200] or type(error).__name__


def _events_in(text: _KeptText, name: str) -> Iterator[Any]:
    """Yield the events of an object with `traceEvents`, or of a list of events."""
    start = b""
    while not start.strip():
        found = text.read(1 << 12)
        if not found:
            raise TraceError(f"{name} is empty.")
        start += found
    first = start.lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    if first not in (b"{", b"["):
        raise TraceError(f"{name} holds no trace: it must be a JSON object with traceEvents, or a list of events.")
    rejoined = _Rejoined(start.lstrip(b"\xef\xbb\xbf"), text)
    yield from ijson.items(rejoined, "traceEvents.item" if first == b"{" else "item")


class _Rejoined:
    """A stream with some bytes in front."""

    def __init__(self, front: bytes, rest: _KeptText) -> None:
        self._front, self._rest = front, rest

    def read(self, size: int = -1) -> bytes:
        if self._front and size:
            found, self._front = (
                self._front[:size] if size > 0 else self._front,
                b"" if size < 0 else self._front[size:],
            )
            return found
        return self._rest.read(size)


def _facts_of(head: bytes, tail: bytes) -> dict[str, Any]:
    """Return what the text says of the whole trace beside its events."""
    found: dict[str, Any] = {}
    decoder = json.JSONDecoder()
    for key in ("distributedInfo", "deviceProperties", "baseTimeNanoseconds"):
        for part in (head, tail):
            place = re.search(rb'"' + key.encode() + rb'"\s*:\s*', part)
            if place is None:
                continue
            try:
                found[key] = decoder.raw_decode(part[place.end() :].decode("utf-8", "replace"))[0]
            except (ValueError, RecursionError):
                continue
            break
    return found


def _nanoseconds(value: Any) -> int | None:
    """Return a time in microseconds as whole nanoseconds, None where it is no number."""
    if type(value) is int:
        return value * 1000
    if type(value) is not Decimal or not value.is_finite():
        return None
    return round(value * 1000)


VAGUE: Final = ("SendRecv", "unknown")
"""Words of kernels that stand for several operations: all-to-all, sends, and rings of either."""
LARGEST_TIME: Final = 1 << 62
"""Times beyond this are no times [ns]; sums of two stay within 64 bits."""


def _append(columns: tuple[array[int], ...], values: tuple[int, ...]) -> None:
    for column, value in zip(columns, values, strict=True):
        column.append(value)


def _is_identifier(value: Any) -> TypeGuard[int]:
    return type(value) is int and 0 <= value < LARGEST_TIME


class _KinetoReader:
    """Events of one file as they come, into columns."""

    def __init__(self, name: str, limits: TraceLimits) -> None:
        self.name, self.limits = name, limits
        self.num_events = 0
        self.remarks: list[str] = []
        self._dropped = 0
        # Columns of machine integers: a trace has millions of events.
        self._work = tuple(array("q") for _ in range(8))
        self._launches = tuple(array("q") for _ in range(4))
        self._ranges: dict[str, list[tuple[str, int, int, int]]] = {
            each: [] for each in ("steps", "optimizer", "backward", "recompute", "named")
        }
        self._recorded: list[tuple[int, int, int, Collective]] = []
        self._collectives: dict[Collective, int] = {}
        self._names: dict[str, int] = {}
        self._kinds: dict[tuple[str, str], int] = {}
        self._streams: dict[Any, int] = {}
        self._threads: dict[Any, int] = {}
        self._devices: dict[Any, int] = {}
        self._device_steps: dict[str, int] = {}

    def add(self, event: Any) -> None:
        """Take in one event.

        Args:
            event: an object of the list of events.
        """
        if not isinstance(event, dict):
            self._dropped += 1
            return
        self.num_events += 1
        if self.num_events > self.limits.events * 4 or len(self._work[0]) > self.limits.events:
            raise TraceError(
                f"{self.name} has more than {self.limits.events:,} events on devices; profile fewer steps."
            )
        category = event.get("cat")
        if not isinstance(category, str) or category not in READ_CATEGORIES or event.get("ph") != "X":
            return
        work = DEVICE_WORK.get(category)
        start, duration = _nanoseconds(event.get("ts")), _nanoseconds(event.get("dur"))
        if start is None or duration is None or duration < 0 or not -LARGEST_TIME < start < LARGEST_TIME:
            self._dropped += 1
            return
        title = event.get("name")
        name = title[: self.limits.name] if isinstance(title, str) else ""
        args = event.get("args")
        args = args if isinstance(args, dict) else {}
        if work is not None:
            self._add_work(work, name, start, duration, event, args)
        elif category in LAUNCHING:
            correlation = args.get("correlation")
            if _is_identifier(correlation):
                _append(self._launches, (correlation, start, start + duration, self._thread(event)))
        else:
            self._add_range(category, name, start, duration, event, args)

    def _thread(self, event: Mapping[str, Any]) -> int:
        return self._threads.setdefault((str(event.get("pid")), str(event.get("tid"))), len(self._threads))

    def _add_work(
        self, work: str, name: str, start: int, duration: int, event: Mapping[str, Any], args: Mapping[str, Any]
    ) -> None:
        if duration == 0:
            self._dropped += 1
            return
        kind = self._kinds.get((work, name))
        if kind is None:
            found = class_of_kernel(name) if work == "kernel" else class_of_copy(name, work == "fill")
            kind = self._kinds[work, name] = CLASSES.index(found)
        device = str(args.get("device", event.get("pid")))
        stream = (device, str(args.get("stream", event.get("tid"))))
        correlation = args.get("correlation")
        collective = -1
        if "Collective name" in args and CLASSES[kind] == "comm":
            collective = self._remember(_collective_of(args))
        _append(
            self._work,
            (
                start,
                start + duration,
                self._names.setdefault(name, len(self._names)),
                kind,
                self._streams.setdefault(stream, len(self._streams)),
                self._devices.setdefault(device, len(self._devices)),
                correlation if _is_identifier(correlation) else -1,
                collective,
            ),
        )

    def _remember(self, collective: Collective) -> int:
        return self._collectives.setdefault(collective, len(self._collectives))

    def _add_range(
        self, category: str, name: str, start: int, duration: int, event: Mapping[str, Any], args: Mapping[str, Any]
    ) -> None:
        if category == "gpu_user_annotation":
            if name.startswith("ProfilerStep"):
                self._device_steps[name] = duration
            return
        row = (name, self._thread(event), start, start + duration)
        if name.startswith("ProfilerStep"):
            self._ranges["steps"].append(row)
        elif name.startswith("Optimizer.step#"):
            self._ranges["optimizer"].append(row)
        elif name.startswith(BACKWARD):
            self._ranges["backward"].append(row)
            if "Checkpoint" in name:
                self._ranges["recompute"].append(row)
        elif name.startswith("nccl:"):
            self._ranges["named"].append(row)
        elif name == RECORDED and "Collective name" in args:
            self._recorded.append((row[1], start, row[3], _collective_of(args)))

    def finish(self, facts: Mapping[str, Any]) -> RankTrace:
        """Return the trace.

        Args:
            facts: what the file says of the whole trace.
        """
        if not len(self._work[0]):
            raise TraceError(
                f"{self.name} has no work of a GPU (events of category kernel); profile with CUDA or HIP activities."
            )
        if self._dropped:
            many = "Many" if self._dropped > WARNED_SHARE * max(self.num_events, 1) else "Some"
            self.remarks.append(f"{many} events have no readable time and were left out: {self._dropped:,}.")
        work = np.stack([np.frombuffer(each, np.int64) for each in self._work], axis=1)
        rows = work[np.lexsort(work.T[::-1])]
        zero = int(rows[0, 0])
        calls = self._find_launches(rows[:, 6])
        launched, there = calls.copy(), calls[:, 2] >= 0
        calls[there, :2] -= zero
        calls[~there] = -1
        collective = self._name_collectives(rows, launched)
        ranges = {
            name: HostRanges.of([(title, thread, a - zero, b - zero) for title, thread, a, b in listed])
            for name, listed in self._ranges.items()
        }
        events = DeviceEvents(
            rows[:, 0] - zero,
            rows[:, 1] - zero,
            rows[:, 2],
            rows[:, 3],
            rows[:, 4],
            rows[:, 5],
            calls[:, 0],
            calls[:, 1],
            calls[:, 2],
            collective,
        )
        if not there.all():
            self.remarks.append(
                f"{int((~there).sum()):,} events have no launch in the trace: they were launched before the capture."
            )
        return RankTrace(
            source=self.name,
            events=events,
            names=list(self._names),
            num_streams=len(self._streams),
            collectives=list(self._collectives),
            steps=ranges["steps"],
            optimizer=ranges["optimizer"],
            backward=ranges["backward"],
            recompute=ranges["recompute"],
            device_steps=self._device_steps,
            remarks=self.remarks,
            **_distributed(facts),
        )

    def _find_launches(self, correlation: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return start, end and thread of the last call with each identifier, -1 where no call has it [events, 3]."""
        known, *columns = (np.frombuffer(each, np.int64) for each in self._launches)
        found = np.full((len(correlation), 3), -1, np.int64)
        if not len(known):
            return found
        order = np.argsort(known, kind="stable")
        place = np.searchsorted(known[order], correlation, "right") - 1
        there = (place >= 0) & (known[order[place]] == correlation)
        found[there] = np.stack(columns, axis=1)[order[place[there]]]
        return found

    def _name_collectives(self, rows: npt.NDArray[np.int64], launched: npt.NDArray[np.int64]) -> Any:
        """Return the collective of each event of communication, by its arguments, what was recorded around its launch,
        the annotation there, or its name."""
        collective = rows[:, 7].copy()
        recorded = _Around([(thread, a, b) for thread, a, b, _ in self._recorded])
        named = _Around([(thread, a, b) for _, thread, a, b in self._ranges["named"]])
        names = list(self._names)
        comm = CLASSES.index("comm")
        for place in np.flatnonzero((rows[:, 3] == comm) & (collective < 0)).tolist():
            start, _, thread = launched[place].tolist()
            found = None
            if thread >= 0:
                around = recorded.innermost(thread, start)
                if around >= 0:
                    found = self._recorded[around][3]
                elif (said := operation_of_name(names[int(rows[place, 2])])) not in VAGUE:
                    found = Collective(said)
                elif (around := named.innermost(thread, start)) >= 0:
                    found = Collective(self._ranges["named"][around][0].removeprefix("nccl:"))
            collective[place] = self._remember(found or Collective(operation_of_name(names[int(rows[place, 2])])))
        return collective


class _Around:
    """Ranges by thread, to ask for the innermost around a moment."""

    def __init__(self, ranges: list[tuple[int, int, int]]) -> None:
        self._of_thread: dict[int, list[tuple[int, int, int]]] = {}
        for place, (thread, start, end) in enumerate(ranges):
            self._of_thread.setdefault(thread, []).append((start, end, place))
        for listed in self._of_thread.values():
            listed.sort()
        self._starts = {
            thread: np.array([each[0] for each in listed], np.int64) for thread, listed in self._of_thread.items()
        }

    def innermost(self, thread: int, moment: int) -> int:
        """Return the position of the innermost range around a moment, -1 outside of all."""
        starts = self._starts.get(thread)
        if starts is None:
            return -1
        place = int(np.searchsorted(starts, moment, "right")) - 1
        listed = self._of_thread[thread]
        # Ranges of one thread are nested; those that do not reach the moment have ended inside an outer one.
        for step in range(place, max(place - 64, -1), -1):
            if moment < listed[step][1]:
                return listed[step][2]
        return -1


def operation_of_name(name: str) -> str:
    """Return the operation that a kernel's name says, "unknown" if it says none.

    Args:
        name: of the kernel, such as `ncclDevKernel_AllGather_RING_LL(...)`.
    """
    found = re.match(r"(?:nccl|rccl)(?:Dev)?Kernel_([A-Za-z]+)", name)
    return found[1] if found and found[1] != "Generic" else "unknown"


def _whole(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _collective_of(args: Mapping[str, Any]) -> Collective:
    ranks = args.get("Process Group Ranks")
    numbers = re.findall(r"\d{1,9}", ranks[:100_000]) if isinstance(ranks, str) else ranks
    listed = numbers if isinstance(numbers, list) else []
    return Collective(
        str(args.get("Collective name"))[:200],
        str(args.get("Process Group Name", ""))[:200],
        str(args.get("Process Group Description", ""))[:200],
        _whole(args.get("Group size")),
        tuple(int(each) for each in listed if isinstance(each, int | str)),
        _whole(args.get("Seq", -1)) if "Seq" in args else -1,
        _whole(args.get("In msg nelems")),
        _whole(args.get("Out msg nelems")),
        str(args.get("dtype", ""))[:40],
    )


def _distributed(facts: Mapping[str, Any]) -> dict[str, Any]:
    info, devices = facts.get("distributedInfo"), facts.get("deviceProperties")
    info = info if isinstance(info, Mapping) else {}
    rank, size, base = info.get("rank"), info.get("world_size"), facts.get("baseTimeNanoseconds")
    groups = info.get("pg_config")
    named = [each.get("name") for each in devices if isinstance(each, Mapping)] if isinstance(devices, list) else []
    return {
        "rank": rank if isinstance(rank, int) else None,
        "world_size": size if isinstance(size, int) else None,
        "base_ns": base if isinstance(base, int) else None,
        "groups": [each for each in groups if isinstance(each, dict)] if isinstance(groups, list) else [],
        "device_names": tuple(dict.fromkeys(each for each in named if isinstance(each, str))),
    }
