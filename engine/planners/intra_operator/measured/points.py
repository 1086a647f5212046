"""Measured points: logs in the forms that CFP and Alpa print, CSV and JSON, read into one table.

The forms of a log, anywhere in a line, so that what a logger puts before them does not matter:

    ============ GPT test: ... config:F batchsize:24 layers:2 devices:4 ============
    segment PB search space: [3, 3, 3, 4]
    SegmentIdx: 0 ParallelBlock Strategy: [0, 0, 0, 0] avgcost: 0.85 mem_cost(GB): 10.5
    Comm Volume: 1.63084e+10 / Comm Overhead: 0.789642 / Comp Overhead: 0.12948, ahead of their sval
    sval [0, 0, 0, 0] [0.91 0.92 0.91] 15588858608
    searched ParallelBlock Strategies solution: [1, 1, 1, 1]
    searched training cost: [0.29 0.29 0.29], memory_cost: 11.5
    TFLOP_COUNT: 59.37 / tflops: [203.3, 203.2, 202.9]

Source: CFP (published README). Other lines of a log are ignored; an invalid line in one of these forms is an error that
names the line and the field.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pandas as pd

from engine.executions.csv_tables import file_content, header_of, parsed, text_of
from engine.planners.contract import PlanError
from hardware import GIB

__all__ = ["POINT_COLUMNS", "measured_points", "measured_points_of"]

MOST_BYTES: Final = 20_000_000
"""Largest file of measured points that is read [bytes]. Source: stated by us."""
MOST_POINTS: Final = 100_000
"""Most points of a file. Source: stated by us."""
LONGEST: Final = 4_096
"""Longest list of times or strategies of a point. Source: stated by us."""
POINT_COLUMNS: Final = (
    "line",
    "kind",
    "system",
    "model",
    "batch",
    "layers",
    "devices",
    "segment",
    "vector",
    "seconds",
    "times",
    "compute_seconds",
    "communication_seconds",
    "volume",
    "memory",
    "tflop",
)
NUMBERS: Final = ("seconds", "compute_seconds", "communication_seconds", "volume", "memory", "tflop")
COUNTS: Final = ("batch", "layers", "devices", "segment")
LIST: Final = r"\[([^\]]*)\]"
TITLE: Final = re.compile(r"=+ (Alpa )?(\w+) test: (.*?) =+")
SPACE: Final = re.compile(r"segment PB search space:(.*)")
SEGMENT: Final = re.compile(r"SegmentIdx:(.*?)ParallelBlock Strategy:(.*?)avgcost:(.*?)mem_cost\(GB\):(.*)")
OVERHEAD: Final = re.compile(r"(Comm Volume|Comm Overhead|Comp Overhead):(.*)")
ENUMERATED: Final = re.compile(r"\bsval\b(.*)")
SOLUTION: Final = re.compile(r"searched ParallelBlock Strategies solution:(.*)")
COST: Final = re.compile(r"searched training cost:(.*)")
COUNT: Final = re.compile(r"\bTFLOP_COUNT:(.*)")
TIMES: Final = re.compile(r"^\s*\[([\d.eE+\-\s,]+)\]\s*$")
FIELD: Final = {
    "Comm Volume": "volume",
    "Comm Overhead": "communication_seconds",
    "Comp Overhead": "compute_seconds",
}
FAMILIES: Final = {"gpt": "gpt", "moe": "moe", "llama": "llama", "llama2": "llama"}


def measured_points(path: str | os.PathLike[str]) -> pd.DataFrame:
    """Returns the measured points of a file: a log, a CSV table or JSON.

    Args:
        path: of the file.

    Returns:
        As `measured_points_of`.

    Raises:
        PlanError: the file cannot be read, or a line or row of it is wrong.
    """
    name = os.fspath(path)[-60:]
    return measured_points_of(text_of(file_content(path, MOST_BYTES, PlanError), name, MOST_BYTES, PlanError), name)


def measured_points_of(text: str, name: str = "The log") -> pd.DataFrame:
    """Returns the measured points of a text.

    A CSV table or a list of JSON objects has the columns vector ("0,2,0,2") and seconds, and where wanted the others of
    the table that is returned; memory and volume are bytes.

    Args:
        text: a log, a CSV table or JSON.
        name: of where it comes from, for messages.

    Returns:
        One row per point: line (of the text, or row of the table), kind ("segment", "enumerated", "searched" or "run"),
        system, model, batch, layers, devices (None where the text does not say), segment, vector (None where it was
        not printed), seconds (the mean of times) [s], times [s], compute_seconds, communication_seconds [s], volume,
        memory [bytes], tflop (of a step). What did not run has infinite seconds.

    Raises:
        PlanError: nothing is found, or a line or row is wrong; it is named with its field.
    """
    if text.lstrip()[:1] in ("[", "{") and not TIMES.match(text.lstrip().splitlines()[0]):
        points = _of_json(text, name)
    elif {"vector", "seconds"} <= set(header_of(text)[0]):
        points = _of_rows(parsed(text, name, PlanError, most_rows=MOST_POINTS).to_dict("records"), name)
    else:
        points = _Log(name).read(text)
    if not points:
        raise PlanError(f"{name} has no measured points: no line of a profile, enumeration or search, and no table.")
    table = pd.DataFrame(points, columns=list(POINT_COLUMNS))
    for column in NUMBERS:
        table[column] = table[column].astype(float)
    return table


class _Log:
    """Reads a log line by line."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.title: dict[str, Any] = {}
        self.pending: dict[str, Any] = {}
        self.space: tuple[int, ...] | None = None
        self.points: list[dict[str, Any]] = []

    def read(self, text: str) -> list[dict[str, Any]]:
        for number, line in enumerate(text.splitlines(), start=1):
            self._line(number, line)
            if len(self.points) > MOST_POINTS:
                raise PlanError(f"{self.name} has more than {MOST_POINTS:,} points.")
        if self.pending:  # an excerpt that ends between a volume and its vector
            self._point(self.pending.pop("line"), "enumerated", **self.pending)
        return self.points

    def _line(self, number: int, line: str) -> None:
        where = f"{self.name}, line {number:,}"
        if found := TITLE.search(line):
            self.title, self.space = _parse_title(found, where), None
        elif found := SPACE.search(line):
            self.space = _parse_integers(found[1], f"{where}, search space", 1)
        elif found := SEGMENT.search(line):
            vector = _parse_integers(found[2], f"{where}, ParallelBlock Strategy")
            self._check(vector, where)
            self._point(
                number,
                "segment",
                segment=_parse_whole(found[1], f"{where}, SegmentIdx"),
                vector=vector,
                seconds=_parse_number(found[3], f"{where}, avgcost", infinite=True),
                memory=_parse_number(found[4], f"{where}, mem_cost(GB)") * GIB,
            )
        elif found := OVERHEAD.search(line):
            self.pending.setdefault("line", number)
            self.pending[FIELD[found[1]]] = _parse_number(found[2], f"{where}, {found[1]}")
        elif found := ENUMERATED.search(line):
            self._enumerated(number, found[1], where)
        elif found := SOLUTION.search(line):
            self._point(number, "searched", vector=_parse_integers(found[1], f"{where}, solution"))
        elif found := COST.search(line):
            self._cost(found[1], where, number)
        elif found := COUNT.search(line):
            count = _parse_number(found[1], f"{where}, TFLOP_COUNT")
            if self.points:
                self.points[-1]["tflop"] = count
        elif (found := TIMES.match(line)) and self.title.get("system") == "Alpa":
            self._point(number, "run", **_parse_times(found[1], f"{where}, times"))

    def _check(self, vector: Sequence[int], where: str) -> None:
        if self.space is None:
            return
        if len(vector) != len(self.space):
            raise PlanError(f"{where}: the vector has {len(vector)} strategies, its search space {len(self.space)}.")
        for at, (one, most) in enumerate(zip(vector, self.space, strict=True)):
            if one >= most:
                raise PlanError(f"{where}: strategy {one} of block {at} is none of 0 to {most - 1}.")

    def _enumerated(self, number: int, rest: str, where: str) -> None:
        found = re.fullmatch(rf"\s*{LIST}\s*{LIST}\s*(\S+)\s*", rest)
        if found is None:
            raise PlanError(f"{where}: sval is followed by a vector, its times and the bytes of memory.")
        self.pending.pop("line", None)
        values = {**self.pending, **_parse_times(found[2], f"{where}, times")}
        self.pending = {}
        vector = _parse_integers(f"[{found[1]}]", f"{where}, sval")
        self._point(number, "enumerated", vector=vector, memory=_parse_number(found[3], f"{where}, memory"), **values)

    def _cost(self, rest: str, where: str, number: int) -> None:
        found = re.fullmatch(rf"\s*{LIST}\s*,\s*memory_cost:\s*(\S+)\s*", rest)
        if found is None:
            raise PlanError(f"{where}: a searched training cost is a list of times and a memory_cost.")
        values = {
            **_parse_times(found[1], f"{where}, training cost"),
            "memory": _parse_number(found[2], f"{where}, memory_cost") * GIB,
        }
        if self.points and self.points[-1]["kind"] == "searched" and self.points[-1]["seconds"] is None:
            self.points[-1].update(values)
        else:
            self._point(number, "searched", **values)

    def _point(self, line: int, kind: str, **values: Any) -> None:
        empty = dict.fromkeys(POINT_COLUMNS)
        self.points.append({**empty, "line": line, "kind": kind, "system": "CFP", **self.title, **values})


