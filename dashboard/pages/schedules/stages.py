"""The card of the stages: content and time of every rank, and the reason for differences."""

from __future__ import annotations

import numpy as np
import pandas as pd
import streamlit as st

from dashboard.charts.elements import markup
from dashboard.charts.schedules.stage_bars import stage_bars, stage_kinds
from dashboard.queries.own_stages import ALIKE, Offloads, RankWork, bytes_of_ranks, ranks_of
from dashboard.queries.schedules import ScheduleOutcome, ScheduleQuestion, chunks_of
from dashboard.widgets.chart import show
from dashboard.widgets.tables import height_of
from dashboard.words.markdown import literal
from dashboard.words.numbers import scale_for
from engine.launch import megatron_options
from engine.simulate.execution_stages import ExecutionTimes, cut_for
from hardware import GIB
from models import Model

__all__ = ["draw_stages", "fullest_rank", "rank_work", "stages_table"]


def rank_work(question: ScheduleQuestion, made: ScheduleOutcome) -> list[RankWork]:
    """Returns the work of every rank for a microbatch under a schedule; empty for equal stages."""
    if not question.own:
        return []
    cut = cut_for(question.own, chunks_of(question, made.rule))
    return ranks_of(cut, question.ranks, made.rule.placement) if cut.stages else []


def fullest_rank(question: ScheduleQuestion, made: ScheduleOutcome, times: ExecutionTimes) -> tuple[int, float] | None:
    """Returns the rank that holds most under a schedule, and its bytes; None if the cost model does not give them.

    The execution's offloads apply to every schedule.
    """
    held = _bytes_held(question, made, times)
    return max(enumerate(whole for _, whole in held), key=lambda each: each[1]) if held else None


def _bytes_held(question: ScheduleQuestion, made: ScheduleOutcome, times: ExecutionTimes) -> list[tuple[float, float]]:
    """Return (activations, all bytes) that every rank holds [bytes]."""
    if not question.own or made.found is None:
        return []
    cut = cut_for(question.own, chunks_of(question, made.rule))
    sharded = int(times.row.get("zero_stage") or 0) > 0
    if not cut.stages:
        return []
    offloads = Offloads.of(times.row)
    return bytes_of_ranks(cut, made.found, sharded=sharded, offloads=offloads, growth=made.growth)


def stages_table(found: list[RankWork], held: list[tuple[float, float]] | None = None) -> pd.DataFrame:
    """Returns a row per rank: content, times [s], distance to the mean and its reason.

    With `held` also activations and all memory [GiB].
    """
    table = pd.DataFrame(
        [
            {
                "rank": each.rank,
                "holds": ", ".join(f"{number:g} {name}" for name, number, _ in each.holds),
                "forward": each.forward,
                "backward": each.backward,
                "over": 100 * each.over,
                "why": each.why,
            }
            for each in found
        ]
    )
    if held:
        table["activations"], table["memory"] = (np.array(column) / GIB for column in zip(*held, strict=True))
        table["why"] = table.pop("why")
    return table


def draw_stages(
    question: ScheduleQuestion,
    made: ScheduleOutcome,
    times: ExecutionTimes,
    model: Model,
    layout: str,
    mode: str,
    *,
    capacity: float,
) -> None:
    """Draws the work of ranks under the first schedule.

    Args:
        question: the numbers of the page.
        made: the schedule's outcome.
        times: the execution of the numbers.
        model: the model of the stages.
        layout: stage layout, as in the field.
        mode: "light" or "dark".
        capacity: memory of a processor [GiB].
    """
    found = rank_work(question, made)
    if not found:
        return
    longest = max(found, key=lambda each: each.seconds)
    cut = cut_for(question.own, chunks_of(question, made.rule))
    held, fullest = _bytes_held(question, made, times), fullest_rank(question, made, times)
    alike = longest.over <= ALIKE
    scope = "ranks are alike" if alike else f"rank {longest.rank} has the most work: {longest.why}"
    if fullest is not None:
        rank, most = fullest
        scope += f"; rank {rank} holds the most: {most / GIB:.1f} of {capacity:.1f} GiB"
    st.html(markup.head(f"Stages with {made.rule.title}", scope))
    if fullest is not None and fullest[1] > capacity * GIB:
        told = f"{made.rule.title} does not fit: rank {rank} holds {most / GIB:.1f} GiB of {capacity:.1f} GiB."
        st.error(told, icon=":material/error:")
    parts = [{name: took for name, _, took in each.holds} for each in found]
    left, right = st.columns([1, 2.6], gap="medium")
    with left:
        show(stage_bars(parts, mode), "schedules_stages")
        st.html(markup.legend(stage_kinds(parts)))
    with right:
        _draw_table(stages_table(found, held))
    if cut.problem:
        told = f"The layout {layout} does not cut these stages ({cut.problem}); they are as even as blocks divide."
        st.caption(literal(told))
    if "Megatron" in made.rule.frameworks:
        options = megatron_options(model, question.ranks, cut.chunks, "even" if cut.problem else layout)
        if options:
            st.caption("Megatron’s options for these stages")
            st.code(options, language=None, wrap_lines=True)
    st.caption(
        "Forward and backward of one microbatch on each rank, by the cost model; the dotted line is the mean. Memory "
        "is what the replay holds until the weight gradient. Other schedules cut the model into their own stages."
    )


def _draw_table(table: pd.DataFrame) -> None:
    scale = scale_for("total_time", table["forward"] + table["backward"])
    shown = table.assign(
        forward=table["forward"] / scale.factor,
        backward=table["backward"] / scale.factor,
        over=table["over"].round(1) + 0.0,  # no rank is shown as -0.0 over the mean
    )
    number = st.column_config.NumberColumn
    st.dataframe(
        shown,
        hide_index=True,
        height=height_of(len(shown), 420),
        key="schedules_stages_table",
        alt="Every rank: content, forward and backward of a microbatch, distance to the mean and its reason.",
        column_config={
            "rank": number("Rank", width=44),
            "holds": st.column_config.TextColumn("Holds", width=208),
            "forward": number(f"fw [{scale.unit}]", format="%.3g", width=62, help="Forward of a microbatch."),
            "backward": number(f"bw [{scale.unit}]", format="%.3g", width=62, help="Both gradients of a microbatch."),
            "over": number("Over [%]", format="%+.1f", width=66, help="Over the mean of all ranks."),
            "activations": number("Act. [GiB]", format="%.1f", width=72, help="Most activations that it holds."),
            "memory": number(
                "Memory [GiB]",
                format="%.1f",
                width=86,
                help="All that it holds in HBM then: weights, "
                "gradients, optimizer state, activations, temporaries, less offloaded data.",
            ),
            "why": st.column_config.TextColumn("Reason", width=252),
        },
    )
