"""Door of the Co-design page: the study in the link, its computed points, and the question about its designs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import pandas as pd

from dashboard.files.codesign_report import DesignReportQuestion
from dashboard.jobs.codesign_studies import folder_of, so_far
from dashboard.jobs.server import server
from dashboard.link import state
from dashboard.link.fields import LinkField, LinkReader
from dashboard.link.figures import parse_figures
from dashboard.pages.codesign.link import PAGE_NAME, CodesignLink
from dashboard.pages.codesign.narrowing import parse_filters
from dashboard.pages.codesign.studies import parse_study
from engine.codesign import MIX, QUANTITIES, FolderError, Quantity, Results, Study
from engine.questions.documents.codesign import DesignsQuestion
from engine.questions.documents.explorations import FiguresQuestion
from engine.whatif import parameter

__all__ = ["NUMBER", "CodesignView", "DesignAnswers", "parameter_title", "parse"]

ENDS: Final = {"middle": "Middle prices", "low": "Low prices", "high": "High prices"}
NUMBER: Final = "design"
_DESIGN: Final = re.compile("[0-9]{1,15}")


@dataclass(frozen=True, slots=True)
class DesignAnswers:
    """A question about the designs with its answers."""

    found: Results
    question: DesignReportQuestion
    designs: pd.DataFrame
    front: pd.DataFrame
    chosen: int | None
    """Number of the design in the link, or of the best one; None without any."""

    @property
    def up(self) -> Quantity:
        """Quantity to optimise."""
        return self.question.up

    @property
    def of(self) -> str:
        """The mix, or the name of a model."""
        return self.question.of

    @property
    def names(self) -> Mapping[str, str]:
        """Labels of the choices that differ between designs, by name."""
        return self.question.names


@dataclass(frozen=True, slots=True)
class CodesignView:
    """All that the link says of the page."""

    mode: str
    """The theme: "light" or "dark"."""
    fields: Mapping[str, LinkField]
    parameters: Mapping[str, str]
    """Parameters of the page in the link."""
    study: Study | None
    """None with a problem."""
    folder: str = ""
    """Folder of the study's points on this server."""
    found: Results | None = None
    """Computed points; None without any."""
    asked: DesignAnswers | None = None
    """Question about the designs with its answers; None without points."""
    damaged: str = ""
    """Sentence about damaged points, which the next search computes again."""
    problem: str = ""
    """Sentence about a study or a question that is not understood."""
    figures: FiguresQuestion = field(default_factory=FiguresQuestion)
    """Execution whose figures of one design are shown."""


def parse() -> CodesignView:
    """Parse the page's part of the link, and read the points of its study on this server."""
    reader, mode = LinkReader(CodesignLink, PAGE_NAME), state.theme_mode()
    try:
        study = parse_study(reader)
    except ValueError as problem:
        return CodesignView(mode, reader.fields, _parse_parameters(), None, problem=str(problem))
    folder = folder_of(study, server().settings)
    try:
        found = so_far(study, folder)
    except FolderError as problem:
        return CodesignView(mode, reader.fields, _parse_parameters(), study, folder, damaged=str(problem))
    if found is None:
        return CodesignView(mode, reader.fields, _parse_parameters(), study, folder)
    asked = LinkReader(DesignsQuestion, PAGE_NAME)
    try:
        answers = _parse_question(reader, asked, found)
    except ValueError as problem:
        return CodesignView(
            mode, {**reader.fields, **asked.fields}, _parse_parameters(), study, folder, found, problem=str(problem)
        )
    figures = parse_figures().question
    fields = {**reader.fields, **asked.fields}
    return CodesignView(mode, fields, _parse_parameters(), study, folder, found, answers, figures=figures)


def _parse_parameters() -> dict[str, str]:
    """Parse the page's own parameters as they are, once all fields are read."""
    return {name: value for name, value in state.link_parameters().items() if name.startswith(f"{PAGE_NAME}_")}


def _parse_question(
    reader: LinkReader[CodesignLink], asked: LinkReader[DesignsQuestion], found: Results
) -> DesignAnswers:
    """Parse the question about the designs, and answer it."""
    said, study = found.study.document, found.study
    known = {name: one for name, one in QUANTITIES.items() if found.answers(name) and name in found.designs()}
    objectives = [name for name in said.objectives if name in known]
    first = objectives[0] if objectives else next(iter(known))
    second = next((name for name in [*objectives[1:], "usd"] if name != first), "usd")
    words = {name: f"{one.label} [{one.unit}]" if one.unit else one.label for name, one in known.items()}
    # If all quantities are one in several units, only the choices are left for the other axis.
    alone = len({one.rests_on for one in known.values()}) == 1
    choices = _differing_choices(found)
    up = reader.read("up", default=first, options=words)
    rest = choices if alone else {name: text for name, text in words.items() if name != up}
    across = ""
    if rest:
        across = reader.read("across", default=second if second in rest else next(iter(rest)), options=rest)
    of = MIX
    if len(study.models) > 1:
        titles = {MIX: "The mix"} | {model.name: model.title or model.name for model in study.models}
        of = asked.read("of", options=titles)
    at = asked.read("at", options=ENDS)
    has_second = not alone
    pictures = {} if has_second else {"front": "Best of a choice"}
    reader.read("picture", options={**_pictures(), **pictures})
    if len(choices) > 1:
        x = reader.read("x", default=next(iter(choices)), options=choices)
        others = {name: text for name, text in choices.items() if name != x}
        reader.read("y", default=next(iter(others)), options=others)
    reader.read("worth")
    reader.read("beside", pattern=_DESIGN)
    question = DesignReportQuestion(
        known[up],
        known[across] if has_second else None,
        of,
        at,
        choices,
        "" if has_second else across,
        parse_filters({*choices, *known}),
    )
    designs, front = question.designs(found), question.front(found)
    return DesignAnswers(found, question, designs, front, _parse_design(reader, designs, front))


def _pictures() -> Mapping[str, str]:
    return {"front": "Front", "parallel": "All choices", "map": "Two choices"}


def _parse_design(reader: LinkReader[CodesignLink], designs: pd.DataFrame, front: pd.DataFrame) -> int | None:
    """Parse the number of a design; of the best one if the link has none."""
    text = reader.read("design", pattern=_DESIGN)
    if text and (designs[NUMBER] == int(text)).any():
        return int(text)
    return int(front[NUMBER].iloc[0]) if len(front) else None


def _differing_choices(found: Results) -> dict[str, str]:
    """Return the labels of the choices that differ between designs."""
    usual = {"system": "System", "datatype": "Datatype", "processors": "Processors", "batch": "Batch"}
    differing = [str(name) for name in found.choices if name != NUMBER and found.choices[name].nunique() > 1]
    return {name: usual.get(name) or parameter_title(found.study, name) for name in differing}


def parameter_title(study: Study, name: str) -> str:
    """Return the label of a parameter with its unit.

    Args:
        study: whose systems have it.
        name: of the parameter.
    """
    which = parameter(study.scenario(0, 0, 0, 0, 0), name)
    return f"{which.label} [{which.unit}]" if which.unit else which.label
