"""Inputs of the Schedules page, which are part of the link: the schedules, the numbers, the times of a rank."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import streamlit as st

from dashboard.compat.types import Place
from dashboard.link import state
from dashboard.link.fields import LinkField, LinkReader
from dashboard.pages.schedules.link import PAGE_NAME, SchedulesLink
from dashboard.pages.schedules.scenario_times import scenario_times
from dashboard.queries.schedules import ScheduleQuestion, most_microbatches, titles
from dashboard.widgets.controls import given, key_for
from dashboard.widgets.link_fields import draw_choice, draw_decimal, draw_segments, draw_slider, draw_whole
from engine import Scenario
from engine.columns.stage_layouts import StageLayoutError, canonical
from engine.questions.documents.schedules import ExecutionReplayQuestion, ScheduleReplayQuestion
from engine.simulate.execution_stages import Cut, ExecutionTimes, cuts_of
from engine.simulate.schedules.registry import rule

__all__ = ["SchedulesInputs", "draw_inputs", "draw_sliders", "parse_inputs"]

MOST_RANKS: Final = 32
MOST_MICROBATCHES: Final = 4096
MOST_CHUNKS: Final = 32
MOST_HIDDEN: Final = 40
"""Largest share of an overlapped pair that is hidden [%]."""
PLAIN_SEND: Final = 0.05
"""Default time of a send without an execution, as a share of a forward."""
_MODES: Final = {"overlap": "Sends overlap", "block": "Sends block"}
_LAYOUT: Final = re.compile(r"[\w|*(), ]{1,300}", re.ASCII)


@dataclass(frozen=True)
class SchedulesInputs:
    """The page's question: numbers shared by all schedules, the two chosen ones, the source of the times."""

    question: ScheduleQuestion
    first: str
    second: str
    times: ExecutionTimes | None
    """Times of the scenario's execution; None for plain numbers."""
    layout: str
    """Stage layout of the execution's model; empty for plain numbers."""
    send_time: float
    """Default time of a send, as a share of a forward."""
    link: SchedulesLink
    fields: Mapping[str, LinkField]

    @property
    def shortened(self) -> str:
        """A sentence about microbatches that are left out; empty if all are replayed."""
        replayed, wanted = self.question.microbatches, self.question.wanted
        if wanted <= replayed:
            return ""
        return (
            f"{replayed:,} of {wanted:,} microbatches are replayed; times of a step count all of them, the others at "
            "the pace of the last rounds."
        )


def parse_inputs(scenario: Scenario) -> SchedulesInputs:
    """Parse the link: the numbers, the schedules, and the scenario's times if they are wanted.

    Args:
        scenario: scenario of the link.
    """
    page = LinkReader(SchedulesLink, PAGE_NAME)
    page.read("show")
    times = _parse_times(scenario) if page.read("source") == "scenario" else None
    own = "1f1b" if times is None else rule(times.schedule).name
    first = page.read("a", default=own if own in titles() else "1f1b", options=titles())
    second = page.read("b", default="zbv" if page.fields["a"].default != "zbv" else "1f1b", options=titles())
    shape = LinkReader(ScheduleReplayQuestion, PAGE_NAME)
    ranks = _parse_size(shape, "stages", 4 if times is None else times.ranks, MOST_RANKS)
    microbatches = 8 if times is None else min(times.microbatches, MOST_MICROBATCHES)
    wanted = _parse_size(shape, "microbatches", microbatches, MOST_MICROBATCHES)
    chunks = _parse_size(shape, "chunks", max(2, 1 if times is None else times.chunks), MOST_CHUNKS)
    mode = shape.read("send_mode", options=_MODES)
    for name in ("group", "memory", "counted", "along", "path"):
        page.read(name)
    layout, fields = "", {**shape.fields}
    own_stages: tuple[Cut, ...] = ()
    if times is None:
        for name in ("forward", "input", "weight"):
            page.read(name)
    else:
        layout, fields["stage_layout"] = _parse_layout(times.layout)
        own_stages = cuts_of(times.account, ranks, chunks, layout) if page.read("cut") == "own" else ()
    forward, first_gradient, second_gradient = _rank_durations(page, times, ranks, own_stages)
    sent = PLAIN_SEND if times is None else times.message / forward if own_stages else 0.0
    nearest = min(100, math.floor(100 * sent + 0.5))
    send = page.read("send", default=nearest, options=_percents(100))
    page.read("uneven", options=_percents(100))
    page.read("pair", options=_percents(MOST_HIDDEN))
    link = page.build()
    question = ScheduleQuestion(
        ranks=ranks,
        microbatches=min(wanted, most_microbatches(ranks, chunks)),
        chunks=chunks,
        group=None if link.group is None else max(1, math.floor(link.group + 0.5)),
        forward=forward,
        input_gradient=first_gradient,
        weight_gradient=second_gradient,
        hidden=link.pair / 100,
        uneven=link.uneven / 100,
        send=sent if send == nearest else send / 100,
        mode=mode,
        memory=link.memory,
        own=own_stages,
        span=link.counted == "span",
        wanted=wanted,
        besides=0.0 if times is None or link.counted == "span" else times.besides_seconds,
    )
    return SchedulesInputs(question, first, second, times, layout, sent, link, {**fields, **page.fields})


