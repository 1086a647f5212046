"""Output of the artifact's notebooks, line by line: figures 7 and 8, and the grids of table 2."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import pandas as pd

from engine.planners.elastic.best import best_plan
from engine.planners.elastic.measured import Measurements, measurements
from engine.planners.elastic.over_time import FIGURE_7, timeline
from engine.planners.elastic.placements import PlacementLike, gpus_on_nodes, placement_text
from engine.planners.elastic.plan_names import PlanName, parse_plan
from engine.planners.elastic.splits import split
from engine.reproductions.rubick.table_2 import table_2, table_2_models

__all__ = ["figure_7_lines", "figure_8_lines", "notebook_lines", "table_2_lines"]

SMALL = ("DP", "GC", "ZeRO-DP+GA", "ZeRO-Offload")
LARGE = ("TP+PP", "DP+TP+PP", "ZeRO-DP+GA", "ZeRO-Offload+GC")
"""Rows of the grids: of small models, and of large ones."""


def figure_7_lines() -> Iterator[str]:
    """Yields the output of the notebook of figure 7: the planner's choices, then the series of all strategies [s]."""
    trace = measurements("llama7_bsz16")
    for phase in FIGURE_7:
        found = best_plan("llama7_bsz16", placement=phase.nodes, cpu_threads=phase.cpu_threads)
        seconds = trace.iteration_s(found.plan, phase.nodes, phase.cpu_threads)
        yield (
            f"Morphling chooses the execution plan: {_bracketed_plan(found.name)}, when the GPU placements are: "
            f"{placement_text(phase.nodes)}, and the CPU threads are: {phase.cpu_threads}. The training performance "
            f"is: {_number_text(seconds)}."
        )
    lines = []
    for name, rows in timeline().table.groupby("strategy", sort=False):
        told = [
            _series_time(trace, plan, seconds) for plan, seconds in zip(rows["plan"], rows["iteration_s"], strict=True)
        ]
        lines.append(f"'{name}': [{', '.join(told)}]")
    yield "{" + ",\n ".join(lines) + "}"


def _bracketed_plan(name: PlanName) -> str:
    return name.text if name.zero is not None else f"(PP={name.pp},TP={name.tp},DP={name.dp})"


def _series_time(trace: Measurements, plan: str, seconds: float) -> str:
    """Return a time of a series as text: 0.0 for a plan that does not run, 0 for one without any measurement."""
    if math.isnan(seconds):
        return "0.0" if plan and (trace.table["plan"] == plan).any() else "0"
    return _number_text(seconds)


def _number_text(value: float) -> str:
    return repr(float(f"{value:.12g}"))


def figure_8_lines() -> Iterator[str]:
    """Yields the output of the notebook of figure 8: GPUs and speed of two jobs on four GPUs."""
    found = split(["roberta", "t5_3B"], 4)
    yield f"Simple Scheduler: allocates {found.gpus('equal')['roberta']} GPUs to each job."
    yield from _job_lines(found.equal)
    yield "Morphling Scheduler: maximizes throughput considering jobs’ resource sensitivity."
    yield "Reconfiguration result:"
    for row in found.of("greedy").to_dict("records"):
        plan = _plan_in_words(parse_plan(row["plan"], row["gpus"]))
        yield f"  allocates {row['gpus']} GPUs to {row['job']}, and reconfigures it to use {plan}."
    yield from _job_lines(found.of("greedy"))


def _job_lines(rows: pd.DataFrame) -> Iterator[str]:
    for row in rows.to_dict("records"):
        seconds, plan = _fastest_measurement(measurements(row["job"]), (row["gpus"],))
        yield f"{row['job']} takes {_number_text(seconds)} seconds under {plan}."
        yield f"The normalized throughput of {row['job']} is {round(row['normalised'], 2)}."


def _fastest_measurement(trace: Measurements, placement: PlacementLike) -> tuple[float, str]:
    """Return the fastest measurement on a placement [s], and its plan as the trace writes it."""
    rows = trace.table[trace.table["placement"] == placement_text(gpus_on_nodes(placement))]
    best = rows.sort_values("iteration_s", kind="stable").iloc[0]
    return float(best["iteration_s"]), str(best["exec_plan"])


def _plan_in_words(name: PlanName) -> str:
    """Return a plan with one degree in the words of figure 8."""
    if name.zero is None:
        words = [word for word, degree in (("pp", name.pp), ("tp", name.tp), ("dp", name.dp)) if degree > 1]
        return f"{words[0]}+ga" if len(words) == 1 else name.text
    return name.text


def table_2_lines() -> Iterator[str]:
    """Yields the grids of table 2: for every model the mean and largest error of each plan [%]."""
    rows = table_2().to_dict("records")
    found = {(row["model"], row["plan"]): (row["avg_pct"], row["max_pct"]) for row in rows}
    for model in table_2_models().values():
        plans = SMALL if (model.name, SMALL[0]) in found else LARGE
        cells = [[plan, *_error_texts(found.get((model.name, plan)))] for plan in plans]
        yield f"## {model.title} Validation"
        yield from _draw_grid(["execution_plan", "avg.", "max."], cells)


def _error_texts(found: tuple[float, float] | None) -> tuple[str, str]:
    return ("/", "/") if found is None else (str(round(found[0], 3)), str(round(found[1], 3)))


def _draw_grid(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield a table with lines: words at the left, numbers with their decimal points aligned."""
    columns = []
    for at, title in enumerate(header):
        cells = [row[at] for row in rows]
        numeric = at > 0 and "/" not in cells
        if numeric:
            most = max(len(cell.partition(".")[2]) for cell in cells)
            cells = [cell + " " * (most - len(cell.partition(".")[2])) for cell in cells]
        width = max(len(title) + 2, *map(len, cells))
        columns.append([cell.rjust(width) if numeric else cell.ljust(width) for cell in (title, *cells)])
    line = "+".join(["", *("-" * (len(column[0]) + 2) for column in columns), ""])
    for at, cells_ in enumerate(zip(*columns, strict=True)):
        if not at:
            yield line
        yield f"| {' | '.join(cells_)} |"
        yield line.replace("-", "=") if not at else line


def notebook_lines() -> Iterator[str]:
    """Yields all of them: figure 7, figure 8, table 2."""
    yield from figure_7_lines()
    yield from figure_8_lines()
    yield from table_2_lines()
