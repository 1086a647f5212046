"""A measured run beside the theory: events of traces, and the schedule replayed with the times that were measured."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pandas as pd
import streamlit as st

from dashboard.charts.elements import markup
from dashboard.charts.gantt import gantt
from dashboard.pages.schedules.questions import titles
from dashboard.widgets.controls import show
from dashboard.words.markdown import literal
from dashboard.words.numbers import format_value, percent
from engine.simulate import Replay, ScheduleError, replay
from engine.simulate.imports import read_events
from engine.simulate.schedule import WORK, Schedule, drawn

__all__ = ["compared", "measured", "measured_schedule"]

MOST_MEGABYTES: Final = 20
_HELP: Final = (
    "torch: traces of the profiler, one per rank or all in one. Megatron and others: a CSV with columns rank, kind "
    "(forward, backward), microbatch, start and end in seconds."
)


def measured(name: str, ranks: int, microbatches: int, chunks: int, mode: str) -> None:
    """Draws the card: files to open, and what was measured beside a schedule replayed with the measured times."""
    st.html(markup.head("A measured run beside the theory", titles()[name]))
    files = st.file_uploader(
        f"Traces or tables of events, up to {MOST_MEGABYTES} MB", type=["json", "csv"], accept_multiple_files=True,
        key="schedules_measured", max_upload_size=MOST_MEGABYTES, help=_HELP,
    )  # fmt: skip
    if not files:
        return
    try:
        parts = [read_events(file.getvalue().decode("utf-8")) for file in files]
        if len(parts) > 1 and all(part["rank"].nunique() == 1 for part in parts):
            parts = [part.assign(rank=rank) for rank, part in enumerate(parts)]
        events = pd.concat(parts, ignore_index=True)
        found = compared(events, name, chunks)
    except UnicodeDecodeError:
        st.error("A file is no text in UTF-8.", icon=":material/error:")
        return
    except ScheduleError as problem:
        st.error(literal(str(problem)), icon=":material/error:")
        return
    whole = measured_schedule(events)
    longer = max(whole.step_time, found.makespan)
    show(gantt(whole, mode, until=longer, row="rank", zoom=True), "schedules_measured_lanes")
    st.html(markup.head("The same by replay", f"{titles()[name]}, medians of the measured times, no sends"))
    show(gantt(drawn(found), mode, until=longer, row="rank", zoom=True), "schedules_replayed_lanes")
    idle = 1 - _busy(events).sum() / (whole.step_time * events["rank"].nunique())
    more = whole.step_time / found.makespan - 1
    st.html(markup.facts([
        ("measured", format_value("total_time", whole.step_time)), ("replayed", format_value("total_time", found.makespan)),
        ("measured over replayed", percent(more)), ("idle, measured", percent(float(idle))),
        ("idle, replayed", percent(float(np.mean(found.bubble_fraction)))),
    ]))  # fmt: skip


def compared(events: pd.DataFrame, name: str, chunks: int) -> Replay:
    """Returns a schedule replayed with the medians of measured times.

    Raises: ScheduleError where the schedule does not exist for the measured numbers.
    """
    ranks, microbatches = int(events["rank"].nunique()), int(events["microbatch"].max()) + 1
    length = (events["end"] - events["start"]).groupby(events["kind"]).median()
    whole = float(length.get("BW", length.get("B", 0.0) + length.get("W", 0.0)))
    first = float(length.get("B", whole / 2.0))
    times: dict[str, Any] = {"F": float(length.get("F", 0.0)), "B": first, "W": float(length.get("W", whole - first))}
    return replay(name, stages=ranks, microbatches=microbatches, chunks=chunks, times=times)


def measured_schedule(events: pd.DataFrame) -> Schedule:
    """Returns measured events as a schedule to draw."""
    stages = events["stage"].to_numpy()
    ranks = int(events["rank"].nunique())
    tasks = pd.DataFrame({
        "stage": events["rank"], "kind": events["kind"].map(WORK), "chunk": np.maximum(stages, 0) // ranks,
        "microbatch": events["microbatch"], "start": events["start"], "end": events["end"], "pair": -1,
    })  # fmt: skip
    return Schedule(
        stages=ranks, chunks=int(tasks["chunk"].max()) + 1, microbatches=int(events["microbatch"].max()) + 1, tasks=tasks,
        step_time=float(events["end"].max()), title="measured",
    )  # fmt: skip


def _busy(events: pd.DataFrame) -> pd.Series[float]:
    return (events["end"] - events["start"]).groupby(events["rank"]).sum()