def _parse_title(found: re.Match[str], where: str) -> dict[str, Any]:
    """Returns the contents of the line above a test: family, configuration, batch, layers, devices."""
    pairs = dict(re.findall(r"(\w+):(\S+)", found[3]))
    family = FAMILIES.get(found[2].lower())
    config = pairs.get("config", "")
    model = None if family is None else "llama" if family == "llama" else f"{family} {config}"[:20].strip()
    names = {"batch": "batchsize", "layers": "layers", "devices": "devices"}
    counts = {
        name: _parse_whole(pairs[key], f"{where}, {key}", least=1) if key in pairs else None
        for name, key in names.items()
    }
    return {"system": "Alpa" if found[1] else "CFP", "model": model, **counts}


def _of_json(text: str, name: str) -> list[dict[str, Any]]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise PlanError(f"{name} is no JSON: {str(problem)[:80]}.") from None
    if isinstance(document, Mapping):
        document = document.get("points")
    if not isinstance(document, list) or not all(isinstance(each, Mapping) for each in document):
        raise PlanError(f"{name} is no list of objects with vector and seconds, nor one as points.")
    if len(document) > MOST_POINTS:
        raise PlanError(f"{name} has more than {MOST_POINTS:,} points.")
    return _of_rows([{str(key): value for key, value in each.items()} for each in document], name)


