"""The What-if page's answer: the new best against the base, which execution it is, and why, term by term."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import streamlit as st

from dashboard.charts.elements import markup
from dashboard.charts.execution.time_bar import waterfall
from dashboard.jobs.server import questions
from dashboard.link import page_links, state
from dashboard.pages.whatif.inputs import WhatIfView
from dashboard.queries import accuracy
from dashboard.queries.economics import days_for, mfu_formula, mfu_label, utilisation
from dashboard.queries.nearest_fit import least_hbm, remedies, ways
from dashboard.queries.scenario_edits import altered
from dashboard.queries.step_times import differences_in_time
from dashboard.widgets import launch, uncertainty
from dashboard.widgets.chart import show
from dashboard.widgets.figures import draw_doubts
from dashboard.widgets.hardware_changes import put
from dashboard.words.changes import described
from dashboard.words.differences import gain_tone
from dashboard.words.executions import choices, degrees_in_cell, differences
from dashboard.words.markdown import literal
from dashboard.words.names import FIXED, FIXED_MEANS
from dashboard.words.numbers import (
    ABSENT,
    MINUS,
    count,
    counted,
    days,
    format_delta,
    format_value,
    gibibytes,
    percent,
    plain,
    signed_percent,
)
from engine import Scenario, whatif
from engine.executions.execution_names import execution_name
from engine.questions.changes import explain_less_from_more
from engine.questions.documents.changes import WhatIfQuestion
from engine.recommendation import FIGURES_OF, ShownChange
from hardware import GIB

__all__ = ["answer", "answer_tiles", "draw"]

RATE: Final = "sample_rate"
TOKENS: Final = 1e12
DAY: Final = 86_400.0


def _prefer_old_best(found: ShownChange) -> ShownChange:
    """Return the answer with the old best as its best if nothing beats it: ties would look like a change."""
    best, kept = found.best, found.kept
    if best is None or kept is None or kept[RATE] != best[RATE]:
        return found
    return replace(found, best=kept)


def answer(asked: WhatIfQuestion) -> ShownChange:
    """Return the answer to a change, cached for all sessions.

    Raises `dashboard.jobs.questions.Unanswered` and `dashboard.jobs.board.BoardFull`.
    """
    return _prefer_old_best(questions().ask(asked, state.watcher()))


def draw(view: WhatIfView, again: Callable[[], None]) -> None:
    """Draws the strip of figures, and the reasons for the best; or why nothing runs, and remedies.

    again: called in a widget's callback to redraw the page's parts.
    """
    scenario = view.scenario
    found = answer(view.question)
    if found.best is None:
        _draw_nothing_runs(scenario, found, again)
        return
    shown = answer_tiles(scenario, found)
    with st.container(key="whatif_strip"):  # stays in view while sliders further down are moved
        st.html(
            markup.figure_strip(
                accuracy.marked(shown, found.scenario, found.best), accuracy.basis(found.scenario, found.best)
            )
        )
    with st.container(border=True, gap="xsmall", key="whatif_why"):
        st.caption(f"Figures of the {found.figures_of} execution, before and after.")
        draw_doubts(found.scenario, found.best, found.remark or found.base_remark)
        _draw_reasons(view, found)


def answer_tiles(scenario: Scenario, found: ShownChange) -> list[markup.Tile]:
    """Returns the headline figures of an answer, with the values of the base."""
    best, base = found.best, found.base
    assert best is not None
    rate, after = float(best[RATE]), found.scenario
    mfu, long = utilisation(after, rate), days_for(after, rate, TOKENS)
    formula = "1e12 tokens ÷ (throughput · sequence length)"
    if base is None:
        return [
            markup.Tile("Throughput", format_value(RATE, rate), "nothing ran before", "better"),
            markup.Tile(mfu_label(after), percent(mfu), formula=mfu_formula(after)),
            markup.Tile("1 T tokens take", days(long), formula=formula),
            markup.Tile(_role_label(found), _cell_label(best), degrees_in_cell(best)),
            markup.Tile("Feasible", count(found.feasible), f"of {count(found.total)}"),
        ]
    before = float(base[RATE])
    old_mfu, old_long = utilisation(scenario, before), days_for(scenario, before, TOKENS)
    same = found.kept is not None and not math.isnan(found.kept_gain)
    unchanged = not found.changes
    more = found.feasible - found.base_feasible
    tied = not unchanged and accuracy.is_tied(after, best, base) and accuracy.is_tied(scenario, base, best)
    return [
        markup.Tile(
            "Throughput",
            format_value(RATE, rate),
            "the base"
            if unchanged
            else f"{signed_percent(found.gain)}, below the error"
            if tied
            else f"{signed_percent(found.gain)} against {plain(before)}",
            "" if tied else gain_tone(found.gain),
        ),
        markup.Tile(
            FIXED.capitalize(),
            format_value(RATE, found.kept[RATE]) if same and found.kept else ABSENT,
            "" if unchanged else f"{signed_percent(found.kept_gain)} not re-optimised" if same else "no longer runs",
            "" if tied and same else gain_tone(found.kept_gain) if same else "worse",
            formula=FIXED_MEANS,
            **(accuracy.founded(after, found.kept, "rate") if same and found.kept else {}),
        ),
        markup.Tile(
            mfu_label(after),
            percent(mfu),
            "" if unchanged else _format_points(mfu - old_mfu),
            formula=mfu_formula(after),
        ),
        markup.Tile(
            "1 T tokens take",
            days(long),
            "" if unchanged else _describe_duration_change(long - old_long),
            "" if tied else gain_tone(old_long / long - 1),
            formula,
        ),
        markup.Tile(_role_label(found), f"{_cell_label(best)}", _describe_former(base, best, unchanged)),
        markup.Tile(
            "Feasible",
            count(found.feasible),
            f"{'+' if more > 0 else MINUS}{count(abs(more))} against the base" if more else f"of {count(found.total)}",
        ),
    ]


def _role_label(found: ShownChange) -> str:
    """Return the role of the execution after the change, as a label."""
    return f"{FIGURES_OF[found.figures_of]} execution"


def _cell_label(row: Mapping[str, Any]) -> str:
    # A narrow space keeps the degrees together, so that the unit's small type does not begin within them.
    return f"TP\u00a0{row['tensor_par']}\u00a0×\u00a0PP\u00a0{row['pipeline_par']}"


def _describe_former(base: Mapping[str, Any], best: Mapping[str, Any], unchanged: bool) -> str:
    if unchanged:
        return degrees_in_cell(best)
    if (base["tensor_par"], base["pipeline_par"]) != (best["tensor_par"], best["pipeline_par"]):
        return f"was TP {base['tensor_par']} × PP {base['pipeline_par']}"
    others = len(differences(base, best))
    return f"{others} other choice{'s' if others != 1 else ''} changed" if others else "the same as before"


def _format_points(change: float) -> str:
    return format_delta("total_efficiency", change)


def _describe_duration_change(change: float) -> str:
    """Return a change of a duration [s] in words."""
    if abs(change) < 0.05 * DAY:
        return "±0"
    arrow, word = ("▲", "sooner") if change < 0 else ("▼", "later")
    return f"{arrow} {days(abs(change))} {word}"


def _draw_reasons(view: WhatIfView, found: ShownChange) -> None:
    """Draw the best execution and the reasons for it."""
    scenario = view.scenario
    best, base, kept = found.best, found.base, found.kept
    assert best is not None
    other, name = (kept, "kept") if kept is not None and not math.isnan(found.kept_gain) else (base, "base")
    words = ", ".join(described(scenario, found.changes))
    scope = f"{execution_name(best)} · {words}" if words else f"{execution_name(best)}, the base"
    with st.container(horizontal=True, gap="small", vertical_alignment="center"):
        st.html(markup.head("Why this execution", scope))
        st.space("stretch")
        uncertainty.popover(found.scenario, best, "whatif_accuracy")
        launch.popover(found.scenario, best, "whatif_launch")
    left, right = st.columns([1, 1.5], gap="medium")
    with right:
        changed = base is not None and bool(differences(base, best))
        against = other if found.changes and changed else base if found.changes else None
        names = ("after", name if against is other and changed else "base")
        if against is not None:
            show(waterfall(best, view.mode, other=against, names=names), "whatif_waterfall")
        else:
            show(waterfall(best, view.mode), "whatif_waterfall")
    with left:
        for line in explain_answer(found):
            st.markdown(line)
        rows = differences(base, best, found.scenario.system) if base is not None else []
        if rows and found.changes:
            st.caption("Changed choices")
            st.html(markup.chips((label, f"{old} → {new}") for label, old, new in rows))
        else:
            st.html(markup.chips(choices(best, found.scenario.system)))


def explain_answer(found: ShownChange) -> list[str]:
    """Returns the effect of the change on the fixed layout, and of choosing again on top, as Markdown."""
    best, base, kept = found.best, found.base, found.kept
    assert best is not None
    advised = found.figures_of == "recommended"
    if base is None:
        return [f"Nothing ran before; now this execution is {'recommended' if advised else 'the best'}."]
    if not found.changes:
        role = "recommended execution" if advised else "best execution"
        return [
            f"This is the base: the {role} of the scenario above. Move a slider, and the whole space of "
            f"**{found.total:,}** execution{'' if found.total == 1 else 's'} is searched again."
        ]
    lines = []
    old = "old best" if found.base_figures_of == "fastest" else "recommended execution"
    if kept is None or math.isnan(found.kept_gain):
        why = str(kept["reason_text"] or "") if kept is not None else ""
        lines.append(f"**The {old} does not run any more.** {literal(why)}")
    else:
        after, before = (format_value("total_time", one["total_time"]) for one in (kept, base))
        terms = differences_in_time(base, kept)
        lines.append(
            f"**The change by itself** leaves the {old} at {after} a step: {terms}."
            if after == before
            else f"**The change by itself** makes the {old} take {after} a step instead of {before}: {terms}."
        )
        gain = float(best[RATE]) / float(kept[RATE]) - 1
        if not differences(base, best):
            lines.append(
                f"**The {FIXED} stays recommended**: the simplest within the error."
                if advised
                else f"**The {FIXED} stays best**: nothing of the whole space is faster."
            )
        elif advised:
            lines.append(
                f"**Another execution is recommended now**, {signed_percent(gain)} against the {FIXED}: "
                f"{differences_in_time(kept, best)}."
            )
        else:
            lines.append(f"**Re-optimising adds {signed_percent(gain)}**: {differences_in_time(kept, best)}.")
    if found.fastest is not None and not math.isnan(found.fastest.gain):
        lines.append(explain_less_from_more(found) or f"The fastest gains {signed_percent(found.fastest.gain)}.")
    return lines


def _draw_nothing_runs(scenario: Scenario, found: ShownChange, again: Callable[[], None]) -> None:
    """Draw why nothing runs, the missing memory, the former best, and the nearest changes that help."""
    after = found.scenario
    least = least_hbm(after, after.key) if found.total else None
    there = after.system.mem1.capacity_gib * GIB
    if found.total == 0:
        why = "There is no way to divide the model among the GPUs."
    elif least is None:
        why = "More HBM would not help: host memory, networks or stages are the obstacle."
    else:
        need, (tensor, pipeline) = least
        why = (
            f"With no more host memory than there is, the least demanding needs **{gibibytes(need)}** of HBM, "
            f"{gibibytes(need - there)} more than the "
            f"{gibibytes(there)} available. It is in TP\u00a0{tensor}\u00a0×\u00a0PP\u00a0{pipeline}."
        )
    if found.kept is not None and found.kept["reason_text"]:
        why += f" The old best: {literal(str(found.kept['reason_text']))}"
    if found.base is not None:
        why += f" Before, {execution_name(found.base)} was best."
    when = " after this change" if found.changes else ""
    st.warning(
        f"**None of the {counted(found.total, 'execution')} runs{when}.** {why}",
        icon=":material/block:",
    )
    with st.container(border=True, gap="xsmall", key="whatif_nothing"):
        st.html(markup.head("What would make it run", "the nearest changes"))
        with st.container(horizontal=True, gap="small", vertical_alignment="center"):
            helping = 0
            for name, value, words in remedies(after, after.key):
                if value > whatif.parameter(scenario, name).highest:
                    continue
                helping += 1
                st.button(
                    words,
                    icon=":material/arrow_forward:",
                    key=f"whatif_help_{name}",
                    on_click=_apply_remedy,
                    args=(scenario, name, value, again),
                )
            for words, change in ways(after, after.key).items():
                if "limits" in change:
                    helping += 1
                    st.button(
                        words,
                        icon=":material/arrow_forward:",
                        key="whatif_help_limits",
                        on_click=_lift_limits,
                        args=(scenario,),
                    )
            if not helping:
                st.caption(
                    "Neither more of one memory, more GPUs nor fewer limits help by themselves; more of both memories "
                    "or another model might."
                )
            if page_links.exists("memory"):
                st.page_link(
                    page_links.target("memory"), label="What each cell needs", icon=":material/memory:", width="content"
                )


def _apply_remedy(scenario: Scenario, name: str, value: float, again: Callable[[], None]) -> None:
    put(scenario, name, value)
    again()


def _lift_limits(scenario: Scenario) -> None:
    """Lift all limits of the scenario itself; the changes stay."""
    state.set_scenario(altered(scenario, limits={}))
    st.rerun()
