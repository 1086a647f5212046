"""Statistics that are not stored, of all executions of an exploration: evaluated off the page's thread.

The first request starts the evaluation, of all such statistics if there is room; it continues as long as a session
looks at it now and then. Afterwards the rows of the exploration return them like stored ones, for all sessions, until
other explorations displace them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from dashboard.jobs.board import JobBoard
from dashboard.jobs.job import Job, JobKind
from dashboard.jobs.scratch_folders import scratch_folder
from dashboard.jobs.statistics_rows import IDS, evaluate
from dashboard.jobs.turns import turns
from dashboard.jobs.whatif_answers import light
from dashboard.jobs.worker import Worker
from dashboard.words.names import in_sentence
from dashboard.words.numbers import counted
from engine import Exploration, Scenario
from engine.columns import by_name, defined_of
from engine.cost_models.registry import cost_model_of
from engine.executions.arrays import Ints
from engine.exploration.unstored_statistics import add_columns, is_stored
from engine.store import TooManyValuesError
from engine.store.added_columns import AddedWriter

__all__ = ["EvaluationJob", "UnstoredStatistics"]

UNWATCHED: Final = 20.0
"""Time without a look after which an evaluation is given up [s]."""
REMEMBERED: Final = 600.0
"""Time for which it is known that an evaluation was stopped or failed [s]."""
RECENT: Final = 5.0
"""Time for which a session counts as still looking [s]."""


class EvaluationJob(Job):
    """One evaluation on its way, or how it ended."""

    def __init__(
        self, server: UnstoredStatistics, exploration: Exploration, names: Sequence[str], every: Sequence[str]
    ) -> None:
        """names: requested statistics. every: all statistics that are evaluated, the requested ones included."""
        self.names, self.every = tuple(names), tuple(every)
        scenario = exploration.scenario
        model = f"{scenario.model.title or scenario.model.name} on {counted(scenario.num_procs, 'GPU')}"
        super().__init__(
            server.kind,
            " ".join((exploration.key, *names)),
            f"Evaluating {self.figures(first=False)}",
            f"{counted(exploration.feasible, 'execution')} · {model}",
        )
        self._key, self._cost_model, self._server = exploration.key, scenario.cost_model, server
        self._exploration: Exploration | None = exploration

    def figures(self, *, first: bool = True) -> str:
        """Returns the figures by name. first: whether they begin a sentence."""
        labels = [by_name(name).label for name in self.names]
        return " and ".join(label if first and not place else in_sentence(label) for place, label in enumerate(labels))

    @property
    def note(self) -> str:
        """Reason for the long time."""
        others = ", for all figures" if len(self.every) > len(self.names) else ""
        return f"Not stored: every execution is evaluated again, once{others}. The page updates by itself."

    @property
    def account(self) -> str:
        """Reason for the missing statistics."""
        if self.problem:
            return f"{self.figures()} cannot be shown. {self.problem}"
        return (
            f"Stopped before {self.figures(first=False)} of all executions were known; nothing was kept. Stored "
            "figures are available at once."
        )

    def work(self) -> bool:
        """Evaluates."""
        assert self._exploration is not None
        add_columns(self._exploration, self.every, evaluate=self._evaluate)
        if self.progress is not None and self.progress.rate > 0:
            self._server.rates[self._cost_model] = self.progress.rate
        return False

    def _evaluate(self, scenario: Scenario, ids: Ints, writer: AddedWriter) -> None:
        """Evaluate executions in a worker and read its files."""
        with scratch_folder() as folder:
            np.save(folder / IDS, ids)
            self.run(self._server.evaluation, light(scenario), writer.names, folder)
            writer.take(folder)

    def release(self) -> None:
        """Lets go of the exploration."""
        self._exploration = None

    def answers(self, other: Job) -> bool:
        """Return whether it evaluates everything that another job evaluates."""
        return isinstance(other, EvaluationJob) and self.concerns(other._key, other.names)

    def concerns(self, key: str, names: Sequence[str]) -> bool:
        """Returns True if the job is about figures of an exploration: all that it evaluates, but once stopped only the
        requested ones, so that a later request for another figure does not show its card. Once done, the rows have the
        figures."""
        known = self.names if self.state == "cancelled" else () if self.state == "done" else self.every
        return self._key == key and set(names) <= set(known)


class UnstoredStatistics:
    """Evaluates statistics that are not stored, one question after the other."""

    def __init__(
        self,
        board: JobBoard | None = None,
        worker: Worker | None = None,
        *,
        evaluation: Callable[..., None] = evaluate,
        unwatched: float = UNWATCHED,
    ) -> None:
        """board, worker: where its jobs are and are done; without, a board of its own, and this process. evaluation:
        function of a worker that evaluates. unwatched: time without a look after which an evaluation is given up [s].
        """
        self.evaluation = evaluation
        self.rates: dict[str, float] = {}
        """Executions that the latest evaluation by each cost model did per second."""
        self.board = board or JobBoard()
        self.kind = JobKind(
            name="evaluation",
            doing="Evaluating",
            remembered=REMEMBERED,
            unwatched=unwatched,
            recent=RECENT,
            workers={"": worker or Worker(apart=False)},
        )

    def need(self, exploration: Exploration, names: Sequence[str], watcher: str) -> EvaluationJob | None:
        """Returns None once the rows of an exploration have all of the statistics; if that takes longer than
        the board's patience, the job, which may have been stopped or have failed.

        Raises:
            engine.store.TooManyValuesError: there is no room for the values.
            dashboard.jobs.board.BoardFull: too many jobs wait.
        """
        job = self.request(exploration, names, watcher)
        if job is None:
            return None
        with turns.aside():
            job.wait(self.board.patience)
        return None if job.state == "done" and not exploration.rows.missing(names) else job

    def request(self, exploration: Exploration, names: Sequence[str], watcher: str) -> EvaluationJob | None:
        """Returns the evaluation of those statistics that are not there yet, None where all are.

        Raises `engine.store.TooManyValuesError` and `dashboard.jobs.board.BoardFull`.
        """
        if all(map(is_stored, names)):
            return None
        missing = exploration.rows.missing(names)
        if not missing:
            return None
        exploration.rows.check_room(names, exploration.feasible)
        job = self.board.post(
            EvaluationJob(self, exploration, missing, _missing_statistics(exploration) or missing), watcher
        )
        assert isinstance(job, EvaluationJob)
        return job

    def find(self, exploration: Exploration, name: str) -> EvaluationJob | None:
        """Returns the evaluation of one statistic, on its way or stopped or failed."""
        return next((job for job in self.board.jobs(self.kind) if job.concerns(exploration.key, [name])), None)

    def seconds_for(self, exploration: Exploration) -> float:
        """Returns about how long evaluating statistics of an exploration takes [s], however many of them at once."""
        cost_model = cost_model_of(exploration.scenario)
        return exploration.feasible / self.rates.get(cost_model.name, cost_model.rows_per_second)

    def close(self) -> None:
        """Stops everything."""
        self.board.close(self.kind)


def _missing_statistics(exploration: Exploration) -> list[str]:
    """All that is not there yet, where there is room for all at once: evaluating all takes little more than one."""
    every = [column.name for column in defined_of(exploration.scenario.cost_model) if not is_stored(column.name)]
    try:
        exploration.rows.check_room(every, exploration.feasible)
    except TooManyValuesError:
        return []
    return exploration.rows.missing(every)
