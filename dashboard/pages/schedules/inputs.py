"""Inputs of the Schedules page, which are part of the link."""

from __future__ import annotations

import math
import re
from typing import Final

import streamlit as st

from dashboard.link import state
from dashboard.pages.schedules.questions import ScheduleQuestion, most_microbatches, titles
from dashboard.widgets.controls import choose, given, key_for, segments, whole_number
from dashboard.widgets.link_numbers import DECIMAL, whole_in_link
from engine.columns.stage_layouts import StageLayoutError, canonical
from engine.simulate.execution_stages import Cut, ExecutionTimes, cuts_of
from engine.simulate.schedules.registry import rule

__all__ = [
    "chosen",
    "decimal_input",
    "first_schedule",
    "layout",
    "question",
    "shortened",
    "shown",
    "sliders",
    "source",
    "whole_input",
]

MOST_RANKS: Final = 32
MOST_MICROBATCHES: Final = 4096
_SHOWN: Final = {"schedules": "Schedules", "grid": "Every mix of D × H × P"}
_FROM: Final = {"scenario": "Scenario’s execution", "numbers": "Plain numbers"}
_STAGES: Final = {"own": "Model’s stages", "equal": "Equal stages"}
_COUNTED: Final = {"step": "Whole step", "span": "Longest span"}
_LAYOUT: Final = re.compile(r"[\w|*(), ]{1,300}", re.ASCII)


def shown() -> str:
    """Draws the choice of the page's subject; returns "schedules" or "grid"."""
    return segments("Show", _SHOWN, "schedules_show")


def source() -> str:
    """Draws the choice of the source of times; returns "scenario" or "numbers"."""
    return segments("Times from", _FROM, "schedules_from")


def chosen(first: str) -> tuple[str, str]:
    """Draws the choice of two schedules; returns their names."""
    options = titles()
    second = "zbv" if first != "zbv" else "1f1b"
    return (
        choose("Schedule A", options, "schedules_a", default=first, width=190),
        choose("Schedule B", options, "schedules_b", default=second, width=190),
    )


def first_schedule(times: ExecutionTimes | None) -> str:
    """Returns the default first schedule: the execution's own."""
    if times is None:
        return "1f1b"
    name = rule(times.schedule).name
    return name if name in titles() else "1f1b"


def question(times: ExecutionTimes | None) -> tuple[ScheduleQuestion, int]:
    """Draws the numbers; returns them, and the number of microbatches asked for, which may exceed the replayed ones.

    times: of the scenario's best execution; None for plain numbers.
    """
    ranks = whole_input("Ranks", "ranks", 4 if times is None else times.ranks, MOST_RANKS, "Ranks of the pipeline, P.")
    microbatches = whole_input(
        "Microbatches",
        "microbatches",
        8 if times is None else min(times.microbatches, MOST_MICROBATCHES),
        MOST_MICROBATCHES,
        "Of one replica in a step, M.",
    )
    chunks = whole_input(
        "Chunks",
        "chunks",
        max(2, 1 if times is None else times.chunks),
        32,
        "Pieces of the model per rank, of schedules that leave it open.",
    )
    most = most_microbatches(ranks, chunks)
    own: tuple[Cut, ...] = ()
    with st.popover("Times", icon=":material/tune:", help="Times of a rank's share, groups, memory."):
        group = _optional_whole("Group of microbatches", "group", "Of interleaved schedules; as many as ranks.")
        memory = decimal_input(
            "Activations at most", "memory", None, "Of a rank's whole share for one microbatch; empty for any number."
        )
        if times is None:
            forward = (
                decimal_input("Forward, ms", "forward", 1.0, "Of a rank's whole share for one microbatch.") or 1.0
            ) / 1e3
            first = (decimal_input("Input gradient, ms", "input", 1.0, "Likewise.") or 1.0) / 1e3
            second = (decimal_input("Weight gradient, ms", "weight", 1.0, "Likewise.") or 1.0) / 1e3
        else:
            share = times.ranks / ranks
            forward, first = times.forward * share, times.backward * share / 2.0
            second = first
            own = _own_stages(times, ranks, chunks)
        span = segments("Counted", _COUNTED, "schedules_counted") == "span"
        st.caption(
            "The span of a rank is from its first start to its last end. It is what counts where the next step begins "
            "before the slowest rank ends: nothing waits for all ranks before the optimizer, no norm of gradients, no "
            "check for values that are no numbers."
        )
        mode = segments("Sends", {"overlap": "Sends overlap", "block": "Sends block"}, "schedules_mode")
    if own:
        stages = next(cut.stages for cut in own if cut.stages)
        forward = sum(each.forward for each in stages) / ranks
        first = sum(each.input_gradient for each in stages) / ranks
        second = sum(each.weight_gradient for each in stages) / ranks
    made = ScheduleQuestion(
        ranks=ranks,
        microbatches=min(microbatches, most),
        chunks=chunks,
        group=group,
        forward=forward,
        input_gradient=first,
        weight_gradient=second,
        hidden=0.0,
        uneven=0.0,
        send=0.0,
        mode=mode,
        memory=memory,
        own=own,
        span=span,
        wanted=microbatches,
        besides=0.0 if times is None or span else times.besides_seconds,
    )
    return made, microbatches


