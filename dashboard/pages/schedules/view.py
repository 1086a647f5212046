"""The Schedules page: two pipeline schedules side by side, all of them in a table, and the best along a slider."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import streamlit as st

from dashboard.charts.elements import markup
from dashboard.charts.schedules.schedule_curves import schedule_curves
from dashboard.link import state
from dashboard.link.fields import LinkField, LinkReader
from dashboard.pages.schedules import grids
from dashboard.pages.schedules.grid_inputs import GridInputs, parse_grid
from dashboard.pages.schedules.inputs import SchedulesInputs, draw_inputs, draw_sliders, parse_inputs
from dashboard.pages.schedules.lanes import WAITS, draw_schedule, idle_causes, lanes_legend
from dashboard.pages.schedules.link import PAGE_NAME, SchedulesLink
from dashboard.pages.schedules.measured import draw_measured
from dashboard.pages.schedules.stages import draw_stages, fullest_rank, rank_work
from dashboard.pages.schedules.tables import draw_feasibility
from dashboard.queries import accuracy
from dashboard.queries.own_stages import ALIKE
from dashboard.queries.schedules import (
    ScheduleOutcome,
    ScheduleQuestion,
    chunks_of,
    compare_along,
    find_outcome,
    find_outcomes,
    plans_along,
    titles,
)
from dashboard.widgets.chart import show
from dashboard.widgets.file_download import draw_download
from dashboard.widgets.link_fields import draw_segments, draw_switch
from dashboard.widgets.window import is_narrow
from dashboard.words.markdown import literal
from dashboard.words.numbers import counted, format_value, gibibytes, percent, plain, quantity, relative
from engine import Scenario
from engine.columns import by_name
from engine.cost_models.account import ExecutionAccount
from engine.executions.execution_names import execution_name
from engine.simulate.execution_stages import ExecutionTimes
from engine.simulate.exports import chrome_trace_json, torch_csv
from engine.simulate.schedules.registry import rule
from engine.simulate.stage_replay import StageReplay, besides_sentence, stage_replay
from hardware import GIB

__all__ = ["SchedulesView", "parse", "render"]

TIME, MEMORY = "total_time", "proc_mem_tier1_cap_req"


@dataclass(frozen=True, slots=True)
class SchedulesView:
    """All that the link says of the page."""

    scenario: Scenario
    mode: str
    """The theme: "light" or "dark"."""
    show: LinkField
    """Subject of the page: schedules, or the grid."""
    schedules: SchedulesInputs | None
    """None for the grid."""
    grid: GridInputs | None
    """None for schedules."""


def parse() -> SchedulesView:
    """Parse the page's part of the link."""
    scenario, page = state.current_scenario(), LinkReader(SchedulesLink, PAGE_NAME)
    is_grid = page.read("show") == "grid"
    return SchedulesView(
        scenario,
        state.theme_mode(),
        page.fields["show"],
        None if is_grid else parse_inputs(scenario),
        parse_grid(scenario) if is_grid else None,
    )


def render(view: SchedulesView) -> None:
    """Draw the page: two schedules side by side, or every mix of parallelisms."""
    draw_segments(view.show, label="Show")
    if view.grid is not None:
        grids.render(view.grid, view.mode)
        return
    asked = view.schedules
    if asked is None:
        return
    exports = draw_inputs(asked)
    if asked.shortened:
        st.caption(asked.shortened)
    strip = st.container()
    draw_sliders(asked)
    question, times = asked.question, asked.times
    one, other = find_outcome(question, asked.first), find_outcome(question, asked.second)
    found = find_outcomes(question)
    with strip:
        source = "numbers given" if times is None else "times that the cost model has for the scenario's best execution"
        tiles = _answer_tiles(view.scenario, question, one, other, found, times)
        st.html(markup.figure_strip(tiles, f"Modelled: replayed event by event from the {source}."))
        if times is not None:
            _compare_times(asked, times, one)
    with exports:
        _draw_exports(one, other)
    _draw_lanes(asked, one, other, view.mode)
    if question.own and times is not None:
        with st.container(border=True, gap="xsmall"):
            draw_stages(
                question,
                one,
                times,
                view.scenario.model,
                asked.layout,
                view.mode,
                capacity=view.scenario.system.mem1.capacity_gib,
            )
    left, right = st.columns([1, 1], gap="medium")
    with left.container(border=True, gap="xsmall", height="stretch"):
        _draw_curve(asked, view.mode)
    with right.container(border=True, gap="xsmall", height="stretch"):
        draw_measured(asked.first, question, chunks_of(question, one.rule), one.rule.placement, view.mode)
    with st.container(border=True, gap="xsmall"):
        draw_feasibility(found)


