"""A launch configuration as a scenario: its content, its place on the current system, and the way to the best."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pandas as pd
import streamlit as st

from dashboard.charts.elements import markup
from dashboard.compat.caches import remembered
from dashboard.link import scenario_parameters
from dashboard.link.catalogue import list_system_titles, system_of, systems
from dashboard.link.document_validation import PROBLEMS, Refused, sentence
from dashboard.link.own_run import own_run_parameters
from dashboard.queries.scenario_edits import scenario_with
from dashboard.widgets.own_run import draw_standing
from dashboard.widgets.upload import read_file
from dashboard.words.executions import choices
from dashboard.words.markdown import literal
from dashboard.words.numbers import count
from dashboard.words.scenarios import system_name
from engine import Scenario, launch
from engine.columns import ALL_FIELDS, by_name, called
from engine.columns.fields import CHOICE_LABELS
from engine.executions.execution_names import execution_name
from engine.launch import LaunchReading, Standing
from engine.launch.shapes import SHAPE_WORDS
from engine.questions.documents.executions import ReadingTermsQuestion, StandingQuestion
from engine.questions.documents.explorations import FiguresQuestion
from engine.questions.executions import reading_options
from engine.questions.standings import find_standing
from hardware import calibration_document
from hardware import to_document as system_document
from models import to_document

__all__ = ["ENDINGS", "draw", "link_parameters", "reading_of"]

ENDINGS: Final = ("sh", "slurm", "sbatch", "txt", "py", "yaml", "yml", "toml")
"""Endings of files that can only be launch configurations; JSON may be one, too."""
_LABELS: Final = {column.name: called(column.name) for column in ALL_FIELDS}
_RECIPE: Final = "launch_recipe"
"""Session key of the recipe chosen in a file."""
_GPU_TYPE: Final = re.compile(r"\bgpu:([a-z][a-z0-9]{1,20})\b")
"""Slurm's request for GPUs of a type: --gres=gpu:h100:8."""
_MOST_SENTENCES: Final = 12
"""Most sentences of a list that are shown."""


def reading_of(name: str, content: bytes, *, can_be_document: bool) -> LaunchReading | None:
    """Returns the content of a launch configuration; None if the file is not one and may be a document.

    Args:
        name: name of the file.
        content: content of the file.
        can_be_document: True if it may be a document of a scenario or model instead.

    Raises `LaunchError` if it can only be a launch configuration, and is invalid.
    """
    try:
        return launch.read_text(content, name)
    except launch.LaunchError:
        if can_be_document:
            return None
        raise


def draw(
    name: str, content: bytes, reading: LaunchReading, now: Scenario, figures: FiguresQuestion
) -> Mapping[str, str] | None:
    """Draws a configuration's content and its place; returns the link parameters to it, None if it is not enough for a
    scenario.

    Args:
        name: name of the file.
        content: content of the file; it is read again in a bounded process when the user fills in an open field.
        reading: the file as read without the user's answers.
        now: the scenario that other pages are about, whose limits, framework and cost model are kept.
        figures: choice of the execution that the steps lead to.

    Raises `Refused` with one sentence.
    """
    try:
        reading = _read_with_answers(content, name, {}, None) if _choose_recipe(reading) else reading
        takes_model = _describes_no_model(reading)
        with st.container(horizontal=True, gap="small"):
            now = _ask_system(content, now)
            stated, problem = _ask_open_fields(name, content, takes_model, now)
        reading = _read_with_answers(content, name, stated, now if takes_model else None)
    except launch.LaunchError as error:
        raise Refused(str(error)) from None
    _draw_reading_head(reading)
    if takes_model:
        title_of_model = now.model.title or now.model.name
        st.caption(literal(f"The file does not describe its model; {title_of_model} of the scenario above is taken."))
    stands, told = None, ""
    fault: Exception | None = problem
    if fault is None:
        try:
            recipe = st.session_state.get(_RECIPE)
            key = f"{now.key} {figures!r}"
            stands = _find_standing(
                content, name, recipe, tuple(stated.items()), takes_model, reading, now, figures, key
            )
            told = launch.assumed_sentence(launch.settle(reading)[1])
        except (*PROBLEMS, launch.LaunchError) as error:
            fault = error
    if stands is None:
        assert fault is not None
        st.warning(literal(sentence(fault)), icon=":material/help:")
        _draw_reading_lists(reading, name)
        return None
    if told:
        st.caption(literal(told))
    _draw_standing(stands, reading.framework)
    _draw_reading_lists(reading, name)
    return link_parameters(stands, reading.framework)