def _own_stages(times: ExecutionTimes, ranks: int, chunks: int) -> tuple[Cut, ...]:
    """Draw the choice of the model's or equal stages, and the layout; return the cuts, empty for equal stages."""
    if segments("Stages", _STAGES, "schedules_stages") == "equal":
        st.caption("Every rank takes what the execution's slowest does; half of a backward is gradient of the weights.")
        return ()
    _layout_field(times.layout)
    found = cuts_of(times.account, ranks, chunks, layout(times))
    if not found:
        st.caption("The cost model does not distinguish stages; they are equal.")
    return found


def layout(times: ExecutionTimes) -> str:
    """Returns the stage layout: the link's, otherwise the execution's."""
    text = state.url_value("schedules_layout", "", _LAYOUT)
    try:
        return canonical(text) if text else times.layout
    except StageLayoutError as problem:
        state.complain("schedules_layout", f"{problem} Using the execution's own.")
        return times.layout


def _layout_field(own: str) -> None:
    """Draw the field of the stage layout."""
    text = state.url_value("schedules_layout", "", _LAYOUT)
    key = key_for("_schedules_layout", text)

    def changed() -> None:
        new = str(given(key)).strip()
        state.set_url_value("schedules_layout", None if new in ("", own) else new)

    st.text_input(
        "Stage layout",
        text,
        key=key,
        on_change=changed,
        max_chars=300,
        placeholder=own,
        help="Empty for the execution's own: even, balanced, both_counted, first_7_last_6, or Megatron's list of all "
        "stages, such as Et*3|(tt|)*29m|L.",
    )


def sliders(send_time: float, *, own: bool = False) -> tuple[float, float, float]:
    """Draws the sliders; returns send time, imbalance and the hidden part of overlapped pairs, as shares.

    send_time: default, as a share of a forward. own: True if the stages' times already include hiding.
    """
    nearest = min(100, math.floor(100 * send_time + 0.5))
    left, middle, right = st.columns(3, gap="medium")
    with left:
        send = whole_number(
            "Send time, % of a forward",
            0,
            100,
            "schedules_send",
            default=nearest,
            help="Share of a rank's forward for one microbatch. A send starts when the result is ready.",
        )
    with middle:
        uneven = whole_number(
            "Last stage heavier, %",
            0,
            100,
            "schedules_uneven",
            default=0,
            help="Extra time for head or loss, as a share of a rank's time.",
        )
    with right:
        hidden = whole_number(
            f"Overlapped pairs hide{' further' * own}, %",
            0,
            40,
            "schedules_pair",
            default=0,
            help="Share of an overlapped forward-backward pair that is hidden.",
        )
    return send_time if send == nearest else send / 100, uneven / 100, hidden / 100


def shortened(asked: ScheduleQuestion, wanted: int) -> str:
    """Returns a sentence about microbatches that are left out; empty if all are replayed."""
    if wanted <= asked.microbatches:
        return ""
    return (
        f"{asked.microbatches:,} of {wanted:,} microbatches are replayed; times of a step count all of them, the "
        "others at the pace of the last rounds."
    )


def whole_input(label: str, name: str, default: int, most: int, help: str) -> int:
    """Draws a field for a whole number from 1 to `most`, the parameter `schedules_<name>`; returns the number."""
    return whole_in_link(f"schedules_{name}", label, default, most, help)


def _optional_whole(label: str, name: str, help: str) -> int | None:
    found = decimal_input(label, name, None, help)
    return None if found is None else max(1, math.floor(found + 0.5))


def decimal_input(label: str, name: str, default: float | None, help: str) -> float | None:
    """Draws a field for a positive number; returns it, or the default if the field is empty."""
    parameter = f"schedules_{name}"
    text = state.url_value(parameter, "", DECIMAL)
    value = float(text) if text else default
    key = key_for(f"_{parameter}", value, clearable=True)

    def changed() -> None:
        new = given(key)
        state.set_url_value(parameter, None if not new or new == default else f"{new:.4f}".rstrip("0").rstrip("."))

    st.number_input(
        label,
        min_value=0.0,
        max_value=9_999_999.0,
        value=None,
        step=1.0,
        key=key,
        on_change=changed,
        help=help,
        placeholder="none" if default is None else f"{default:g}",
        format="%g",
    )
    return value or default
