"""The door of traces: one file or several, of any kind that is read."""

from __future__ import annotations

import os
import re
import tempfile
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from engine.traces.across_ranks import RanksCompared, compare_ranks
from engine.traces.byte_streams import open_unpacked
from engine.traces.events import RankTrace
from engine.traces.figures import figures_of
from engine.traces.groups import exposed_by_group
from engine.traces.kineto import read_kineto
from engine.traces.limits import DEFAULT_LIMITS, TraceError, TraceLimits
from engine.traces.megatron_timers import TimerLog, has_timers, read_timers
from engine.traces.nsight import SQLITE, KernelSums, is_kernel_summary, read_kernel_summary, read_nsight
from engine.traces.terms import StepTerms, terms_of_step

__all__ = ["Trace", "read", "read_content"]

ZIP: Final = b"PK\x03\x04"
"""First bytes of a zip file. Source: PKWARE APPNOTE, section 4.3.7."""
LARGEST_TEXT: Final = 50_000_000
"""Largest log or summary [bytes]."""
LARGEST_MEMBER: Final = 500_000_000
"""Largest packed member of a zip file [bytes]; members are read into memory."""


@dataclass(frozen=True, slots=True)
class Trace:
    """Traces of the ranks of one job.

    `ranks`: one trace each. `remarks`: sentences on what was left out or assumed.
    """

    ranks: tuple[RankTrace, ...]
    limits: TraceLimits = DEFAULT_LIMITS
    remarks: tuple[str, ...] = field(default=())

    def figures(self) -> dict[str, Any]:
        """Return where the time of the devices went, in microseconds.

        For one rank: counts, unions, sums by class, operations, phases and steps. For several: these by rank, and what
        their comparison says (`across_ranks`).
        """
        if len(self.ranks) == 1:
            return figures_of(self.ranks[0], self.limits.steps)
        return {
            "ranks": {
                str(name): figures_of(trace, self.limits.steps)
                for name, trace in zip(self.rank_names, self.ranks, strict=True)
            },
            "across_ranks": self.compare_ranks().figures(),
        }

    def exposed_by_group(self) -> list[dict[str, dict[str, Any]]]:
        """Return the communication of each group of processors, one entry per rank; see `groups.exposed_by_group`."""
        return [exposed_by_group(trace) for trace in self.ranks]

    def terms(self) -> list[StepTerms]:
        """Return the median step of each rank in parts that add up, one entry per rank; see `terms.terms_of_step`."""
        return [terms_of_step(trace) for trace in self.ranks]

    @property
    def rank_names(self) -> tuple[int | str, ...]:
        """Number of each rank, or the name of its file where nothing says it."""
        return tuple(trace.source if trace.rank is None else trace.rank for trace in self.ranks)

    def compare_ranks(self) -> RanksCompared:
        """Return steps, computation and waiting of the ranks beside each other."""
        return compare_ranks(self.ranks)


def read(
    path_or_paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], limits: TraceLimits = DEFAULT_LIMITS
) -> Trace | KernelSums | TimerLog:
    """Return what profiler traces hold.

    Read are Kineto's JSON (also packed by gzip), exports of Nsight Systems (SQLite), summaries of `nsys stats` (CSV)
    and logs with Megatron-LM's timers. Several files, or a zip file, are the ranks of one job.

    Args:
        path_or_paths: of one file, or of one per rank.
        limits: largest files and events that are read.

    Raises:
        TraceError: a file cannot be read, is beyond the limits, or stands for a rank twice.
    """
    single = isinstance(path_or_paths, str | os.PathLike)
    paths = [Path(path_or_paths)] if single else [Path(each) for each in path_or_paths]  # type: ignore[arg-type,union-attr]
    if not paths:
        raise TraceError("No file is given to read a trace from.")
    if len(paths) > limits.ranks:
        raise TraceError(f"{len(paths):,} files are given; at most {limits.ranks:,} ranks are read.")
    if len(paths) == 1:
        return _read_one(paths[0], limits)
    found = [_read_one(path, limits) for path in paths]
    if not all(isinstance(each, Trace) for each in found):
        raise TraceError("Several files are the ranks of one job; summaries and logs are read one at a time.")
    return _join([trace for each in found if isinstance(each, Trace) for trace in each.ranks], limits)