def _describes_no_model(reading: LaunchReading) -> bool:
    return "layers" not in reading.model or any(name in SHAPE_WORDS for name in reading.open_fields)


def _read_with_answers(content: bytes, name: str, stated: Mapping[str, Any], now: Scenario | None) -> LaunchReading:
    """Return the file as read with the user's answers; `now` supplies the model if the file has none."""
    model = None if now is None else to_document(now.model)
    terms = ReadingTermsQuestion(recipe=st.session_state.get(_RECIPE), stated=dict(stated), model=model)
    return read_file(_read_stated, content, name, terms)


def _read_stated(content: bytes, name: str, terms: ReadingTermsQuestion) -> LaunchReading:
    return launch.read_text(content, name, **reading_options(terms))


def _choose_recipe(reading: LaunchReading) -> str | None:
    """Draw the choice of a recipe, if the file has several; return its name."""
    if not reading.recipes:
        st.session_state.pop(_RECIPE, None)
        return None
    if st.session_state.get(_RECIPE) not in reading.recipes:
        read = str(reading.flags.get("--recipe"))
        st.session_state[_RECIPE] = read if read in reading.recipes else reading.recipes[0]
    return str(st.selectbox("Recipe", reading.recipes, key=_RECIPE))


def _ask_open_fields(
    name: str, content: bytes, takes_model: bool, now: Scenario
) -> tuple[dict[str, Any], launch.OpenFieldsError | None]:
    """Draw a field for each open field of the file; return the answers, and the error of fields that are still open."""
    stated: dict[str, Any] = {}
    drawn: set[str] = set()
    while True:
        try:
            launch.settle(_read_with_answers(content, name, stated, now if takes_model else None))
        except launch.OpenFieldsError as problem:
            fields = [each for each in problem.fields if each not in drawn and each != "model"]
            if not fields:
                return stated, problem
            for field in fields:
                drawn.add(field)
                value = _draw_field(field)
                if value is not None:
                    stated[field] = value
        except (launch.LaunchError, Refused):
            return stated, None  # reported when the standing is computed
        else:
            return stated, None


def _ask_system(content: bytes, now: Scenario) -> Scenario:
    """Draw the choice of the GPU type; return the scenario on it. First shown is the one that the file names, or else
    the scenario's."""
    names = list(dict.fromkeys((now.system.name, *systems())))
    named = _named_system(content)
    titles = list_system_titles() | {now.system.name: system_name(now.system)}
    chosen = st.selectbox(
        "GPU type",
        names,
        names.index(named) if named in names else 0,
        key="launch_gpu_type",
        width=300,
        format_func=lambda each: titles.get(each, each),
        help="The GPUs that it runs on. The file names them only if its batch system does.",
    )
    return now if chosen == now.system.name else scenario_with(now, system_of(chosen))


def _named_system(content: bytes) -> str | None:
    """Return the system of the GPUs that a script asks its batch system for, of several the one on SXM boards with the
    most memory; None if it names none, or different GPUs."""
    found = set(_GPU_TYPE.findall(content.decode("utf-8", "replace").lower()))
    known = [name for name in systems() if any(name.startswith(f"{word}_") for word in found)]
    if len(found) != 1 or not known:
        return None
    return max(known, key=lambda name: ("_sxm" in name, system_of(name).mem1.capacity_gib))


def _draw_field(name: str) -> Any:
    """Draw the input of a field of an execution; return its value, None if it is empty."""
    column = by_name(name)
    key = f"launch_state_{name}"
    if column.dtype == "int64":
        return st.number_input(
            column.label,
            min_value=column.least,
            value=None,
            step=1,
            key=key,
            width=180,
            placeholder="open",
        )
    options = ["off", "on"] if column.dtype == "bool" else [*column.choices] or [*CHOICE_LABELS.get(name, ())]
    chosen = st.selectbox(
        column.label,
        options,
        index=None,
        key=key,
        width=180,
        placeholder="open",
        format_func=lambda word: CHOICE_LABELS.get(name, {}).get(word, word),
    )
    return chosen if column.dtype != "bool" or chosen is None else chosen == "on"


