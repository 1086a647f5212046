"""Orders and measured events of others: a schedule that torch loads, traces of torch's profiler, tables of Megatron's.

What a trace has to tell of every event is when it started and ended, on which rank, whether it is a forward or a
backward, and of which microbatch. torch's profiler names actions `PP:0F3` (stage, kind, microbatch); stages of one
microbatch after the other are named `Forward 3` and `Backward 3`. Other traces and tables have columns or arguments.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np
import pandas as pd

from engine.simulate.schedules.contract import ScheduleError

__all__ = ["MOST_EVENTS", "read_events", "read_torch_csv"]

MOST_EVENTS: Final = 500_000
"""Most events of a trace that are read. Source: stated by us; as many as an order may have actions."""

_KIND: Final = {"F": "F", "I": "B", "W": "W", "B": "BW"}
"""Names of kinds in torch -> names here."""
_TORCH: Final = re.compile(r"(\d{1,6})(F|I|W|B)(\d{1,7})")
_MOVED: Final = re.compile(r"\d{1,6}(UNSHARD|RESHARD|REDUCE_GRAD|SEND_F|RECV_F|SEND_B|RECV_B)\d{0,7}")
_NAMED: Final = re.compile(
    r"(?:PP:)?(?P<stage>\d{1,6})(?P<torch>[FIWB])(?P<torch_number>\d{1,7})"
    r"|(?P<kind>F|BW|B|W)(?P<number>\d{1,7})(?:\.(?P<place>\d{1,6}))?"
    r"|(?P<word>forward|backward|wgrad|dgrad|backward[-_ ]?input|backward[-_ ]?weight)"
    r"(?:[-_ ]?(?:step|compute|pass|microbatch))?[-_ #:]*(?P<word_number>\d{0,7})",
    re.IGNORECASE,
)
_WORDS: Final = {
    "forward": "F",
    "backward": "BW",
    "wgrad": "W",
    "dgrad": "B",
    "backwardinput": "B",
    "backwardweight": "W",
    "f": "F",
    "fwd": "F",
    "bwd": "BW",
    "bw": "BW",
    "b": "B",
    "i": "B",
    "w": "W",
    "inputgradient": "B",
    "weightgradient": "W",
}
_COLUMNS: Final = {
    "start": ("start", "start_time", "ts", "begin"),
    "end": ("end", "end_time", "stop"),
    "duration": ("dur", "duration"),
    "rank": ("rank", "pp_rank", "pipeline_rank", "tid", "pid", "device"),
    "kind": ("kind", "name", "type", "op", "event"),
    "microbatch": ("microbatch", "microbatch_id", "micro_batch", "mb", "mb_id", "batch"),
    "stage": ("stage", "stage_id", "model_stage"),
    "chunk": ("chunk", "model_chunk", "chunk_id", "vp_stage", "vpp_rank"),
}


def read_torch_csv(text: str) -> list[str]:
    """Returns what every rank does, as `replay` takes it, from a file that torch loads as a schedule.

    Actions that move data (SEND_F, RECV_F, UNSHARD and the like) are left out: they follow from the others.

    Args:
        text: content of the file, a row per rank.

    Raises: ScheduleError naming the cell that is no action.
    """
    lines = []
    for number, row in enumerate(csv.reader(io.StringIO(text.removeprefix("\ufeff"))), start=1):
        words = []
        for place, cell in enumerate(row, start=1):
            word = _parse_cell(cell.strip(), f"row {number}, cell {place}")
            words += [word] if word else []
        lines.append(" ".join(words))
    while lines and not lines[-1]:
        lines.pop()
    if not lines:
        raise ScheduleError("The file has no action; each row is a rank, such as 0F0,0F1,0B0,0B1.")
    return lines


def _parse_cell(cell: str, where: str) -> str:
    """Returns a cell as a word of an order, or nothing for what moves data."""
    if not cell or _MOVED.fullmatch(cell):
        return ""
    inner = cell.removesuffix("OVERLAP_F_B")
    parts = inner.strip("()").split(";") if inner != cell else [cell]
    found = []
    for part in parts:
        match = _TORCH.fullmatch(part.strip())
        if match is None:
            raise ScheduleError(
                f"The {where}, {cell[:40]!r}, is no action; torch writes stage, F, I, W or B, microbatch."
            )
        found.append(f"{_KIND[match[2]]}{int(match[3])}.{int(match[1])}")
    return "+".join(found)


def read_events(text: str, *, ranks: int | None = None) -> pd.DataFrame:
    """Returns measured events: `rank`, `kind` (F, B, W, BW), `stage` (-1 if unsaid), `microbatch`, `start`, `end` [s].

    Times are moved so that the first event starts at 0.

    Args:
        text: a Chrome trace (JSON, times in µs), or a table with a header (CSV, times in s) with at least start, end or
            duration, rank, kind and microbatch.
        ranks: of the pipeline, where known; events of further ranks are refused.

    Raises: ScheduleError, in words, where nothing in it is an event of a pipeline, or one makes no sense.
    """
    text = text.removeprefix("\ufeff").lstrip()
    rows = _trace_rows(text) if text[:1] in "[{" and text else _table_rows(text)
    events = [event for event in (_parse_event(row, scale) for row, scale in rows) if event is not None]
    if not events:
        raise ScheduleError(
            "No event is a forward or backward of a pipeline. They are named PP:0F3 (torch), Forward 3 or F3.1, or "
            "have columns kind, microbatch, rank, start and end."
        )
    if len(events) > MOST_EVENTS:
        raise ScheduleError(f"There are {len(events):,} events; at most {MOST_EVENTS:,} are read.")
    table = pd.DataFrame(events, columns=["rank", "kind", "stage", "microbatch", "start", "end"])
    table = _number_microbatches(table)
    if ranks is not None and table["rank"].nunique() > ranks:
        raise ScheduleError(f"The events are of {table['rank'].nunique()} ranks, the pipeline has {ranks}.")
    table["rank"] = table["rank"].rank(method="dense").astype(int) - 1
    table[["start", "end"]] -= table["start"].min()
    return table.sort_values(["rank", "start"], kind="stable").reset_index(drop=True)


def _trace_rows(text: str) -> Iterable[tuple[Mapping[str, Any], float]]:
    """Yields complete events of a Chrome trace with their arguments, and what a unit of time is [s]."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise ScheduleError(
            "The trace is no JSON; torch's profiler and Chrome's trace viewer write it whole."
        ) from None
    labels: Mapping[str, Any] = {}
    if isinstance(found, dict):
        about = found.get("distributedInfo")
        labels = about if isinstance(about, dict) else {}
        found = found.get("traceEvents")
    if not isinstance(found, list):
        raise ScheduleError("The trace has no list of events (traceEvents).")
    for each in found:
        if isinstance(each, dict) and each.get("ph", "X") == "X":
            arguments = each.get("args")
            rank = {"rank": labels["rank"]} if "rank" in labels else {}
            yield {**each, **(arguments if isinstance(arguments, dict) else {}), **rank}, 1e-6


