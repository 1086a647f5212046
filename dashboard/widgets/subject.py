"""Execution that a page is about: the selected one, else that of the selected cell, else that of all cells."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import pandas as pd
import streamlit as st

from dashboard.link import state
from dashboard.link.figures import FiguresView
from dashboard.link.shared import SharedView
from dashboard.queries.accuracy import fit_sentence
from dashboard.queries.executions import evaluated
from dashboard.queries.figures import choose_execution, choose_in_cell, role_words
from dashboard.queries.tie_breaking import plainest
from dashboard.widgets.recommended import require_figures
from dashboard.words.markdown import literal
from engine import Exploration
from engine.recommendation import ShownExecution

__all__ = ["Subject", "refusal", "subject"]


@dataclass(frozen=True, slots=True)
class Subject:
    """An execution to show, and why it is this one."""

    row: dict[str, Any]
    """Id, fields, outcome and statistics. An execution that memory alone keeps from running has statistics too."""
    why: str
    """"selected", "your execution", "recommended", "recommended of its cell", "fastest of its cell" or
    "fastest of all"."""
    remark: str = ""
    """Reason for showing another execution than the one that the choice of figures asks for; empty otherwise."""

    @property
    def runs(self) -> bool:
        """True if the execution is feasible."""
        return bool(self.row["status"] == "ok")

    @property
    def has_figures(self) -> bool:
        """True if the execution has statistics to show besides the reason why it does not run."""
        return not pd.isna(self.row["total_time"])

    @property
    def id(self) -> int:
        """Id of the execution."""
        return int(self.row["id"])


def subject(exploration: Exploration, shared: SharedView, figures: FiguresView, key: str) -> Subject | None:
    """Returns the execution that the page is about; None when nothing is selected and nothing is feasible.

    Stops the page with the choice of the fastest while the recommendation is worked out.

    shared: the selection. figures: the choice of the execution that is shown without a selected one. key: of the page's
    widgets.
    """
    chosen = shared.id
    if chosen is not None:
        why = "your execution" if chosen == shared.own else "selected"
        return Subject(evaluated(exploration, exploration.key, chosen), why)
    cell = shared.cell
    if cell is not None:
        cells = exploration.by_cell()
        here = cells[(cells["tensor_par"] == cell[0]) & (cells["pipeline_par"] == cell[1]) & (cells["feasible"] > 0)]
        if len(here):
            require_figures([exploration], key, figures, cell)
            best = int(here.sort_values("value", ascending=False, kind="stable")["id"].iloc[0])
            fastest = partial(_standing_for, exploration, best)
            of_cell = choose_in_cell(exploration, figures.question, cell, fastest).shown
            return None if of_cell is None else _as_subject(of_cell, "of its cell")
    require_figures([exploration], key, figures)
    of_all = choose_execution(exploration, figures.question).shown
    return None if of_all is None else _as_subject(of_all, "of all")


def _as_subject(shown: ShownExecution, of: str) -> Subject:
    return Subject({str(name): value for name, value in shown.execution.items()}, role_words(shown, of), shown.remark)


def _standing_for(exploration: Exploration, best: int) -> dict[str, Any]:
    """The plainest of the executions that tie exactly with the best of a cell."""
    return evaluated(exploration, exploration.key, plainest(exploration, exploration.key, best, "sample_rate").id)


def refusal(exploration: Exploration, chosen: Subject) -> None:
    """Says why a selected execution does not run, and offers to clear the selection."""
    if chosen.runs:
        return
    text, here, button = st.columns([5, 1, 1], vertical_alignment="center")
    why = literal(str(chosen.row["reason_text"]))
    may_fit = fit_sentence(exploration.scenario, chosen.row)
    runs = "is predicted not to run" if may_fit else "does not run"
    text.warning(f"Execution {chosen.id:,} {runs}. {why} {may_fit}".rstrip(), icon=":material/block:")
    cells = exploration.by_cell()
    own = [cells[name] == chosen.row[name] for name in ("tensor_par", "pipeline_par")]
    here.button(
        "Show its cell",
        on_click=state.select,
        args=(None,),
        key="subject_cell",
        width="stretch",
        disabled=not (cells.loc[own[0] & own[1], "feasible"] > 0).any(),
    )
    button.button(
        "Clear selection",
        icon=":material/close:",
        on_click=state.reset_selection,
        key="subject_best",
        width="stretch",
        disabled=exploration.feasible == 0,
    )