@remembered(16, spinner="Evaluating …")
def _find_standing(
    content: bytes,
    name: str,
    recipe: str | None,
    stated: tuple[tuple[str, Any], ...],
    takes_model: bool,
    _reading: LaunchReading,
    _now: Scenario,
    _figures: FiguresQuestion,
    key: str,
) -> Standing:
    """Return the execution's place on the current system, within the limits of the current scenario; without a model in
    the file, that of the current one."""
    model = launch.network_of(_reading, _now.model if takes_model else None, name.partition(".")[0][:60])
    calibration = None if _now.calibration is None else calibration_document(_now.calibration)
    return find_standing(
        StandingQuestion(
            execution=launch.evaluable(_reading),
            model=to_document(model),
            system=system_document(_now.system),
            cost_model=_now.cost_model,
            calibration=calibration,
            limits=dict(_now.limits),
            attention=_now.attention,
            framework=_reading.framework,
            **_figures.model_dump(),
        )
    )


def link_parameters(stands: Standing, framework: str) -> dict[str, str]:
    """Returns the link parameters of the scenario with the execution as the user's own run, selected if the space has
    it; otherwise its cell is.

    Args:
        stands: place of the execution.
        framework: name of the framework that starts it.
    """
    scenario = scenario_parameters.carried(stands.scenario)
    row = stands.row
    found = {**scenario_parameters.parameters_of(scenario), **own_run_parameters(row, framework)}
    if any(
        (cell.tensor_par, cell.pipeline_par) == (row["tensor_par"], row["pipeline_par"])
        for cell in scenario.space.cells
    ):
        found["cell"] = f"{row['tensor_par']}x{row['pipeline_par']}"
    return found if stands.id is None else {**found, "id": str(stands.id), "own": str(stands.id)}


def _draw_reading_head(reading: LaunchReading) -> None:
    framework = launch.FRAMEWORKS[reading.framework]
    gpus = f"{count(reading.num_procs)} GPUs" if reading.num_procs else "number of GPUs not stated"
    named = launch.named_shape(reading.model)
    of = named or (f"{reading.model['layers']} layers" if "layers" in reading.model else "model not described")
    st.markdown(f"**{reading.title or framework.title}** · {literal(of)} · {gpus}")
    if reading.refused:
        st.warning(literal(f"The framework would not start it: {reading.refused}."), icon=":material/block:")


def _draw_reading_lists(reading: LaunchReading, file: str) -> None:
    """Draw everything that was not read or has no effect, and the source of each value."""
    lists = (
        ("Not specified", [_describe_open_field(reading, each) for each in reading.left]),
        (launch.LIST_TITLES["not_modelled"], reading.not_modelled),
        ("Set, irrelevant to speed", [", ".join(reading.without_effect)] if reading.without_effect else []),
        ("Not read", reading.unread),
        ("Remarks", reading.remarks),
    )
    number = sum(map(len, (sentences for _, sentences in lists)))
    if number:
        with st.expander(f"Left open, not modelled or not read: {number:,}"):
            for heading, sentences in lists:
                _draw_list(heading, sentences)
    with st.expander("Source of each value"):
        rows = launch.origin_rows(reading, file)
        st.dataframe(pd.DataFrame(rows, columns=["Field", "Value", "Source"]), hide_index=True, height=330)


def _describe_open_field(reading: LaunchReading, name: str) -> str:
    """Return the label of an open field, with the expression that sets it from outside."""
    origin = reading.origins.get(name)
    words = f": {origin.words}" if origin is not None and origin.words else ""
    place = f" (line {origin.line})" if words and origin is not None and origin.line else ""
    return f"{_LABELS.get(name, SHAPE_WORDS.get(name, name))}{words}{place}"


def _draw_list(heading: str, sentences: Sequence[str]) -> None:
    sentences = [each for each in sentences if each]
    if not sentences:
        return
    more = len(sentences) - _MOST_SENTENCES
    lines = [f"**{heading}**", "", *(f"- {literal(each)}" for each in sentences[:_MOST_SENTENCES])]
    st.caption("\n".join([*lines, f"- and {more} more"] if more > 0 else lines))


def _draw_standing(stands: Standing, framework: str) -> None:
    """Draw the execution's place, its distance to the recommended one, and the steps to it with their flags."""
    row: Mapping[str, Any] = stands.row
    system = stands.scenario.system
    st.html(markup.head(execution_name(row), f"on {system.title or system.name}"))
    st.caption(literal(" · ".join(f"{name} {value}" for name, value in choices(row, system))))
    if stands.best is None:
        st.markdown("Nothing runs there.")
        return
    draw_standing(stands, launch.flag_changes(stands, framework=framework))