def _table_rows(text: str) -> Iterable[tuple[Mapping[str, Any], float]]:
    """Yields the rows of a table in seconds."""
    try:
        reader = csv.DictReader(io.StringIO(text), strict=True)
        names = [str(name).strip().lower() for name in reader.fieldnames or []]
        if not {"start", "start_time", "begin", "ts"} & set(names):
            raise ScheduleError("The table has no column start; it needs rank, kind, microbatch, start and end [s].")
        for row in reader:
            yield dict(zip(names, row.values(), strict=False)), 1.0
    except csv.Error as problem:
        raise ScheduleError(f"The table cannot be read: {problem}.") from None


def _find_value(row: Mapping[str, Any], what: str) -> Any:
    for name in _COLUMNS[what]:
        if row.get(name) not in (None, ""):
            return row[name]
    return None


def _parse_event(row: Mapping[str, Any], scale: float) -> tuple[Any, str, int, int, float, float] | None:
    """Returns a row as an event; None for one that is about something else."""
    kind, stage, microbatch = _parse_event_name(str(_find_value(row, "kind") or ""))
    if kind is None:
        return None
    start, end, duration = (_parse_number(_find_value(row, each)) for each in ("start", "end", "duration"))
    if start is None or (end is None and duration is None):
        raise ScheduleError(f"An event {str(_find_value(row, 'kind'))[:40]!r} has no start and end, or duration.")
    stop = end if end is not None else start + (duration or 0.0)
    if stop < start:
        raise ScheduleError(f"An event {str(_find_value(row, 'kind'))[:40]!r} ends before it starts.")
    event_stage, event_microbatch = (
        _parse_number(_find_value(row, "stage")),
        _parse_number(_find_value(row, "microbatch")),
    )
    stage = stage if stage >= 0 or event_stage is None else int(event_stage)
    microbatch = microbatch if microbatch >= 0 or event_microbatch is None else int(event_microbatch)
    rank = _parse_number(_find_value(row, "rank"))
    if rank is None:
        raise ScheduleError("Events have no rank: a column rank, or the thread of the trace (tid).")
    return int(rank), kind, stage, microbatch, start * scale, stop * scale


def _parse_event_name(name: str) -> tuple[str | None, int, int]:
    """Returns kind, stage and microbatch of an event's name, -1 where it does not tell."""
    match = _NAMED.fullmatch(name.strip())
    if match is None:
        plain = _WORDS.get(re.sub(r"[-_ ]", "", name.strip().lower()))
        return plain, -1, -1
    if match["torch"]:
        return _KIND[match["torch"].upper()], int(match["stage"]), int(match["torch_number"])
    if match["kind"]:
        return match["kind"].upper(), int(match["place"]) if match["place"] else -1, int(match["number"])
    word = _WORDS[re.sub(r"[-_ ]", "", match["word"].lower())]
    return word, -1, int(match["word_number"]) if match["word_number"] else -1


def _parse_number(value: Any) -> float | None:
    """Returns a finite number, or None."""
    if isinstance(value, bool) or value is None:
        return None
    try:
        found = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return found if math.isfinite(found) and abs(found) < 1e18 else None


def _number_microbatches(table: pd.DataFrame) -> pd.DataFrame:
    """Numbers microbatches that the events do not tell, by rank and kind in the order of time."""
    unsaid = table["microbatch"] < 0
    if unsaid.any():
        ordered = table[unsaid].sort_values("start", kind="stable")
        table.loc[ordered.index, "microbatch"] = ordered.groupby(["rank", "kind", "stage"]).cumcount()
    table["microbatch"] = table["microbatch"].astype(np.int64)
    return table
