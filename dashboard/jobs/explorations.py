"""Explorations of a server: stored, running or waiting, shared by all sessions.

Equal scenarios are one job of the board; a job continues when a tab is closed. Explorations stay open as long as there
is room, and are found again in the store. One small space is explored at a time, and next to it one large one, so that
a search of a second does not wait for one of minutes.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from dashboard.jobs.board import JobBoard
from dashboard.jobs.exploration_rows import explore_into_store
from dashboard.jobs.job import Job, JobKind
from dashboard.jobs.worker import Workers
from dashboard.settings import Settings
from dashboard.words.numbers import counted
from engine import Exploration, ExplorationCancelled, ExplorationTooLarge, Scenario, explore_scenario
from engine.exploration.run import from_store
from engine.store import Store, StoreError, StoreInterruptedError, StoreWriteError

__all__ = ["ExplorationJob", "Explorations"]

LOG: Final = logging.getLogger("shardscape.explorations")
_UNSTORED: Final = "The result could not be stored and is kept in memory."
LARGE: Final = 20_000_000
"""Executions from which on a space is a large one; some seconds of work."""
PER_SESSION: Final = 8
"""Most waiting explorations of one session; above it the oldest are cancelled."""
ROWS_IN_MEMORY: Final = 12_000_000
"""Feasible executions of explorations that are not in a store and stay open; some 2 GiB."""


class ExplorationJob(Job):
    """One exploration on its way."""

    def __init__(self, server: Explorations, scenario: Scenario) -> None:
        total = scenario.space.total
        size = f"{counted(scenario.num_procs, 'GPU')} · {counted(total, 'execution')}"
        about = f"{scenario.model.title or scenario.model.name} · {size}"
        super().__init__(server.kind, scenario.key, "Evaluating", about, lane="large" if total >= server.large else "")
        self.scenario = scenario
        self.exploration: Exploration | None = None
        self.in_memory = False
        """True if the rows are held in memory, because no store has them."""
        self.shown = False
        """True after a page has shown the result, or found it stored."""
        self._server = server
        self._latest = math.inf

    @property
    def weight(self) -> float:
        """Rows in memory."""
        return self.exploration.feasible if self.in_memory and self.exploration is not None else 0

    @property
    def note(self) -> str:
        """Sentence that the page may be closed."""
        return "The page appears by itself when it is done; closing it does not stop the work."

    @property
    def account(self) -> str:
        """Reason for a missing result."""
        return self.problem or "Exploring was cancelled before it was done; nothing was kept."

    def work(self) -> bool:
        """Explores."""
        limit = self._server.settings.longest_seconds
        self._latest = time.monotonic() + limit
        try:
            self.exploration = self._explored()
        except ExplorationCancelled:
            if super().stops() or time.monotonic() < self._latest:
                raise
            raise ValueError(
                f"Exploring was stopped after {limit:,.0f} s, the limit of this server. "
                "Fix some choices to make the space smaller."
            ) from None
        except MemoryError:
            raise MemoryError("The server does not have enough memory for this space. Fix some choices.") from None
        return False

    def stops(self) -> bool:
        """Returns True after a request to stop, or beyond the time that the server allows."""
        return super().stops() or time.monotonic() > self._latest

    def _explored(self) -> Exploration:
        """The exploration, in the store where that takes it."""
        server, store = self._server, self._server.store
        self.in_memory = store is None
        try:
            if store is not None and self.kind.workers[self.lane].apart:
                found = explore_into_store(self.scenario, store, self.run)
            else:
                found = server.explore(self.scenario, store=store, progress=self.tell, cancel=self.stops, workers=1)
            server.say_unstored()
            return found
        except StoreInterruptedError:
            raise
        except StoreError as problem:
            if store is None or isinstance(problem, ExplorationTooLarge):
                raise
            LOG.warning("exploration %s is not stored: %s", self.key, problem)
            server.say_unstored(_for_visitors(problem))
            self.in_memory = True
            return server.explore(self.scenario, progress=self.tell, cancel=self.stops, workers=1)


class Explorations:
    """Explorations of one small and one large scenario at a time, with their results."""

    def __init__(
        self,
        settings: Settings,
        board: JobBoard | None = None,
        workers: Workers | None = None,
        *,
        explore: Callable[..., Exploration] = explore_scenario,
        large: int = LARGE,
    ) -> None:
        """board, workers: board and workers of the jobs; by default a board of its own, and this process. explore:
        function that explores in this process. large: executions from which on a space is a large one.

        Without a store, scenarios are always explored in this process, which keeps their rows.
        """
        self.settings, self.explore, self.large = settings, explore, large
        self.warnings: list[str] = list(settings.problems)
        """Warnings about the server, for every page to show."""
        self.store: Store | None = self._open(settings.store)
        workers = workers or Workers(apart=False)
        self.board = board or JobBoard()
        self.kind = JobKind(
            name="exploration",
            doing="Exploring",
            most_waiting=settings.queue,
            most_of_one=PER_SESSION,
            most_kept=settings.kept,
            most_weight=ROWS_IN_MEMORY,
            workers={"": workers.small, "large": workers.large},
        )

    def request(self, scenario: Scenario, watcher: str = "") -> ExplorationJob:
        """Returns the job of a scenario: the one there is, or a new one. Raises `BoardFull`."""
        job = self.board.seen(self.kind, scenario.key, watcher) or self.board.post(self._new(scenario), watcher)
        assert isinstance(job, ExplorationJob)
        return job

    def look_at(self, scenario: Scenario, watcher: str, here: Callable[[str], bool] = lambda _: True) -> ExplorationJob:
        """Returns the job of the scenario that a session looks at now, as `request`; its unfinished exploration of the
        scenario before is given up if no other session waits for it.

        here: whether a session is still connected. Raises `BoardFull`.
        """
        self.board.follow(self.kind, scenario.key, watcher, here)
        return self.request(scenario, watcher)

    def find(self, key: str) -> ExplorationJob | None:
        """Return the job of a scenario by its key, or None."""
        job = self.board.find(self.kind, key)
        assert job is None or isinstance(job, ExplorationJob)
        return job

    def jobs(self) -> list[ExplorationJob]:
        """Return all jobs, least recently requested first."""
        return self.board.jobs(self.kind)

    def forget(self, key: str) -> None:
        """Drops an ended job, for example after its exploration was deleted from the store."""
        job = self.find(key)
        if job is not None:
            self.board.forget(job)

    def close(self) -> None:
        """Stops what runs and gives the store back."""
        self.board.close(self.kind)
        if self.store is not None:
            self.store.close()

    def refusal(self, scenario: Scenario) -> str:
        """Returns why a space is too large for this server; empty where it is not."""
        total = scenario.space.total
        if total > self.settings.largest_space:
            return (
                f"The space has {total:,} executions; this server explores up to {self.settings.largest_space:,}. "
                "Fix some choices to make it smaller."
            )
        return ""

    def say_unstored(self, problem: str = "") -> None:
        """Says that a result could not be stored, the latest only; without a problem, that it could."""
        warnings = [said for said in self.warnings if not said.startswith(_UNSTORED)]
        self.warnings[:] = warnings + ([f"{_UNSTORED} {problem}"] if problem else [])

    def _open(self, path: Path | None) -> Store | None:
        if path is None:
            return None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            store = Store(path)
            self.warnings += store.losses
            return store
        except (StoreError, OSError) as problem:
            reason = str(problem) if isinstance(problem, StoreError) else f"{path}: {problem.strerror or problem}."
            self.warnings.append(f"Results are kept in memory only and are lost when the server stops. {reason}")
            LOG.warning("no store: %s", reason)
            return None

    def _new(self, scenario: Scenario) -> ExplorationJob:
        """A job to be done, or one that was found in the store or refused."""
        job, stored = ExplorationJob(self, scenario), self._stored(scenario)
        refusal = self.refusal(scenario)
        if stored is not None:
            job.exploration, job.shown = stored, True
            job.end("done")
        elif refusal:
            job.end("failed", refusal)
        return job

    def _stored(self, scenario: Scenario) -> Exploration | None:
        if self.store is None:
            return None
        try:
            return from_store(scenario, self.store)
        except (StoreError, KeyError, ValueError) as problem:
            LOG.warning("stored exploration %s not usable: %s", scenario.key, problem)
            return None


def _for_visitors(problem: StoreError) -> str:
    """Return why a result could not be stored, without the path of the file, which visitors must not see."""
    if not isinstance(problem, StoreWriteError):
        return str(problem)
    return f"{problem.why[:1].upper()}{problem.why[1:]}; the next result is stored again once there is room."
