"""Questions of What-if that a visitor waits for: the effect of one change on the whole space.

Several are answered in parallel, so that one about a very large space does not hold up all others; the studies wait
meanwhile. Answers are remembered for equal questions.
"""

from __future__ import annotations

import contextlib
from typing import Final

from dashboard.jobs.board import BoardFull, JobBoard
from dashboard.jobs.job import Job, JobKind
from dashboard.jobs.turns import turns
from dashboard.jobs.whatif_answers import answer
from dashboard.jobs.worker import Worker
from engine.questions.documents.changes import WhatIfQuestion
from engine.recommendation import ShownChange

__all__ = ["QuestionJob", "Questions", "Unanswered"]

AT_ONCE: Final = 4
"""Questions that are answered at once."""
MOST_KEPT: Final = 128
"""Answers that are remembered."""


class Unanswered(Exception):  # noqa: N818 - reads as a sentence where it is raised
    """Question without an answer; its job has the reason."""

    def __init__(self, job: QuestionJob) -> None:
        super().__init__(job.account)
        self.job = job


class QuestionJob(Job):
    """One question on its way. A search that has begun cannot be stopped."""

    def __init__(self, kind: JobKind, asked: WhatIfQuestion) -> None:
        super().__init__(kind, asked.model_dump_json(), "Searching")
        self.answer: ShownChange | None = None
        self._asked = asked

    @property
    def account(self) -> str:
        """Reason for a missing answer."""
        return self.problem or "A newer question replaced this search."

    def work(self) -> bool:
        """Searches."""
        self.answer = self.run(answer, self._asked)
        return False


class Questions:
    """Answers questions."""

    def __init__(self, board: JobBoard | None = None, worker: Worker | None = None) -> None:
        """board, worker: where its jobs are and are done; without, a board of its own, and this process."""
        self.board = board or JobBoard()
        self.kind = JobKind(
            name="search",
            doing="Searching",
            at_once=AT_ONCE,
            most_kept=MOST_KEPT,
            workers={"": worker or Worker(apart=False)},
        )

    def ask(self, asked: WhatIfQuestion, watcher: str = "") -> ShownChange:
        """Return the answer to a change when it is ready.

        Raises `Unanswered`, with a sentence for the page, and `dashboard.jobs.board.BoardFull`.
        """
        job = self._job(asked, watcher)
        with turns.aside():  # some searches take seconds
            job.wait()
        if job.answer is None:
            raise Unanswered(job)
        return job.answer

    def begin(self, asked: WhatIfQuestion, watcher: str = "") -> None:
        """Begins to search for the answer to an expected question."""
        with contextlib.suppress(BoardFull):  # who asks is told
            self._job(asked, watcher)

    def ahead(self, asked: WhatIfQuestion, watcher: str = "") -> None:
        """Searches for a likely next question, unless a visitor waits for an answer."""
        if all(job.ended for job in self.board.jobs(self.kind)):
            self.begin(asked, watcher)

    def _job(self, asked: WhatIfQuestion, watcher: str) -> QuestionJob:
        new = QuestionJob(self.kind, asked)
        job = self.board.seen(self.kind, new.key, watcher) or self.board.post(new, watcher)
        assert isinstance(job, QuestionJob)
        return job
