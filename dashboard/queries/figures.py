"""Execution whose figures pages show: the recommended or the fastest, of all, of filtered ones, or of a cell.

Every page asks here, so that the same choice shows the same execution on all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYetError
from typing import Any, Final, NamedTuple

from dashboard.queries.executions import evaluated
from dashboard.queries.explorations import Where, in_cell
from dashboard.queries.recommendation import (
    CONTENDERS,
    Advice,
    UnfinishedSearchError,
    begin_advice,
    expected_advice,
    known_advice,
)
from dashboard.queries.tie_breaking import best_of
from engine import Exploration, Scenario
from engine.questions.documents.explorations import FiguresQuestion
from engine.recommendation import ShownExecution, choose_shown

__all__ = [
    "WORKING",
    "ChosenExecution",
    "begin_choosing",
    "choose_before_exploring",
    "choose_execution",
    "choose_in_cell",
    "is_ready",
    "role_words",
    "wait_for_advice",
]

WORKING: Final = "The recommendation is being worked out."
Cell = tuple[int, int]


class ChosenExecution(NamedTuple):
    """Execution whose figures are shown, as far as it is known."""

    shown: ShownExecution | None
    """None if nothing runs, and while the recommendation is worked out."""
    is_pending: bool
    """True while the recommendation is worked out."""

    @property
    def cell(self) -> Cell | None:
        """Tensor and pipeline parallel degrees of the execution."""
        if self.shown is None:
            return None
        return int(self.shown.execution["tensor_par"]), int(self.shown.execution["pipeline_par"])


def role_words(shown: ShownExecution, of: str = "of all") -> str:
    """Returns the role of an execution in few words: "recommended", "recommended of its cell", "fastest of all".

    of: executions among which it was chosen.
    """
    if shown.figures_of == "recommended":
        return "recommended" if of == "of all" else f"recommended {of}"
    return f"fastest {of}"


def choose_execution(
    exploration: Exploration,
    asked: FiguresQuestion,
    where: Where = (),
    *,
    fastest: Callable[[], Mapping[str, Any] | None] | None = None,
    patience_s: float | None = None,
) -> ChosenExecution:
    """Returns the execution whose figures are shown, with all statistics.

    Args:
        asked: the choice, and the terms of the recommendation.
        where: conditions that executions must meet.
        fastest: returns the fastest execution that meets them, of equal ones the simplest; of all executions if None.
        patience_s: time to wait for the recommendation; 0 takes only a known one, None waits until it is there.
    """
    if not exploration.feasible:
        return ChosenExecution(None, False)
    own = None
    if asked.figures_of == "recommended":
        found = wait_for_advice(exploration, asked, where, CONTENDERS, patience_s)
        if found is None:
            return ChosenExecution(None, True)
        own = found.execution
    return _chosen(exploration, asked, own, fastest or (lambda: best_of(exploration)))


def choose_before_exploring(scenario: Scenario, asked: FiguresQuestion) -> tuple[ChosenExecution, float] | None:
    """Returns the execution whose figures are shown, and the throughput of the fastest [samples/s], as soon as a search
    of the space knows them; None before.

    Args:
        scenario: whose space need not be explored yet.
        asked: as of `choose_execution`.
    """
    found = expected_advice(scenario, asked)
    if found is None or found.plainest is None or found.fastest is None:
        return None
    own = found.execution if asked.figures_of == "recommended" else None
    recommended = None if own is None else evaluated(scenario, scenario.key, int(own["id"]))
    fastest = None if recommended is not None else evaluated(scenario, scenario.key, found.plainest)
    shown = choose_shown(asked.figures_of, recommended, fastest)
    return ChosenExecution(shown, False), float(found.fastest["sample_rate"])


def choose_in_cell(
    exploration: Exploration,
    asked: FiguresQuestion,
    cell: Cell,
    fastest: Callable[[], Mapping[str, Any] | None],
    where: Where = (),
    *,
    patience_s: float | None = None,
) -> ChosenExecution:
    """Returns the execution of a cell whose figures are shown: the recommended of all if the cell has it, otherwise
    the recommended of the cell's executions, or the cell's fastest.

    Args:
        cell: tensor and pipeline parallel degrees.
        fastest: returns the cell's fastest execution, of equal ones the simplest.
        where: conditions that executions must meet beyond the cell.
        patience_s: as of `choose_execution`.
    """
    own = None
    if asked.figures_of == "recommended":
        of_all = wait_for_advice(exploration, asked, where, CONTENDERS, patience_s)
        if of_all is None:
            return ChosenExecution(None, True)
        own = of_all.execution
        if own is None or (int(own["tensor_par"]), int(own["pipeline_par"])) != cell:
            here = wait_for_advice(exploration, asked, (*where, *in_cell(cell)), 0, patience_s)
            if here is None:
                return ChosenExecution(None, True)
            own = here.execution
    return _chosen(exploration, asked, own, fastest)


def begin_choosing(exploration: Exploration, asked: FiguresQuestion, where: Where = ()) -> None:
    """Begin to work out the recommendation in the background if its figures are asked for. See `choose_execution`."""
    if asked.figures_of == "recommended" and exploration.feasible:
        begin_advice(exploration, asked, where)


def is_ready(
    exploration: Exploration,
    asked: FiguresQuestion,
    where: Where = (),
    cell: Cell | None = None,
    *,
    patience_s: float | None = 0.0,
) -> bool:
    """Returns whether an execution is known, so that choosing it takes no time.

    Args:
        asked: as of `choose_execution`.
        where: conditions that executions must meet.
        cell: tensor and pipeline parallel degrees of the execution; None for that of all cells.
        patience_s: as of `choose_execution`.

    Raises what working out the recommendation raised.
    """
    if cell is None:
        return not choose_execution(exploration, asked, where, fastest=lambda: None, patience_s=patience_s).is_pending
    return not choose_in_cell(exploration, asked, cell, lambda: None, where, patience_s=patience_s).is_pending


def _chosen(
    exploration: Exploration,
    asked: FiguresQuestion,
    own: Mapping[str, Any] | None,
    fastest: Callable[[], Mapping[str, Any] | None],
) -> ChosenExecution:
    recommended = None if own is None else evaluated(exploration, exploration.key, int(own["id"]))
    shown = choose_shown(asked.figures_of, recommended, None if recommended is not None else fastest())
    return ChosenExecution(shown, False)


def wait_for_advice(
    exploration: Exploration,
    asked: FiguresQuestion,
    where: Where = (),
    contenders: int = CONTENDERS,
    patience_s: float | None = None,
) -> Advice | None:
    """Returns a recommendation, whichever figures are shown; None if it is not known in time.

    Args:
        asked: the terms.
        where: conditions that executions must meet.
        contenders: number of the best with their reasons.
        patience_s: as of `choose_execution`.
    """
    if patience_s == 0.0:
        return known_advice(exploration, asked, where, contenders)
    for _ in range(2):  # a search that was given up is followed by a reading of the rows
        begun: Future[Advice] = begin_advice(exploration, asked, where, contenders)
        try:
            return begun.result(patience_s)
        except NotYetError:
            return None
        except UnfinishedSearchError:
            continue
    return None