def _of_rows(rows: Sequence[Mapping[Any, Any]], name: str) -> list[dict[str, Any]]:
    found = []
    for number, row in enumerate(rows, start=1):
        where = f"{name}, row {number:,}"
        if missing := [field for field in ("vector", "seconds") if field not in row]:
            raise PlanError(f"{where} has no {missing[0]}.")
        point: dict[str, Any] = {**dict.fromkeys(POINT_COLUMNS), "line": number, "kind": "run", "system": ""}
        for field in ("kind", "system", "model"):
            if row.get(field) not in (None, ""):
                point[field] = str(row[field])[:40]
        if point["kind"] not in ("segment", "enumerated", "searched", "run"):
            raise PlanError(f"{where}: kind {point['kind']!r} is none of segment, enumerated, searched, run.")
        for field in COUNTS:
            if row.get(field) not in (None, ""):
                point[field] = _parse_whole(row[field], f"{where}, {field}", least=0 if field == "segment" else 1)
        for field in NUMBERS:
            if row.get(field) not in (None, "") and not _is_absent(row[field]):
                point[field] = _parse_number(row[field], f"{where}, {field}", infinite=field == "seconds")
        if row["vector"] not in (None, "") and not _is_absent(row["vector"]):
            point["vector"] = _parse_integers(row["vector"], f"{where}, vector")
        found.append(point)
    return found


def _is_absent(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _parse_times(text: str, where: str) -> dict[str, Any]:
    times = tuple(_parse_number(each, where, infinite=True) for each in re.split(r"[\s,]+", text.strip()) if each)
    if not times or len(times) > LONGEST:
        raise PlanError(f"{where}: there is no list of 1 to {LONGEST:,} times.")
    return {"times": times, "seconds": sum(times) / len(times)}


def _parse_integers(value: object, where: str, least: int = 0) -> tuple[int, ...]:
    """A vector as a list, or as text such as "[0, 2, 0, 2]" or "0,2,0,2"."""
    parts: Sequence[object]
    if isinstance(value, (list, tuple)):
        parts = value
    else:
        parts = re.split(r"[\s,;]+", str(value)[: 8 * LONGEST].strip().strip("[]()").strip())
    if not 1 <= len(parts) <= LONGEST or parts == [""]:
        raise PlanError(f"{where}: {str(value)[:40]!r} is no list of 1 to {LONGEST:,} strategies.")
    return tuple(_parse_whole(each, where, least=least) for each in parts)


def _parse_whole(value: object, where: str, least: int = 0) -> int:
    text = str(value).strip()
    if isinstance(value, bool) or not re.fullmatch(r"\d{1,9}(\.0+)?", text) or int(float(text)) < least:
        raise PlanError(f"{where}: {text[:40]!r} is no whole number of {least} or more.")
    return int(float(text))


def _parse_number(value: object, where: str, *, infinite: bool = False) -> float:
    text = str(value).strip()
    try:
        number = math.nan if isinstance(value, bool) else float(text)
    except ValueError:
        number = math.nan
    if math.isnan(number) or number < 0 or (math.isinf(number) and not infinite) or (number > 1e30 and not infinite):
        raise PlanError(f"{where}: {text[:40]!r} is no number of 0 or more.")
    return number
