"""Opening a file of a scenario, comparison or co-design study, or a launch configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from dashboard.link import page_links, scenario_parameters
from dashboard.link.comparison import Comparison
from dashboard.link.document_validation import MOST_MEGABYTES, Refused, checked_study, read
from dashboard.pages.scenarios import launch_file
from dashboard.pages.scenarios.studies import open_study
from dashboard.queries import compared_scenarios
from dashboard.queries.document_sheets import key_facts
from dashboard.queries.scenario_edits import scenario_with
from dashboard.widgets import compared_scenarios as compare_scenarios
from dashboard.widgets.clicks import was_clicked
from dashboard.widgets.model_file import ask_sequence
from dashboard.widgets.upload import file_field, read_file
from dashboard.words.markdown import literal
from dashboard.words.numbers import counted
from dashboard.words.scenarios import name_of, sentence_of
from engine import Scenario, launch
from engine.codesign import Study
from engine.questions.documents.explorations import FiguresQuestion
from hardware import System
from models import Model

__all__ = ["opener"]

_FRAMEWORKS = ", ".join(each.title for each in launch.FRAMEWORKS.values())


def opener(scenario: Scenario, figures: FiguresQuestion) -> None:
    """Draws the button that opens a file.

    Args:
        scenario: the one that other pages are about.
        figures: choice of the execution whose figures pages show.
    """
    tip = "A file of a scenario, comparison or study, as Share and Save make them, or a launch script of yours."
    with st.popover("Open a file", icon=":material/upload_file:", help=tip):
        file = file_field(
            f"Scenario, comparison, study or launch configuration, up to {MOST_MEGABYTES} MB",
            ["json", *launch_file.ENDINGS],
            "scenarios_upload",
            MOST_MEGABYTES,
            help="JSON with model, system and limits of each scenario; config.json of Hugging Face; or a script, "
            f"recipe or configuration of {_FRAMEWORKS}, which is placed on the system above. It is checked before "
            "anything is done with it, and nothing in it is run.",
        )
        if file is None:
            _draw_paste_field(scenario, figures)
            return
        ending = file.name.lower().rpartition(".")[2]
        _draw_file(file.name, file.getvalue(), scenario, figures, can_be_document=ending not in launch_file.ENDINGS)


def _draw_paste_field(scenario: Scenario, figures: FiguresQuestion) -> None:
    """Draw the field for a pasted command or configuration, and the content of it."""
    text = st.text_area(
        "Or paste a command line or configuration",
        key="scenarios_pasted",
        height=120,
        max_chars=MOST_MEGABYTES * 1_000_000,
        placeholder="torchrun ... pretrain_gpt.py --tensor-model-parallel-size 4",
    )
    if not text or not text.strip():
        return
    _draw_file("The pasted text", text.encode(), scenario, figures, can_be_document=text.lstrip().startswith("{"))


def _draw_file(
    name: str, content: bytes, scenario: Scenario, figures: FiguresQuestion, *, can_be_document: bool
) -> None:
    """Draw the content of a file, and the button that opens it."""
    try:
        found = read_file(_read_content, name, content, can_be_document)
        if isinstance(found, launch.LaunchReading):
            link = launch_file.draw(name, content, found, scenario, figures)
            if link is not None:
                _draw_open_button("explore", link)
        else:
            _draw_document(Study.from_document(found, name) if isinstance(found, dict) else found, scenario)
    except Refused as problem:
        st.error(literal(str(problem)), icon=":material/error:")


def _read_content(
    name: str, content: bytes, can_be_document: bool
) -> launch.LaunchReading | Scenario | Comparison | Model | System | dict[str, Any]:
    """Return the content of a launch configuration or a document; for a study its checked document, because a pickled
    study holds its models and systems whole.
    """
    reading = launch_file.reading_of(name, content, can_be_document=can_be_document)
    if reading is not None:
        return reading
    found = read(content, name)
    return checked_study(content, name) if isinstance(found, Study) else found


def _draw_document(found: Scenario | Comparison | Study | Model | System, scenario: Scenario) -> None:
    """Draw the content of one of our documents, a model or a system, and the button that opens it. Raises `Refused`."""
    if isinstance(found, Scenario):
        _draw_scenario(scenario_parameters.carried(found))
    elif isinstance(found, Comparison):
        _draw_comparison(found)
    elif isinstance(found, Study):
        open_study(found)
    else:
        _draw_part(found, scenario)


def _draw_part(found: Model | System, scenario: Scenario) -> None:
    """Draw a model (such as a config.json of Hugging Face) or a system, to replace the one in the scenario above."""
    noun = "model" if isinstance(found, Model) else "system"
    if isinstance(found, Model):
        found = ask_sequence(found, f"scenarios_upload_sequence_{found.name}")
    named = launch.named_shape(launch.shape_of(found)) if isinstance(found, Model) and found.layers is None else None
    known = f"; {named} of the library has the same shape" if named not in (None, found.name) else ""
    st.markdown(f"**{literal(found.title or found.name)}**")
    st.caption(literal(" · ".join(f"{label} {value}" for label, value in key_facts(found))))
    st.caption(
        literal(
            f"A {noun}, without a training configuration{known}. It replaces the "
            f"{noun} of the scenario above; the Library keeps it."
        )
    )
    if found.notes:
        st.caption(literal(" ".join(found.notes)))
    _draw_open_button("explore", scenario_parameters.parameters_of(scenario_with(scenario, found)))


def _draw_scenario(found: Scenario) -> None:
    st.markdown(f"**{literal(name_of(found))}**")
    st.caption(literal(_describe_scenario(found)))
    _draw_open_button("explore", scenario_parameters.parameters_of(found))


def _draw_comparison(found: Comparison) -> None:
    """Draw the scenarios of a comparison. Raises `Refused` for a comparison that the page cannot show."""
    parameters = compare_scenarios.parameters_of(found)
    first = found.scenarios[0]
    for member in compare_scenarios.members_of(found):
        name, more = compared_scenarios.told(member, first)
        with st.container(gap=None):
            st.markdown(f"**{member.letter}** · {literal(name)}")
            st.caption(literal(f"{more} · {counted(member.scenario.space.total, 'execution')}"))
    _draw_open_button("compare", {**parameters, **scenario_parameters.parameters_of(first)})


def _describe_scenario(scenario: Scenario) -> str:
    return f"{sentence_of(scenario)} · {counted(scenario.space.total, 'execution')}"


def _draw_open_button(page: str, parameters: Mapping[str, str]) -> None:
    """Draw the button that shows the opened scenario. parameters: of the link, one step of the history."""
    if was_clicked("Open it", type="primary", key="scenarios_open_file", icon=":material/open_in_full:"):
        if page == "compare":
            compare_scenarios.forget()
        st.switch_page(page_links.target(page), query_params=parameters)
