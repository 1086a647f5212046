"""What is scheduled: the inputs of the Schedules page, which are part of the link."""

from __future__ import annotations

import math
from typing import Final

import streamlit as st

from dashboard.link import state
from dashboard.pages.schedules.questions import Question, most_microbatches, titles
from dashboard.pages.schedules.scenario_times import ScenarioTimes
from dashboard.widgets.controls import choose, given, key_for, segments, whole_number
from dashboard.widgets.link_numbers import DECIMAL, whole_in_link
from engine.simulate.schedules.registry import rule

__all__ = [
    "chosen", "decimal_input", "first_schedule", "question", "shortened", "shown", "sliders", "source", "whole_input",
]  # fmt: skip

MOST_RANKS: Final = 32
MOST_MICROBATCHES: Final = 4096
_SHOWN: Final = {"schedules": "Schedules", "grid": "Every mix of D × H × P"}
_FROM: Final = {"scenario": "Scenario’s best", "numbers": "Plain numbers"}


def shown() -> str:
    """Draws what the page shows; returns "schedules" or "grid"."""
    return segments("Show", _SHOWN, "schedules_show")


def source() -> str:
    """Draws where times come from; returns "scenario" or "numbers"."""
    return segments("Times from", _FROM, "schedules_from")


def chosen(first: str) -> tuple[str, str]:
    """Draws the two schedules; returns their names."""
    options = titles()
    second = "zbv" if first != "zbv" else "1f1b"
    return (
        choose("Schedule A", options, "schedules_a", default=first, width=190),
        choose("Schedule B", options, "schedules_b", default=second, width=190),
    )


def first_schedule(times: ScenarioTimes | None) -> str:
    """Returns the schedule that stands first: the execution's own."""
    if times is None:
        return "1f1b"
    name = rule(times.schedule).name
    return name if name in titles() else "1f1b"


def question(times: ScenarioTimes | None) -> tuple[Question, int]:
    """Draws the numbers; returns them, and how many microbatches were asked for, which may be more than are replayed.

    times: of the scenario's best execution; None for plain numbers.
    """
    ranks = whole_input("Ranks", "ranks", 4 if times is None else times.ranks, MOST_RANKS, "Ranks of the pipeline, P.")
    microbatches = whole_input(
        "Microbatches", "microbatches", 8 if times is None else min(times.microbatches, MOST_MICROBATCHES),
        MOST_MICROBATCHES, "Of one replica in a step, M.",
    )  # fmt: skip
    chunks = whole_input(
        "Chunks", "chunks", max(2, 1 if times is None else times.chunks), 32,
        "Pieces of the model per rank, of schedules that leave it open.",
    )  # fmt: skip
    most = most_microbatches(ranks, chunks)
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
            st.caption("Times are the execution's; half of a backward counts as gradient of the weights.")
        mode = segments("Sends", {"overlap": "Sends overlap", "block": "Sends block"}, "schedules_mode")
    made = Question(
        ranks=ranks, microbatches=min(microbatches, most), chunks=chunks, group=group, forward=forward,
        input_gradient=first, weight_gradient=second, hidden=0.0, uneven=0.0, send=0.0, mode=mode, memory=memory,
    )  # fmt: skip
    return made, microbatches


def sliders(send_time: int) -> tuple[float, float, float]:
    """Draws the sliders; returns send time, imbalance and what pairs hide, as shares.

    send_time: what it is at first [% of a forward].
    """
    left, middle, right = st.columns(3, gap="medium")
    with left:
        send = whole_number(
            "Send time, % of a forward", 0, 100, "schedules_send", default=send_time,
            help="Of a rank's forward for one microbatch. A send starts when the result is there.",
        )  # fmt: skip
    with middle:
        uneven = whole_number(
            "Last stage heavier, %", 0, 100, "schedules_uneven", default=0,
            help="As a head or loss makes it: of a rank's whole share.",
        )  # fmt: skip
    with right:
        hidden = whole_number(
            "Overlapped pairs hide, %", 0, 40, "schedules_pair", default=0,
            help="Share of a forward and a backward that run together which they hide of each other.",
        )  # fmt: skip
    return send / 100, uneven / 100, hidden / 100


def shortened(asked: Question, wanted: int) -> str:
    """Returns a sentence about microbatches that are left out; nothing where all are replayed."""
    if wanted <= asked.microbatches:
        return ""
    return (
        f"Replayed with {asked.microbatches:,} of {wanted:,} microbatches: past the fill, each further one adds the "
        "same work and hardly any waiting."
    )


def whole_input(label: str, name: str, default: int, most: int, help: str) -> int:
    """Draws a field for a whole number from 1 to `most`, the parameter `schedules_<name>`; returns the number."""
    return whole_in_link(f"schedules_{name}", label, default, most, help)


def _optional_whole(label: str, name: str, help: str) -> int | None:
    found = decimal_input(label, name, None, help)
    return None if found is None else max(1, math.floor(found + 0.5))


def decimal_input(label: str, name: str, default: float | None, help: str) -> float | None:
    """Draws a field for a positive number; returns it, or nothing where it is empty and there is no default."""
    parameter = f"schedules_{name}"
    text = state.url_value(parameter, "", DECIMAL)
    value = float(text) if text else default
    key = key_for(f"_{parameter}", value, clearable=True)

    def changed() -> None:
        new = given(key)
        state.set_url_value(parameter, None if not new or new == default else f"{new:.4f}".rstrip("0").rstrip("."))

    st.number_input(
        label, min_value=0.0, max_value=9_999_999.0, value=None, step=1.0, key=key, on_change=changed, help=help,
        placeholder="none" if default is None else f"{default:g}", format="%g",
    )  # fmt: skip
    return value or default
