"""Uploaded files next to the theory: a measured run's events, or an order of actions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pandas as pd
import streamlit as st

from dashboard.charts.elements import markup
from dashboard.charts.schedules.gantt import gantt
from dashboard.link.document_validation import Refused
from dashboard.queries.schedules import ScheduleQuestion, titles
from dashboard.widgets.chart import show
from dashboard.widgets.upload import files_field, read_file
from dashboard.widgets.window import is_narrow
from dashboard.words.markdown import literal
from dashboard.words.numbers import format_value, percent, relative
from engine.simulate import Replay, ScheduleError, replay
from engine.simulate.imports import read_events, read_torch_csv
from engine.simulate.schedule import WORK, Schedule, drawn
from engine.simulate.schedules.contract import StagePlacement

__all__ = ["draw_measured", "measured_schedule", "own_order", "replay_measured"]

MOST_MEGABYTES: Final = 20
MOST_DRAWN: Final = 1_500
TIME: Final = "total_time"
_HELP: Final = (
    "Traces of torch's profiler, one file per rank or all in one; a CSV with columns rank, kind (forward, backward), "
    "microbatch, start and end in seconds, as from Megatron's timers; or an order as torch's schedule CSV has it."
)


def draw_measured(name: str, question: ScheduleQuestion, chunks: int, placement: StagePlacement, mode: str) -> None:
    """Draws the card: the upload, and its content next to a schedule.

    Args:
        name: the schedule that a measured run is compared with.
        question: the numbers of the page.
        chunks: chunks per rank of that schedule.
        placement: placement of that schedule, used for an uploaded order, too.
        mode: "light" or "dark".
    """
    st.html(markup.head("A measured run or your own order", f"next to {titles()[name]}"))
    files = files_field(
        f"Traces, tables of events or an order, up to {MOST_MEGABYTES} MB",
        ["json", "csv"],
        "schedules_measured",
        MOST_MEGABYTES,
        help=_HELP,
    )
    if not files:
        st.caption(
            "A trace or table of a run is drawn above the schedule, which is replayed with the medians of the measured "
            "times. The remaining difference has other causes. An order in torch’s format is checked and replayed; a "
            "deadlock is reported with its place."
        )
        return
    try:
        found = read_file(_read_contents, question, placement, *(file.getvalue() for file in files))
        if isinstance(found, Replay):
            _draw_order(found, question, mode)
        else:
            _draw_measured_and_replayed(found, replay_measured(found, name, chunks), name, mode)
    except (Refused, ScheduleError) as problem:
        st.error(literal(str(problem)), icon=":material/error:")


def _read_contents(question: ScheduleQuestion, placement: StagePlacement, *contents: bytes) -> Replay | pd.DataFrame:
    """Return the replay of an uploaded order, or the events of a measured run."""
    texts = [content.decode("utf-8") for content in contents]
    if len(texts) == 1 and _is_order(texts[0]):
        return own_order(texts[0], question, placement)
    return _join_events([read_events(text) for text in texts])


def _is_order(text: str) -> bool:
    """Return whether a file is an order rather than events: its first cell begins with a number."""
    return text.lstrip("\ufeff \n(")[:1].isdigit()


def _join_events(parts: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Return events of several files; files of one rank each become separate ranks."""
    if len(parts) > 1 and all(part["rank"].nunique() == 1 for part in parts):
        parts = [part.assign(rank=rank) for rank, part in enumerate(parts)]
    return pd.concat(parts, ignore_index=True)


def own_order(text: str, question: ScheduleQuestion, placement: StagePlacement) -> Replay:
    """Returns an uploaded order, replayed with the times of the page.

    Raises: ScheduleError if it cannot run, with the first blocked action.
    """
    lines = read_torch_csv(text)
    words = [word for line in lines for part in line.split() for word in part.split("+")]
    numbers = [word.lstrip("FBW").split(".") for word in words]
    stages = max(int(stage) for _, stage in numbers) + 1
    microbatches = max(int(microbatch) for microbatch, _ in numbers) + 1
    chunks = max(1, stages // len(lines))
    home = placement if placement is not StagePlacement.BIDIRECTIONAL and chunks == 2 else StagePlacement.LOOP
    times = {
        kind: value / chunks
        for kind, value in (("F", question.forward), ("B", question.input_gradient), ("W", question.weight_gradient))
    }
    return replay(
        lines,
        stages=len(lines),
        microbatches=microbatches,
        chunks=chunks,
        times=times,
        sends={"mode": question.mode, "c": question.send_time},
        placement=home.value,
    )


def _draw_order(found: Replay, question: ScheduleQuestion, mode: str) -> None:
    """Draw an uploaded order."""
    if len(found.order) > MOST_DRAWN:
        st.caption(f"It runs, and takes {format_value(TIME, found.makespan)}; it has too many actions to be drawn.")
        return
    show(gantt(drawn(found), mode, row="rank", zoom=True, narrow=is_narrow()), "schedules_own_lanes")
    st.html(
        markup.facts(
            [
                ("step", format_value(TIME, found.makespan)),
                ("idle", percent(float(np.mean(found.bubble_fraction)))),
                ("activations, chunks", str(max(found.peak_activations))),
                ("microbatches", str(found.order.microbatches)),
            ]
        )
    )


def _draw_measured_and_replayed(events: pd.DataFrame, found: Replay, name: str, mode: str) -> None:
    """Draw measured events above the replay."""
    whole = measured_schedule(events)
    longer = max(whole.step_time, found.makespan)
    show(gantt(whole, mode, until=longer, row="rank", zoom=True, narrow=is_narrow()), "schedules_measured_lanes")
    st.html(markup.head("The same by replay", f"{titles()[name]}, medians of the measured times, no sends"))
    show(gantt(drawn(found), mode, until=longer, row="rank", zoom=True, narrow=is_narrow()), "schedules_replayed_lanes")
    spent = (events["end"] - events["start"]).groupby(events["rank"]).sum()
    idle = 1 - float(spent.sum()) / (whole.step_time * whole.stages)
    st.html(
        markup.facts(
            [
                ("measured", format_value(TIME, whole.step_time)),
                ("replayed", format_value(TIME, found.makespan)),
                ("measured against it", relative(whole.step_time, found.makespan)),
                ("idle, measured", percent(idle)),
                ("idle, replayed", percent(float(np.mean(found.bubble_fraction)))),
            ]
        )
    )


def replay_measured(events: pd.DataFrame, name: str, chunks: int) -> Replay:
    """Returns a schedule replayed with the medians of measured times.

    Raises: ScheduleError if the schedule does not exist for the measured numbers.
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
    tasks = pd.DataFrame(
        {
            "stage": events["rank"],
            "kind": events["kind"].map(WORK),
            "chunk": np.maximum(stages, 0) // ranks,
            "microbatch": events["microbatch"],
            "start": events["start"],
            "end": events["end"],
            "pair": -1,
        }
    )
    return Schedule(
        stages=ranks,
        chunks=int(tasks["chunk"].max()) + 1,
        microbatches=int(events["microbatch"].max()) + 1,
        tasks=tasks.sort_values(["stage", "start"], kind="stable").reset_index(drop=True),
        step_time=float(events["end"].max()),
        title="measured",
    )
