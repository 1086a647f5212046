"""A schedule as a card: its lanes, activations held, and its critical path with the published formula."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pandas as pd
import streamlit as st

from dashboard.charts.elements import markup
from dashboard.charts.elements.palette import TIME_KINDS, Kind
from dashboard.charts.schedules.gantt import WEIGHTS, gantt, shown_stages
from dashboard.charts.schedules.held_activations import held_activations
from dashboard.queries.schedules import ScheduleOutcome, ScheduleQuestion, drawn_replay
from dashboard.widgets.chart import show
from dashboard.widgets.window import is_narrow
from dashboard.words.markdown import literal
from dashboard.words.numbers import counted, format_value, percent
from engine.simulate import Replay
from engine.simulate.closed_forms import published
from engine.simulate.residence import held_over_time
from engine.simulate.schedule import drawn

__all__ = ["WAITS", "draw_schedule", "idle_causes", "lanes_legend"]

_KINDS: Final = {kind.key: kind for kind in TIME_KINDS}
ZOOM: Final = {"doubleClick": "reset"}
WAITS: Final = {
    "fill": "idle to fill",
    "drain": "idle to drain",
    "forward": "for forwards",
    "gradient": "for gradients",
    "latency": "for sends",
    "send": "sending",
}
"""Reasons for idle ranks, in two words."""
TIME: Final = "total_time"


def draw_schedule(
    letter: str, made: ScheduleOutcome, question: ScheduleQuestion, mode: str, *, until: float, most: float, path: bool
) -> None:
    """Draws a schedule.

    Args:
        letter: A or B.
        made: the schedule's outcome.
        question: the numbers of the page.
        mode: "light" or "dark".
        until: end of the time axis [s], the same for both cards.
        most: activations of a full row of the memory chart.
        path: True to frame the critical path.
    """
    found = made.found
    st.html(markup.head(f"{letter}: {made.rule.title}", _describe_result(made)))
    if found is None:
        st.warning(literal(made.reason), icon=":material/block:")
        return
    shown, skipped = drawn_replay(question, made.name)
    picture = drawn(shown, whole=found.makespan, skipped_microbatches=skipped)
    critical = _critical_tasks(shown) if path else None
    chart = gantt(
        picture, mode, until=None if skipped else until, critical=critical, row="rank", zoom=True, narrow=is_narrow()
    )
    show(chart, f"schedules_lanes_{letter.lower()}", config=ZOOM)
    st.html(markup.head("Activations held", f"{_describe_peak(made)}; a full row is {most:.3g}"))
    chart = held_activations(
        held_over_time(shown.order, shown.timing),
        shown_stages(question.ranks),
        shown.order.chunks,
        shown.makespan,
        mode,
        until=None if skipped else until,
        most=most,
        skipped=bool(skipped),
    )
    show(chart, f"schedules_held_{letter.lower()}", config=ZOOM)
    st.html(markup.facts(_replay_facts(found)))
    st.caption(literal(_describe_critical_path(found)))
    if made.rule.frameworks:
        asked = "; ".join(f"{name}: {how}" for name, how in made.rule.frameworks.items() if how != "yes")
        st.caption(literal(f"To select it in {asked}."))
    for remark in found.remarks if not made.too_much else (made.reason, *found.remarks):
        st.caption(literal(remark))


def lanes_legend(*found: Replay | None) -> str:
    """Returns the legend of the lanes."""
    kinds = {kind for each in found if each is not None for kind in each.tasks["kind"].unique()}
    named = [Kind("forward", "forward", (), _KINDS["forward"].light, _KINDS["forward"].dark)]
    backward = _KINDS["backward"]
    words = [word for key, word in (("BW", "backward"), ("B", "input gradient")) if key in kinds]
    named.append(Kind("backward", " or ".join(words), (), backward.light, backward.dark))
    if "W" in kinds:
        named.append(Kind("weight gradient", "weight gradient", (), WEIGHTS.light, WEIGHTS.dark))
    return markup.legend([*named, Kind("bubble", "idle", (), None, None)])


def idle_causes(found: Replay) -> list[tuple[str, str]]:
    """Returns the reasons for idle time, as shares of the time of all ranks, the largest first."""
    idle = found.idle
    spent = (idle["end"] - idle["start"]).groupby(idle["cause"]).sum().sort_values(ascending=False)
    whole = found.makespan * found.order.ranks
    return [(str(cause), percent(float(seconds) / whole)) for cause, seconds in spent.items()]


def _describe_result(made: ScheduleOutcome) -> str:
    if made.found is None:
        return "not with these numbers"
    chunks = f", {counted(made.found.order.chunks, 'chunk')} per rank" if made.found.order.chunks > 1 else ""
    return f"pipeline {format_value(TIME, made.took)}, idle {percent(made.idle)}{chunks}"


def _describe_peak(made: ScheduleOutcome) -> str:
    copies = f", parameters {made.rule.parameter_copies} times" if made.rule.parameter_copies > 1 else ""
    return f"at most {made.peak:.4g} of a rank’s share{copies}"


def _replay_facts(found: Replay) -> list[tuple[str, str]]:
    waits = [(WAITS[cause], share) for cause, share in idle_causes(found)]
    freed = max(found.peak_if_freed_at_B) / found.order.chunks
    return [
        *waits,
        ("longest span", format_value(TIME, found.longest_span)),
        ("held until input gradient", f"{freed:.4g}"),
    ]


def _describe_critical_path(found: Replay) -> str:
    """Return the critical path as a sum, and the published formula with its difference."""
    counts = found.critical_path.counts
    words = {"F": "f", "B": "b", "W": "w", "BW": "(b + w)", "FB": "FB", "c": "c"}
    own = " + ".join(f"{count} {words[kind]}" for kind, count in counts.items() if count)
    sentence = f"Critical path: {format_value(TIME, found.makespan)} = {own}."
    formula = published(found)
    if formula is None:
        return sentence + " There is no published formula."
    if formula[1] is None:
        return f"{sentence} Published: {formula[0]}; it does not hold for these numbers."
    apart = found.makespan - formula[1]
    same = abs(apart) <= 1e-9 * found.makespan
    return f"{sentence} Published: {formula[0]} = {format_value(TIME, formula[1])}" + (
        ", the same." if same else f", {format_value(TIME, abs(apart))} {'less' if apart > 0 else 'more'}."
    )


def _critical_tasks(found: Replay) -> pd.DataFrame:
    entries = np.array(found.critical_path.entries)
    rows: dict[str, Any] = {
        "stage": found.order.rank[entries],
        "start": found.timing.start[entries],
        "end": found.timing.end[entries],
    }
    return pd.DataFrame(rows)
