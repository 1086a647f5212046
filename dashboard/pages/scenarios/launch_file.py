"""A launch configuration as a scenario: what it is, where it stands on the current system, what would change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import streamlit as st

from dashboard.charts.elements import markup
from dashboard.compat.caches import remembered
from dashboard.link import scenario_parameters, state
from dashboard.link.document_validation import PROBLEMS, sentence
from dashboard.words.executions import choices, placed
from dashboard.words.markdown import literal
from dashboard.words.numbers import count, counted, format_value, percent, signed_percent
from engine import Scenario, launch
from engine.columns import ALL_FIELDS, called
from engine.executions.execution_names import execution_name
from engine.launch import Reading, Standing

__all__ = ["ENDINGS", "draw", "parameters", "reading_of"]

ENDINGS: Final = ("sh", "slurm", "sbatch", "txt", "py", "yaml", "yml", "toml")
"""Endings of files that are launch configurations where they are anything; JSON may be one, too."""
_LABELS: Final = {column.name: called(column.name) for column in ALL_FIELDS}
_MOST_SENTENCES: Final = 12
"""Sentences of a list that are shown."""


def reading_of(name: str, content: bytes, *, can_be_document: bool) -> Reading | None:
    """Returns what a launch configuration says; None for what is none and can be a document.

    Args:
        name: of the file.
        content: of the file.
        can_be_document: whether it may be a document of a scenario or model instead.

    Raises `LaunchError` where it can be nothing but a launch configuration.
    """
    try:
        return launch.read_text(content, name)
    except launch.LaunchError:
        if can_be_document:
            return None
        raise


def draw(name: str, content: bytes, reading: Reading) -> Mapping[str, str] | None:
    """Draws what a configuration says and where it stands; returns the parameters of a link to it, None where it is not
    enough for a scenario.

    Args:
        name: of the file.
        content: of the file, by which what was found of it is known again.
        reading: what it says.
    """
    now = state.current_scenario()
    _said(reading)
    try:
        stands = _standing(content, name, reading, now, now.key)
    except (*PROBLEMS, launch.LaunchError) as problem:
        st.warning(literal(sentence(problem)), icon=":material/help:")
        return None
    _stands(stands, reading.framework)
    return parameters(stands)


@remembered(16, spinner="Evaluating …")
def _standing(content: bytes, name: str, _reading: Reading, _now: Scenario, key: str) -> Standing:
    """Where the execution stands on the current system; the model is the configuration's, else the current one."""
    try:
        model = launch.model_of_shape(_reading.model, name.partition(".")[0][:60])
    except launch.LaunchError:
        if _reading.model.get("layers") is not None:
            raise
        model = _now.model
    return launch.standing(_reading.execution, model, _now.system, cost_model=_now.cost_model,
                           calibration=_now.calibration)  # fmt: skip


def parameters(stands: Standing) -> dict[str, str]:
    """Returns the parameters of a link to the scenario with the execution selected and marked as the reader's own, or
    its cell where it has no id."""
    scenario = scenario_parameters.carried(stands.scenario)
    row = stands.row
    found = {**scenario_parameters.parameters_of(scenario), "cell": f"{row['tensor_par']}x{row['pipeline_par']}"}
    return found if stands.id is None else {**found, "id": str(stands.id), "own": str(stands.id)}


def _said(reading: Reading) -> None:
    framework = launch.FRAMEWORKS[reading.framework]
    gpus = f"{count(reading.num_procs)} GPUs" if reading.num_procs else "GPUs not said"
    named = launch.named_shape(reading.model)
    of = named or (f"{reading.model['layers']} layers" if "layers" in reading.model else "model not described")
    st.markdown(f"**{framework.title}** · {literal(of)} · {gpus}")
    if reading.refused:
        st.warning(literal(f"The framework would not start it: {reading.refused}."), icon=":material/block:")
    for heading, sentences in (
        ("Left to other sources", [_LABELS.get(each, each) for each in reading.left]),
        ("Set there, not modelled here", reading.not_modelled),
        ("Not read", reading.unread), ("Remarks", reading.remarks),
    ):  # fmt: skip
        _list(heading, sentences)


def _list(heading: str, sentences: Sequence[str]) -> None:
    if not sentences:
        return
    more = len(sentences) - _MOST_SENTENCES
    lines = [f"**{heading}**", "", *(f"- {literal(each)}" for each in sentences[:_MOST_SENTENCES])]
    st.caption("\n".join([*lines, f"- and {more} more"] if more > 0 else lines))


def _stands(stands: Standing, framework: str) -> None:
    """Its place, its distance to the best, and the way there, with the flags that each step changes."""
    row: Mapping[str, Any] = stands.row
    system = stands.scenario.system
    st.html(markup.head(execution_name(row), f"on {system.title or system.name}"))
    st.caption(literal(" · ".join(f"{name} {value}" for name, value in choices(row, system))))
    best = stands.best
    if not stands.runs:
        st.markdown(f"**It does not run there.** {literal(str(row['reason_text']))}")
    elif best is not None:
        place = "its place is counted on Explore, once all executions are evaluated there"
        if stands.faster is not None and stands.feasible is not None:
            place = placed(stands.faster, stands.feasible)
        st.markdown(f"**{format_value('sample_rate', row['sample_rate'])}**, {place}.")
    if best is None:
        st.markdown("Nothing runs there.")
        return
    if not stands.steps:
        return
    far = "" if stands.distance is None else f", {percent(stands.distance)} more"
    st.markdown(f"The best reaches {format_value('sample_rate', best['sample_rate'])}{far}. What leads there:")
    lines = []
    for step, flags in zip(stands.steps, launch.flag_changes(stands, framework=framework), strict=True):
        gain = "makes it run" if step.gain == float("inf") else signed_percent(step.gain)
        lines.append(f"- **{gain}**: {literal(', '.join(map(str, step.changes)))}")
        if flags:
            lines.append(f"  - {counted(len(flags), 'flag')}: {literal(', '.join(map(str, flags)))}")
    st.caption("\n".join(lines))