def _answer_tiles(
    scenario: Scenario,
    question: ScheduleQuestion,
    one: ScheduleOutcome,
    other: ScheduleOutcome,
    found: Sequence[ScheduleOutcome],
    times: ExecutionTimes | None,
) -> list[markup.Tile]:
    """Return the page's answers: the fastest schedule, both chosen ones, and the source of the times."""
    best = found[0]
    tiles = []
    if best.runs and best.found is not None:
        tiles.append(
            markup.Tile(
                "Fastest", quantity(TIME, best.step), best.rule.title, **_accuracy_of_step(scenario, times, best.name)
            )
        )
    for letter, made in (("A", one), ("B", other)):
        if made.found is None:
            tiles.append(markup.Tile(f"Step with {letter}", "–", f"{made.rule.title} does not run"))
            continue
        what = "Span" if question.span else "Step"
        tiles.append(
            markup.Tile(
                f"{what} with {letter}",
                quantity(TIME, made.step),
                f"ranks idle {percent(made.idle)} on average",
                **_accuracy_of_step(scenario, times, made.name),
            )
        )
    if one.found is not None and other.found is not None:
        change, less = relative(other.step, one.step), other.step < one.step
        peaks = f"{plain(other.peak)} against {plain(one.peak)} activations"
        tiles.append(markup.Tile("B against A", change, peaks, "better" if less else "worse"))
    if one.found is not None:
        waits = idle_causes(one.found)
        most = (WAITS[waits[0][0]], f"{waits[0][1]} of all time") if waits else ("never", "no idle time")
        tiles.append(markup.Tile("A waits most", *most))
    fullest = fullest_rank(question, one, times) if times is not None else None
    if fullest is not None:
        rank, held = fullest
        capacity = scenario.system.mem1.capacity_gib * GIB
        fits = f"rank {rank}, fits {gibibytes(capacity)}"
        tiles.append(
            markup.Tile(
                "Memory of A",
                quantity(MEMORY, held),
                fits if held <= capacity else f"rank {rank}, does not fit {gibibytes(capacity)}",
                "" if held <= capacity else "worse",
            )
        )
    work = rank_work(question, one)
    if work:
        longest = max(work, key=lambda each: each.seconds)
        which = "all alike" if longest.over <= ALIKE else f"rank {longest.rank}"
        tiles.append(markup.Tile("Longest rank of A", which, longest.why))
    each = question.forward + question.input_gradient + question.weight_gradient
    of = execution_name(times.row) if times is not None else "plain numbers"
    tiles.append(markup.Tile("One microbatch", format_value(TIME, each), f"of a rank; {of}"))
    return tiles


def _compare_times(asked: SchedulesInputs, times: ExecutionTimes, one: ScheduleOutcome) -> None:
    """Draw the time of a step outside the pipeline, and for the execution's own schedule both times of its step and
    their difference."""
    question = asked.question
    told = [besides_sentence(times.besides)] if times.besides else []
    own = (
        (question.ranks, question.wanted, asked.layout) == (times.ranks, times.microbatches, times.layout)
        and one.name == rule(times.schedule).name
        and chunks_of(question, one.rule) == times.chunks
        and (question.uneven, question.hidden, question.send, question.mode) == (0.0, 0.0, asked.send_time, "overlap")
        and not question.span
    )
    compared = _replay_stages(times.account, repr(sorted(times.row.items(), key=str)), times.row) if own else None
    if compared is not None:
        bubble = float(times.row["bubble_time"]) / float(times.row["total_time"])
        told += [
            compared.sentence(),
            f"Its bubble, {percent(bubble)}, is the idle time of the busiest rank; idle is the mean of all ranks.",
        ]
    if told:
        st.caption(literal(" ".join(told)))


