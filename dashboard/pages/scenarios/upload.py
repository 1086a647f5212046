"""Opening a file of a scenario, of a comparison of several or of a co-design study that somebody sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from dashboard.link import page_links, scenario_parameters, state
from dashboard.link.comparison import Comparison
from dashboard.link.document_validation import MOST_MEGABYTES, Refused, checked_study, read
from dashboard.pages.scenarios import launch_file
from dashboard.pages.scenarios.studies import open_study
from dashboard.queries import compared_scenarios
from dashboard.queries.document_sheets import key_facts
from dashboard.queries.scenario_edits import scenario_with
from dashboard.widgets import compared_scenarios as compare_scenarios
from dashboard.widgets.upload import file_field, read_file
from dashboard.words.markdown import literal
from dashboard.words.numbers import counted
from dashboard.words.scenarios import name_of, sentence_of
from engine import Scenario, launch
from engine.codesign import Study
from hardware import System
from models import Model

__all__ = ["opener"]

_FRAMEWORKS = ", ".join(each.title for each in launch.FRAMEWORKS.values())


def opener() -> None:
    """Draws the button that opens a file."""
    tip = "A file of a scenario, comparison or study, as Share and Save make them, or a launch script of yours."
    with st.popover("Open a file", icon=":material/upload_file:", help=tip):
        file = file_field(
            f"Scenario, comparison, study or launch configuration, up to {MOST_MEGABYTES} MB",
            ["json", *launch_file.ENDINGS], "scenarios_upload", MOST_MEGABYTES,
            help="JSON with model, system and limits of each scenario; config.json of Hugging Face; or a script, "
            f"recipe or configuration of {_FRAMEWORKS}, which is placed on the system above. It is checked before "
            "anything is done with it, and nothing in it is run.",
        )  # fmt: skip
        if file is None:
            _pasted()
            return
        ending = file.name.lower().rpartition(".")[2]
        _opened(file.name, file.getvalue(), can_be_document=ending not in launch_file.ENDINGS)


def _pasted() -> None:
    """Draws the field for a command or configuration that is no file yet, and what stands in it."""
    text = st.text_area(
        "Or paste a command line or configuration", key="scenarios_pasted", height=120,
        max_chars=MOST_MEGABYTES * 1_000_000, placeholder="torchrun ... pretrain_gpt.py --tensor-model-parallel-size 4",
    )  # fmt: skip
    if not text or not text.strip():
        return
    _opened("What was pasted", text.encode(), can_be_document=text.lstrip().startswith("{"))


def _opened(name: str, content: bytes, *, can_be_document: bool) -> None:
    """Draws what a file is, and the button that opens it."""
    try:
        found = read_file(_found, name, content, can_be_document)
        if isinstance(found, launch.Reading):
            link = launch_file.draw(name, content, found)
            if link is not None:
                _open("explore", link)
        else:
            _document(Study.from_document(found, name) if isinstance(found, dict) else found)
    except Refused as problem:
        st.error(literal(str(problem)), icon=":material/error:")


def _found(
    name: str, content: bytes, can_be_document: bool
) -> launch.Reading | Scenario | Comparison | Model | System | dict[str, Any]:
    """Returns what a launch configuration says, or what a document describes; of a study its checked document, for a
    study that is pickled holds its models and systems whole."""
    reading = launch_file.reading_of(name, content, can_be_document=can_be_document)
    if reading is not None:
        return reading
    found = read(content, name)
    return checked_study(content, name) if isinstance(found, Study) else found


def _document(found: Scenario | Comparison | Study | Model | System) -> None:
    """Draws what a document of ours, or of a model or system, is, and the button that opens it. Raises `Refused`."""
    if isinstance(found, Scenario):
        _scenario(scenario_parameters.carried(found))
    elif isinstance(found, Comparison):
        _comparison(found)
    elif isinstance(found, Study):
        open_study(found)
    else:
        _thing(found)


def _thing(found: Model | System) -> None:
    """A model, as a config.json of Hugging Face is one, or a system, which takes its place in the scenario above."""
    noun = "model" if isinstance(found, Model) else "system"
    named = launch.named_shape(launch.shape_of(found)) if isinstance(found, Model) else None
    known = f"; {named} of the library has the same shape" if named not in (None, found.name) else ""
    st.markdown(f"**{literal(found.title or found.name)}**")
    st.caption(literal(" · ".join(f"{label} {value}" for label, value in key_facts(found))))
    st.caption(literal(f"A {noun}, which says nothing of how anything is trained{known}. It opens in place of the "
                       f"{noun} of the scenario above; the Library keeps it."))  # fmt: skip
    _open("explore", scenario_parameters.parameters_of(scenario_with(state.current_scenario(), found)))


def _scenario(found: Scenario) -> None:
    st.markdown(f"**{literal(name_of(found))}**")
    st.caption(literal(_more(found)))
    _open("explore", scenario_parameters.parameters_of(found))


def _comparison(found: Comparison) -> None:
    """What would be compared. Raises `Refused` for what no page can show."""
    parameters = compare_scenarios.parameters_of(found)
    first = found.scenarios[0]
    for member in compare_scenarios.members_of(found):
        name, more = compared_scenarios.told(member, first)
        with st.container(gap=None):
            st.markdown(f"**{member.letter}** · {literal(name)}")
            st.caption(literal(f"{more} · {counted(member.scenario.space.total, 'execution')}"))
    _open("compare", {**parameters, **scenario_parameters.parameters_of(first)})


def _more(scenario: Scenario) -> str:
    return f"{sentence_of(scenario)} · {counted(scenario.space.total, 'execution')}"


def _open(page: str, parameters: Mapping[str, str]) -> None:
    """Draws the button that shows what was opened. parameters: of a link to it, followed in one step of the history."""
    if st.button("Open it", type="primary", key="scenarios_open_file", icon=":material/open_in_full:"):
        if page == "compare":
            compare_scenarios.forget()
        st.switch_page(page_links.target(page), query_params=parameters)