def read_content(
    contents: Sequence[tuple[str, bytes]], limits: TraceLimits = DEFAULT_LIMITS
) -> Trace | KernelSums | TimerLog:
    """Return what profiler traces hold that are no files, such as uploaded ones; see `read`.

    Args:
        contents: name and content of each.
        limits: largest files and events that are read.

    Raises `TraceError` as `read` does.
    """
    with tempfile.TemporaryDirectory(prefix="shardscape-") as folder:
        paths = []
        for number, (name, content) in enumerate(contents):
            # One folder each: two files may have the same name.
            own = Path(folder, str(number))
            own.mkdir()
            path = own / (re.sub(r"[^\w.()+-]", "_", name)[-100:].lstrip(".") or "trace")
            path.write_bytes(content)
            paths.append(path)
        return read(paths, limits)


def _read_one(path: Path, limits: TraceLimits) -> Trace | KernelSums | TimerLog:
    try:
        if not path.is_file():
            raise TraceError(f"There is no file {path} to read a trace from.")
        with path.open("rb") as opened:
            start = opened.read(64)
        if start.startswith(SQLITE):
            return _join(read_nsight(path, limits), limits)
        if start.startswith(ZIP):
            return _join(list(_read_members(path, limits)), limits)
        if _begins_json(path):
            return _join([read_kineto(path, path.name, limits)], limits)
        return _read_text(path)
    except OSError as error:
        raise TraceError(f"{path} cannot be read: {error.strerror or error}.") from None


def _begins_json(path: Path) -> bool:
    with open_unpacked(path) as unpacked:
        try:
            start = unpacked.read(4096)
        except (EOFError, OSError) as error:
            raise TraceError(f"{path.name} cannot be unpacked: {error}.") from None
    # A log may begin with a date in brackets.
    return re.match(rb"(?:\xef\xbb\xbf)?\s*(\{|\[\s*[\[{\]])", start) is not None


def _read_text(path: Path) -> KernelSums | TimerLog:
    size = path.stat().st_size
    if size > LARGEST_TEXT:
        raise TraceError(f"{path.name} has {size / 1e6:,.0f} MB; logs and summaries are read up to 50 MB.")
    text = path.read_bytes().decode("utf-8", "replace")
    if is_kernel_summary(text):
        return read_kernel_summary(text, path.name)
    if has_timers(text):
        return read_timers(text, path.name)
    raise TraceError(
        f"{path.name} is no trace: give JSON of PyTorch's profiler, SQLite or CSV of Nsight Systems, or a log with "
        "Megatron-LM's timers."
    )


def _read_members(path: Path, limits: TraceLimits) -> Iterable[RankTrace]:
    """Yield the traces inside a zip file, of which nothing is written anywhere."""
    try:
        with zipfile.ZipFile(path) as packed:
            members = [each for each in packed.infolist() if not each.is_dir()]
            if not members:
                raise TraceError(f"{path.name} is empty.")
            if len(members) > limits.ranks:
                raise TraceError(f"{path.name} holds {len(members):,} files; at most {limits.ranks:,} ranks are read.")
            for member in members:
                name = re.split(r"[/\\]", member.filename)[-1][:200]
                if member.file_size > LARGEST_MEMBER:
                    raise TraceError(f"{name} in {path.name} has more than {LARGEST_MEMBER / 1e6:,.0f} MB; unpack it.")
                if member.file_size > limits.expansion_from and member.file_size > limits.expansion * max(
                    member.compress_size, 1
                ):
                    raise TraceError(f"{name} in {path.name} unpacks to more than {limits.expansion} times its size.")
                content = packed.read(member)
                if content.startswith((ZIP, SQLITE)):
                    raise TraceError(
                        f"{name} in {path.name} is a {'zip file' if content[:2] == b'PK' else 'database'}; "
                        "a zip file holds JSON traces, one per rank."
                    )
                yield read_kineto(content, name, limits)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError) as error:
        raise TraceError(f"{path.name} cannot be unpacked: {error}.") from None


def _join(traces: list[RankTrace], limits: TraceLimits) -> Trace:
    """Return the ranks in order. The number of a rank is in its file or its file's name."""
    if len(traces) > 1:
        for trace in traces:
            if trace.rank is None and (found := re.search(r"rank[_-]?(\d{1,6})", trace.source, re.IGNORECASE)):
                trace.rank = int(found[1])
        known = [trace.rank for trace in traces if trace.rank is not None]
        twice = sorted({rank for rank in known if known.count(rank) > 1})
        if twice:
            both = " and ".join(trace.source for trace in traces if trace.rank == twice[0])
            raise TraceError(f"{both} are both of rank {twice[0]}; give one file per rank.")
        traces = sorted(traces, key=lambda trace: (trace.rank is None, trace.rank or 0, trace.source))
    remarks = tuple(
        f"{trace.source}: {remark}" if len(traces) > 1 else remark for trace in traces for remark in trace.remarks
    )
    return Trace(tuple(traces), limits, remarks)