@st.cache_resource(show_spinner=False, max_entries=64)
def _replay_stages(_account: ExecutionAccount, key: str, _row: dict[str, Any]) -> StageReplay | None:
    return stage_replay(_row, _account)


def _accuracy_of_step(scenario: Scenario, times: ExecutionTimes | None, schedule: str) -> dict[str, str]:
    """Return the error of a step with a schedule, or that no measured run has it.

    Empty for plain numbers, and for times of a cost model that claims no accuracy.
    """
    if times is None or accuracy.label_of(scenario) == accuracy.EXACT:
        return {}
    for field in by_name("schedule").choices:
        if rule(field).name == schedule:
            return accuracy.founded(scenario, {**times.row, "schedule": field}, "time")
    return {"origin": accuracy.MODELLED, "error": accuracy.never_measured([f"schedule {rule(schedule).title}"])}


def _draw_lanes(asked: SchedulesInputs, one: ScheduleOutcome, other: ScheduleOutcome, mode: str) -> None:
    """Draw both schedules on one time axis."""
    question = asked.question
    draw_switch(asked.fields["path"])
    until = max(each.found.makespan for each in (one, other) if each.found) if one.found or other.found else 0.0
    most = max((each.peak for each in (one, other) if each.found), default=1.0)
    places = [st.container(), st.container()] if is_narrow() or _is_wide(question) else st.columns(2, gap="medium")
    for place, letter, made in zip(places, "AB", (one, other), strict=True):
        with place.container(border=True, gap="xsmall", height="stretch"):
            draw_schedule(letter, made, question, mode, until=until, most=most, path=asked.link.path)
    st.html(lanes_legend(one.found, other.found))
    same = (
        f"{counted(question.ranks, 'rank')}, {counted(question.microbatches, 'microbatch')} and the same model for both"
    )
    st.caption(
        f"Equal devices and tokens: {same}. Numbers are microbatches; fainter boxes are later chunks or the other "
        "direction. A split box is an overlapped forward and backward, so the work of a step can exceed 100 % of its "
        "time. Drag to zoom in, double-click to see all."
    )


def _is_wide(question: ScheduleQuestion) -> bool:
    """Return True if a schedule has too many actions for half of the width."""
    return question.microbatches * question.chunks > 24


def _draw_curve(asked: SchedulesInputs, mode: str) -> None:
    """Draw the times of all schedules along one of the sliders."""
    st.html(markup.head("Where the best schedule changes", "everything else unchanged"))
    draw_segments(asked.fields["along"])
    question, which = asked.question, asked.link.along
    labels = {
        "send": "Send time, share of a forward",
        "uneven": "Last stage heavier, share of a rank",
        "microbatches": "Microbatches",
    }
    here = {"send": question.send, "uneven": question.uneven, "microbatches": float(question.microbatches)}[which]
    chart = schedule_curves(
        compare_along(question, which),
        titles(),
        (asked.first, asked.second),
        labels[which],
        here,
        mode,
        as_percent=which != "microbatches",
        narrow=is_narrow(),
    )
    show(chart, "schedules_curve")
    left_out = "" if plans_along(question) else " Planned orders are left out here: they have too many actions."
    st.caption(literal(chart.alt + left_out))


def _draw_exports(one: ScheduleOutcome, other: ScheduleOutcome) -> None:
    """Draw the downloads of both schedules."""
    with st.popover("Export", icon=":material/download:", help="Events, orders and tables of both schedules."):
        for letter, made in (("A", one), ("B", other)):
            found = made.found
            if found is None:
                continue
            st.markdown(f"**{letter}: {literal(made.rule.title)}**")
            for label, name, mime, content in (
                (
                    "Events for Chrome’s trace viewer",
                    f"{made.name}.trace.json",
                    "application/json",
                    lambda found=found: chrome_trace_json(found),
                ),
                ("Order for torch (CSV)", f"{made.name}.torch.csv", "text/csv", lambda found=found: torch_csv(found)),
                (
                    "Every action (CSV)",
                    f"{made.name}.csv",
                    "text/csv",
                    lambda found=found: found.tasks.to_csv(index=False),
                ),
            ):
                draw_download(
                    label,
                    content,
                    name,
                    mime,
                    key=f"schedules_{letter}_{name}",
                )
