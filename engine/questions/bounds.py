"""Bounds of one question, and its reports of progress and of the end of its time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from engine.questions.errors import QuestionError

if TYPE_CHECKING:
    from engine.exploration.run import Progress
    from engine.scenarios.scenario import Scenario

__all__ = ["LARGEST_SPACE", "LONGEST_SECONDS", "Bounds", "Context"]

LARGEST_SPACE: Final = 500_000_000
"""Executions of a space that are explored on request."""
LONGEST_SECONDS: Final = 600.0
"""Time after which a question is given up [s]."""
MOST_BATCHES: Final = 2_000
"""Batch sizes that one scenario may try."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of one question."""

    largest_space: int = LARGEST_SPACE
    """Executions that a space may have."""
    longest_seconds: float = LONGEST_SECONDS
    """Time after which it is given up [s]."""
    memory_gib: float = 8.0
    """Memory of the process that answers [GiB], where the system can bound it."""
    most_points: int = 2_000
    """Points that a co-design study may have."""
    most_rows: int = 100
    """Executions of an answer."""
    rows_kept: int = 12_000_000
    """Feasible executions that are kept while they are sorted; some 2 GiB."""
    document_bytes: int = 1_000_000
    """Largest document that is read [bytes]; real ones have some thousands."""

    def searchable(self, scenario: Scenario) -> Scenario:
        """Return the scenario, if it is not too large.

        Args:
            scenario: scenario to explore or search.

        Raises `QuestionError` if its space has too many executions, `engine.SpaceError` if it has no space.
        """
        batches = scenario.limits.get("batch_size")
        if isinstance(batches, dict):
            tried = min(batches["max"], scenario.max_batch_size) - batches["min"] + 1
        else:
            tried = len(batches or ())
        if tried > MOST_BATCHES:
            raise QuestionError(f"The limits ask for {tried:,} batch sizes; up to {MOST_BATCHES:,} can be tried.")
        total = scenario.space.total
        if total > self.largest_space:
            raise QuestionError(
                f"The space has {total:,} executions; up to {self.largest_space:,} are searched here. "
                "Limit some fields to make it smaller."
            )
        return scenario

    def listable(self, rows: int) -> int:
        """Return the number of executions of an answer, if it is not too large.

        Args:
            rows: executions that are asked for.

        Raises `QuestionError` if they are more than an answer has here.
        """
        if rows > self.most_rows:
            raise QuestionError(f"top is {rows:,}; an answer has up to {self.most_rows:,} executions here.")
        return rows


def _ignore_progress(share: float, doing: str) -> None: ...


def _never_cancelled() -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Context:
    """Inputs of a verb besides its question."""

    bounds: Bounds = field(default_factory=Bounds)
    tell: Callable[[float, str], None] = _ignore_progress
    """Called with the share that is done, 0 to 1, and the current step."""
    stops: Callable[[], bool] = _never_cancelled
    """Returns whether to stop; the running work then raises, and its answer is dropped."""

    def progress(self, found: Progress) -> None:
        """Passes on how far a search or an exploration is."""
        self.tell(found.done / found.total if found.total else 1.0, f"{found.done:,} of {found.total:,} executions")