def _parse_times(scenario: Scenario) -> ExecutionTimes | None:
    """Parse the selected execution; return the scenario's times, or None, with a complaint, without any."""
    found = scenario_times(scenario, state.selected_id())
    if isinstance(found, str):
        state.complain("schedules_from", f"{found} Using plain numbers instead.")
        return None
    return found


def _parse_size(shape: LinkReader[ScheduleReplayQuestion], name: str, default: int, most: int) -> int:
    """Parse a number whose default is the execution's, which may be more than the page replays."""
    value = int(shape.read(name, default=min(default, most), most=most))
    field = shape.fields[name]
    if default > most and value == field.default:
        of = field.label[:1].lower() + field.label[1:]
        state.complain(field.parameter, f"The execution has {default:,} {of}; at most {most:,} are replayed here.")
    return value


def _parse_layout(own: str) -> tuple[str, LinkField]:
    """Parse the stage layout; the execution's own without one, or with an invalid one."""
    reader = LinkReader(ExecutionReplayQuestion, PAGE_NAME)
    text = reader.read("stage_layout", pattern=_LAYOUT)
    field = reader.fields["stage_layout"]
    try:
        return (canonical(text) if text else own), field
    except StageLayoutError as problem:
        state.complain(field.parameter, f"{problem} Using the execution's own.")
        return own, field


def _rank_durations(
    page: LinkReader[SchedulesLink], times: ExecutionTimes | None, ranks: int, own: tuple[Cut, ...]
) -> tuple[float, float, float]:
    """Return forward, gradient of the input and of the weights of a rank's share for one microbatch [s]."""
    if times is None:
        forward, first, second = (page.fields[name].value / 1e3 for name in ("forward", "input", "weight"))
        return forward, first, second
    if own:
        stages = next(cut.stages for cut in own if cut.stages)
        return (
            sum(each.forward for each in stages) / ranks,
            sum(each.input_gradient for each in stages) / ranks,
            sum(each.weight_gradient for each in stages) / ranks,
        )
    share = times.ranks / ranks
    return times.forward * share, times.backward * share / 2.0, times.backward * share / 2.0


def _percents(most: int) -> Mapping[Any, str]:
    return {number: str(number) for number in range(most + 1)}


def draw_inputs(asked: SchedulesInputs) -> Place:
    """Draw the schedules and the numbers; return a place at the end of the row.

    Args:
        asked: the parsed inputs.
    """
    fields = asked.fields
    with st.container(horizontal=True, gap="small", vertical_alignment="bottom"):
        draw_segments(fields["source"], label="Times from")
        draw_choice(fields["a"], width=190)
        draw_choice(fields["b"], width=190)
        for name in ("stages", "microbatches", "chunks"):
            draw_whole(fields[name])
        with st.popover("Times", icon=":material/tune:", help="Times of a rank's share, groups, memory."):
            draw_decimal(fields["group"])
            draw_decimal(fields["memory"])
            if asked.times is None:
                for name in ("forward", "input", "weight"):
                    draw_decimal(fields[name])
            else:
                _draw_stages(asked, asked.times)
            draw_segments(fields["counted"], label="Counted")
            st.caption(
                "The span of a rank is from its first start to its last end. It is what counts where the next step "
                "begins before the slowest rank ends: nothing waits for all ranks before the optimizer, no norm of "
                "gradients, no check for values that are no numbers."
            )
            draw_segments(fields["send_mode"])
        return st.container(width="content")


def _draw_stages(asked: SchedulesInputs, times: ExecutionTimes) -> None:
    """Draw the choice of the model's or equal stages, and the layout of the model's."""
    draw_segments(asked.fields["cut"])
    if asked.link.cut == "equal":
        st.caption("Every rank takes the time of the slowest; half of a backward is the weight gradient.")
        return
    _draw_layout(asked.fields["stage_layout"], times.layout)
    if not asked.question.own:
        st.caption("The cost model does not distinguish stages; they are equal.")


def _draw_layout(field: LinkField, own: str) -> None:
    """Draw the field of the stage layout, empty for the execution's own."""
    text = field.value or ""
    key = key_for(f"_{field.parameter}", text)

    def changed() -> None:
        new = str(given(key)).strip()
        state.set_url_value(field.parameter, None if new in ("", own) else new)

    st.text_input(
        field.label,
        text,
        key=key,
        on_change=changed,
        max_chars=300,
        placeholder=own,
        help="Empty for the execution's own: even, balanced, both_counted, first_7_last_6, or Megatron's list of all "
        "stages, such as Et*3|(tt|)*29m|L.",
    )


def draw_sliders(asked: SchedulesInputs) -> None:
    """Draw the sliders of send time, imbalance and hidden pairs.

    Args:
        asked: the parsed inputs. Times of the model's own stages already include hiding.
    """
    hide = "Overlapped pairs hide further, %" if asked.question.own else ""
    left, middle, right = st.columns(3, gap="medium")
    with left:
        draw_slider(asked.fields["send"])
    with middle:
        draw_slider(asked.fields["uneven"])
    with right:
        draw_slider(asked.fields["pair"], label=hide)
