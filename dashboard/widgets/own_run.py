"""Panel "Your run": a person's own run on every page about a scenario, its place, and the steps to a better one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import streamlit as st

from dashboard.charts.elements import markup
from dashboard.jobs.board import BoardFull
from dashboard.jobs.server import explorations
from dashboard.link import state
from dashboard.link.own_run import OwnRunView, forget_own_run, own_run_parameters
from dashboard.queries.figures import WORKING
from dashboard.queries.own_run import can_start_target, find_flags, find_own_standing, has_setting
from dashboard.queries.scenario_edits import altered
from dashboard.widgets.figures import patience_s, watch_figures
from dashboard.widgets.normal_runs import draw_measurement_menu, draw_verdict
from dashboard.widgets.window import is_narrow
from dashboard.words.executions import placed
from dashboard.words.markdown import literal
from dashboard.words.numbers import count, counted, format_value, signed_percent
from engine import Exploration, Scenario
from engine.executions.execution_names import execution_name
from engine.executions.frameworks.registry import ANY
from engine.launch import FRAMEWORKS, FlagChange, Standing
from engine.recommendation.own_run import describe_distance, describe_steps

__all__ = ["declare_own_run", "draw_own_run", "draw_standing"]

LOOK_AGAIN: Final = 1.0
"""Time between two looks for the exploration of a scenario [s]."""
_MOST_FLAGS: Final = 4
"""Flags of a step that the panel lists; its menu has all."""


def draw_own_run(view: OwnRunView, scenario: Scenario, exploration: Exploration | None) -> None:
    """Draw the panel if there is a person's own run.

    Args:
        view: what the link says of the run.
        scenario: that the page is about.
        exploration: of the scenario; asked for if None.
    """
    execution = view.execution
    if execution is None:
        return
    with st.container(border=True, gap="xsmall", key="own_run"):
        if not has_setting(scenario, execution):
            _draw_head(view)
            _draw_other_setting(scenario, execution)
            return
        found = exploration or _explored(scenario)
        if found is None:
            _draw_head(view)
            st.caption("Its place is known once all executions are evaluated; Map does that.")
            st.fragment(_until_explored, run_every=LOOK_AGAIN)(scenario)
            return
        framework = _framework_of(view, scenario)
        stands = find_own_standing(found, execution, framework, view.figures.question, patience_s())
        _draw_head(view, stands, found)
        if stands is None:
            st.caption(WORKING)
            watch_figures(found, view.figures.question, (), None, (), "own_run_figures")
            return
        draw_standing(stands, find_flags(stands, framework), _MOST_FLAGS)
        if framework is not None and stands.steps and not can_start_target(stands, framework):
            _offer_framework(stands, framework)
        if stands.runs and stands.row["training"]:
            draw_verdict(found, _named_row(view, stands), view.measured, view.measured_as)


def _until_explored(scenario: Scenario) -> None:
    """Run the page again once the scenario is explored; Map draws only its own parts again."""
    if _explored(scenario) is not None:
        st.rerun()


def _explored(scenario: Scenario) -> Exploration | None:
    """Return the exploration of a scenario if it is there; otherwise begin it."""
    try:
        return explorations().request(scenario, state.watcher()).exploration
    except BoardFull:
        return None


def _framework_of(view: OwnRunView, scenario: Scenario) -> str | None:
    """Return the framework whose flags name the steps: the run's, else the scenario's; None if neither is stated."""
    return view.framework or (None if scenario.framework == ANY else scenario.framework)


def _named_row(view: OwnRunView, stands: Standing) -> dict[str, Any]:
    """Return the evaluated run with an id of its own, also if the space does not have it."""
    assert view.execution is not None
    return {**stands.row, "id": str(sorted(view.execution.items()))}


def _draw_head(view: OwnRunView, stands: Standing | None = None, exploration: Exploration | None = None) -> None:
    """Draw the title, with the buttons that show and forget the run, and the menu of measurements."""
    assert view.execution is not None
    title = FRAMEWORKS[view.framework].title if view.framework else ""
    name = execution_name(view.execution)
    with st.container(horizontal=True, gap="small", vertical_alignment="center"):
        st.html(markup.head("Your run", " · ".join(filter(None, (name, title)))))
        st.space("stretch")
        if stands is not None and exploration is not None and stands.runs and stands.row["training"]:
            row = _named_row(view, stands)
            draw_measurement_menu(exploration, row, view.measured, view.measured_as, "own_run_measured")
        if stands is not None and stands.id is not None and view.selected != stands.id:
            st.button(
                "Show it",
                icon=":material/my_location:",
                type="tertiary",
                key="own_run_show",
                on_click=_show_run,
                args=(stands.id,),
                help="Select your run on all pages.",
            )
        st.button(
            "Forget it",
            icon=":material/close:",
            type="tertiary",
            key="own_run_forget",
            on_click=forget_own_run,
            help="Remove your run from all pages and from the link.",
        )


def _show_run(ident: int) -> None:
    with state.one_step():
        state.select(ident)
        state.set_url_value("own", str(ident))


def _draw_other_setting(scenario: Scenario, execution: Mapping[str, Any]) -> None:
    """Draw the difference of GPUs, batch or datatype from the scenario, and the button that sets the run's."""
    own = f"{count(execution['num_procs'])} GPUs, batch {count(execution['batch_size'])}, {execution['datatype']}"
    here = f"{count(scenario.num_procs)} GPUs, batch {count(scenario.max_batch_size)}, {scenario.datatype}"
    with st.container(horizontal=True, gap="small", vertical_alignment="center"):
        st.caption(literal(f"It is of {own}; this scenario is of {here}."), width="content")
        st.button(
            "Back to its setting",
            icon=":material/undo:",
            type="tertiary",
            key="own_run_setting",
            on_click=state.change_scenario,
            args=(lambda now: _with_setting(now, execution),),
            help="Sets the scenario's GPUs, batch and datatype to those of your run.",
        )


def _with_setting(scenario: Scenario, execution: Mapping[str, Any]) -> Scenario:
    return altered(
        scenario,
        num_procs=int(execution["num_procs"]),
        max_batch_size=int(execution["batch_size"]),
        datatype=str(execution["datatype"]),
    )


def _place_words(stands: Standing) -> str:
    """Return throughput and place of a run in Markdown, or why it does not run."""
    row = stands.row
    if not stands.runs:
        return f"**It does not run there.** {literal(str(row['reason_text']))}"
    rate = f"**{literal(format_value('sample_rate', row['sample_rate']))}**"
    rate += f", {literal(format_value('total_time', row['total_time']))} a step"
    if stands.faster is None or stands.feasible is None:
        return f"{rate}; Map counts its rank once all executions are evaluated."
    return f"{rate}, {placed(stands.faster, stands.feasible)}."


def _offer_framework(stands: Standing, framework: str) -> None:
    """Draw the button that limits the scenario to executions that the framework can start."""
    title = FRAMEWORKS[framework].title
    role = "recommended" if stands.target is None else stands.target.role
    with st.container(horizontal=True, gap="small", vertical_alignment="center"):
        st.caption(f"{title} cannot start the {role} execution.", width="content")
        st.button(
            f"Only what {title} runs",
            icon=":material/filter_alt:",
            type="tertiary",
            key="own_run_framework",
            on_click=state.change_scenario,
            args=(lambda now: altered(now, framework=framework),),
            help="Limits the scenario to executions that it starts, on all pages.",
        )


def draw_standing(stands: Standing, flags: Sequence[Sequence[FlagChange]], most: int | None = None) -> None:
    """Draw the place of a run, its distance to the execution that its steps lead to, and the steps.

    Args:
        stands: place of the run.
        flags: that change with each step [steps].
        most: flags of a step that are listed; all if None.
    """
    told = [_place_words(stands), literal(describe_distance(stands))]
    if stands.target is not None and stands.target.remark:
        told.insert(1, literal(stands.target.remark))
    summary = describe_steps(stands, flags)
    st.markdown(" ".join(filter(None, (*told, f"**{literal(summary)}**" if summary else ""))))
    if not stands.steps:
        return
    lines = _steps_markdown(stands, flags, most)
    if most is not None and is_narrow():
        with st.expander(counted(len(stands.steps), "step"), key="own_run_steps"):
            st.caption(lines)
    else:
        st.caption(lines)


def _steps_markdown(stands: Standing, flags: Sequence[Sequence[FlagChange]], most: int | None) -> str:
    """Return the steps as a list in Markdown: gain, changes, and flags."""
    lines = []
    for step, changed in zip(stands.steps, flags, strict=True):
        gain = "makes it run" if step.gain == float("inf") else signed_percent(step.gain)
        shown = changed if most is None else changed[:most]
        more = f" and {len(changed) - len(shown)} more" if len(changed) > len(shown) else ""
        words = "".join(f" `{str(each).replace('`', '')}`" for each in shown)
        lines.append(f"1. **{gain}**: {literal(', '.join(map(str, step.changes)))}{words and ' ·'}{words}{more}")
    return "\n".join(lines)


def declare_own_run(row: Mapping[str, Any]) -> None:
    """Draw the button that makes an execution a person's own run.

    Args:
        row: fields of the execution by name.
    """
    st.button(
        "This is my run",
        icon=":material/person_pin_circle:",
        type="tertiary",
        key="own_run_declare",
        on_click=_declare,
        args=(row,),
        help="Keeps it on all pages and in the link, with its place and the steps to a faster one.",
    )


def _declare(row: Mapping[str, Any]) -> None:
    state.set_url_values({**own_run_parameters(row, None), "own": str(int(row["id"]))})
