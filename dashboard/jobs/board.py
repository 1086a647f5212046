"""One board for all work off the page's thread, shared by all sessions of a server.

A job is requested by a key that determines its result, and equal requests share one job. The jobs of a lane run in
threads, mostly one at a time: whole jobs to their end, jobs in parts a part of each in turn. To be fair, the next job
is the one with the least time so far; among jobs without any, the latest request of a session precedes earlier requests
of all sessions. Threads do little: long work runs in processes (see `dashboard.jobs.worker`). The board keeps nothing
beyond the server's life.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Any, Final

from dashboard.jobs.job import Job, JobKind, State
from engine import ExplorationCancelled
from engine.exploration.workers import WorkerError

__all__ = ["BoardFull", "JobBoard"]

LOG: Final = logging.getLogger("shardscape.jobs")
PATIENCE: Final = 0.4
"""Longest wait of a lane for a kind that it gives way to [s]."""
MOST_SESSIONS: Final = 4_096
"""Sessions whose latest question is remembered."""


class BoardFull(Exception):  # noqa: N818 - reads as a sentence where it is raised
    """Too many jobs of a kind are waiting."""


class _Lane:
    """Jobs that the same threads work on."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []
        """Unfinished jobs."""
        self.current: set[Job] = set()
        """Jobs that a thread is working on."""
        self.turns: dict[str, float] = {}
        """When those sessions that have more waiting had their latest turn."""
        self.closed = False
        self.threads: list[threading.Thread] = []

    @property
    def waiting(self) -> list[Job]:
        """Jobs that no thread is working on."""
        return [job for job in self.jobs if job not in self.current]


class JobBoard:
    """Waiting, running and ended jobs of a server, with their watchers."""

    def __init__(self, patience: float = 1.0) -> None:
        """patience: time that a page waits for a job before it shows progress [s]."""
        self.patience = patience
        self._changed = threading.Condition(threading.RLock())
        self._jobs: OrderedDict[tuple[JobKind, str], Job] = OrderedDict()
        self._lanes: dict[tuple[JobKind, str], _Lane] = {}
        self._questions: dict[JobKind, OrderedDict[str, str]] = {}
        """Key of the job that each session looks at, by kind, for `follow`."""
        self._closed = False

    def post(self, job: Job, watcher: str = "") -> Job:
        """Queue a job and return it, or an existing job that answers it.

        watcher: who asks; a job that others watch too is not stopped by one of them. Raises `BoardFull`.
        """
        with self._changed:
            there: Job | None = next((one for one in self.jobs(job.kind) if one.answers(job)), None)
            if there is not None and self._met(there, watcher):
                return there
            job.board, job.asker = self, watcher
            job.watched[watcher] = time.monotonic()
            if not job.ended:
                self._enter(job)
            self._jobs[job.kind, job.key] = job
            self._jobs.move_to_end((job.kind, job.key))
            self._forget(job.kind)
            return job

    def seen(self, kind: JobKind, key: str, watcher: str = "") -> Job | None:
        """Return the job of a key unless it must be restarted; a paused job continues."""
        with self._changed:
            job = self._jobs.get((kind, key))
            return job if job is not None and self._met(job, watcher) else None

    def find(self, kind: JobKind, key: str) -> Job | None:
        """Return the job of a key, or None."""
        with self._changed:
            return self._jobs.get((kind, key))

    def jobs(self, kind: JobKind) -> list[Any]:
        """Return all jobs of a kind, least recently requested first."""
        with self._changed:
            return [job for job in self._jobs.values() if job.kind is kind]

    def look(self, job: Job, watcher: str) -> None:
        """Record that a session still waits for the job."""
        with self._changed:
            job.watched[watcher] = time.monotonic()

    def cancel(self, job: Job, watcher: str = "", here: Callable[[str], bool] = lambda _: True) -> bool:
        """Takes back a request; stops the job if no other session watches it. Returns True if it was stopped.

        here: returns whether a watcher is still connected; a page that was closed or loaded again no longer counts.
        """
        with self._changed:
            if job.ended:
                return False
            job.left.add(watcher)
            if self._has_others(job, watcher, here):
                return False
            self._leave(job, "cancelled")
            return True

    def follow(self, kind: JobKind, key: str, watcher: str, here: Callable[[str], bool] = lambda _: True) -> None:
        """Record the question of a kind that a session looks at now, and give up its unfinished job of the question
        before if no other session watches it. A return to that question requests it again.

        key: of the job that answers the question. here: as of `cancel`.
        """
        with self._changed:
            questions = self._questions.setdefault(kind, OrderedDict())
            before = questions.pop(watcher, key)
            questions[watcher] = key
            while len(questions) > MOST_SESSIONS:
                questions.popitem(last=False)
            earlier = self._jobs.get((kind, before))
            if before == key or earlier is None or earlier.ended or watcher not in earlier.watched:
                return
            if not self._has_others(earlier, watcher, here):
                self._give_up(earlier)

    def resume(self, job: Job, watcher: str = "") -> None:
        """Continue a stopped job with its missing parts."""
        with self._changed:
            if job.kind.in_parts and job.state in ("cancelled", "paused"):
                self.look(job, watcher)
                self._enter(job)

    def forget(self, job: Job) -> None:
        """Drops an ended job, so that the next request starts a new one."""
        with self._changed:
            if job.ended and self._jobs.get((job.kind, job.key)) is job:
                del self._jobs[job.kind, job.key]

    def position(self, job: Job) -> int:
        """Return the number of whole jobs ahead of a waiting one."""
        with self._changed:
            if job.kind.in_parts or job.state != "queued":
                return 0
            lane = self._lane(job)
            return self._in_order(lane).index(job) + len(lane.current)

    def time_left(self, job: Job) -> float:
        """Return the time until a job is done [s], including the jobs that take turns with it; infinite if unknown.

        All get equal shares, so a job that takes less than this one delays it by its whole time, and a longer one by
        the time of this one.
        """
        mine = _seconds_left(job)
        if not job.kind.in_parts or math.isinf(mine):
            return mine
        with self._changed:
            others = [_seconds_left(each) for each in self._lane(job).jobs if each is not job]
        return mine + sum(min(mine, other) for other in others)

    def rest(self) -> None:
        """Pauses all jobs until a session looks again, after a long time without visitors: jobs in parts keep their
        parts, others are requested again."""
        with self._changed:
            for job in [job for lane in self._lanes.values() for job in lane.jobs]:
                self._give_up(job)

    def close(self, kind: JobKind | None = None) -> None:
        """Stops and forgets all jobs, or the jobs of a kind, and ends their threads."""
        with self._changed:
            self._closed = self._closed or kind is None
            lanes = {where: lane for where, lane in self._lanes.items() if kind in (None, where[0])}
            for lane in lanes.values():
                lane.closed = True
                for job in list(lane.jobs):
                    self._leave(job, "cancelled")
            self._changed.notify_all()
        kinds = {where[0] for where in lanes} | ({kind} if kind else set())
        for thread in [thread for lane in lanes.values() for thread in lane.threads]:
            thread.join(timeout=30)
        with self._changed:
            for where in lanes:
                self._lanes.pop(where, None)
            for key in [key for key in self._jobs if key[0] in kinds]:
                del self._jobs[key]

    @staticmethod
    def _has_others(job: Job, watcher: str, here: Callable[[str], bool]) -> bool:
        """Return True if other sessions watch an unfinished job, which then no longer counts this one."""
        since = time.monotonic() - job.kind.recent
        others = {who: at for who, at in job.watched.items() if who != watcher and at > since and here(who)}
        if others:
            job.watched = others
        return bool(others)

    def _met(self, job: Job, watcher: str) -> bool:
        """Return True if the request joins the present job, which then notes the watcher."""
        if job.starts_anew(watcher):
            return False
        self.look(job, watcher)
        if job.state == "paused":
            self._enter(job)
        self._jobs.move_to_end((job.kind, job.key))
        return True

    def _lane(self, job: Job) -> _Lane:
        return self._lanes.setdefault((job.kind, job.lane), _Lane())

    def _enter(self, job: Job) -> None:
        """Lets a job have its turns. Raises `BoardFull`."""
        self._make_room(job)
        lane = self._lane(job)
        job.behind = min((each.spent + each.behind for each in lane.jobs), default=job.spent) - job.spent
        job.begin()
        lane.jobs.append(job)
        if len(lane.threads) < min(job.kind.at_once, len(lane.jobs)) and not self._closed:
            name = "-".join(filter(None, ("shardscape", job.kind.name, job.lane)))
            thread = threading.Thread(target=self._work, args=(lane, job.kind.gives_way_to), name=name, daemon=True)
            lane.threads.append(thread)
            thread.start()
        self._changed.notify_all()

    def _make_room(self, job: Job) -> None:
        """Makes room for one more of a kind. Raises `BoardFull`."""
        kind = job.kind
        under_way = [one for one in self.jobs(kind) if not one.ended]
        if kind.in_parts:
            if len(under_way) >= kind.most_waiting:
                self._leave(min(under_way, key=Job.looked_at), "paused")
            return
        waiting = [one for one in under_way if one.state == "queued"]
        own = [one for one in waiting if one.asker == job.asker and set(one.watched) <= {job.asker}]
        if job.asker and len(own) >= kind.most_of_one:
            first = min(own, key=lambda one: one.started)
            self._give_up(first)
            waiting.remove(first)
        if len(waiting) >= kind.most_waiting:
            raise BoardFull(
                f"{len(waiting)} {kind.name}s are waiting already, which is the limit of this server; try again when "
                "some are done."
            )

    def _leave(self, job: Job, state: State) -> None:
        """Ends the turns of a job."""
        lane = self._lane(job)
        lane.jobs.remove(job)
        if job not in lane.current:
            job.release()
        job.end(state)
        self._changed.notify_all()

    def _give_up(self, job: Job) -> None:
        """Pause a job until a session looks at it again; a whole job is dropped, and a returning page requests it
        again."""
        self._leave(job, "paused" if job.kind.in_parts else "cancelled")
        if not job.kind.in_parts:
            self.forget(job)

    def _forget(self, kind: JobKind) -> None:
        """Drop the least recently requested jobs beyond the limits on number, weight and time."""
        ended = [job for job in self.jobs(kind) if job.ended]
        weight, surplus, now = sum(job.weight for job in ended), len(ended) - kind.most_kept, time.monotonic()
        for job in ended[:-1]:  # the latest stays whatever it weighs
            if surplus > 0 or weight > kind.most_weight or job.looked_at() < now - kind.remembered:
                del self._jobs[kind, job.key]
                surplus -= 1
                weight -= job.weight

    def _in_order(self, lane: _Lane) -> list[Job]:
        """Return the waiting jobs in the order of their turns. Among jobs without any time so far: for each session the
        latest, then for each the one before, and so on; sessions without a recent turn first."""
        waiting = lane.waiting
        newer: Counter[str] = Counter()
        rounds = {}
        for job in reversed(waiting):
            rounds[job] = newer[job.asker]
            newer[job.asker] += 1

        def turn(job: Job) -> tuple[float, ...]:
            return -job.priority, job.spent + job.behind, rounds[job], lane.turns.get(job.asker, 0.0)

        return sorted(waiting, key=turn)

    def _next(self, lane: _Lane, first: JobKind | None) -> Job | None:
        """The job whose turn it is; waits for one. None when closed. first: the kind that it gives way to."""
        waited = False
        with self._changed:
            while not lane.closed:
                for job in [one for one in lane.waiting if one.unwatched]:
                    self._give_up(job)
                if not lane.waiting:
                    self._changed.wait()
                elif first is not None and self._under_way(first) and not waited:
                    # But many who ask must not keep a job from ever going on.
                    self._changed.wait_for(lambda: lane.closed or not self._under_way(first), PATIENCE)
                    waited = True
                else:
                    job = self._in_order(lane)[0]
                    lane.current.add(job)
                    job.state = "running"
                    left = {other.asker for other in lane.jobs if other is not job}
                    lane.turns = {asker: when for asker, when in lane.turns.items() if asker in left}
                    lane.turns[job.asker] = time.monotonic()
                    return job
            return None

    def _under_way(self, kind: JobKind) -> bool:
        return any(lane.jobs for (which, _), lane in self._lanes.items() if which is kind)

    def _work(self, lane: _Lane, first: JobKind | None) -> None:
        while self._take_turn(lane, first):
            pass

    def _take_turn(self, lane: _Lane, first: JobKind | None) -> bool:
        """Work on one job or a part of it; return whether to continue. A method of its own, so that nothing outlives
        it. first: see `_next`."""
        job = self._next(lane, first)
        if job is None:
            return False
        state: State = "done"
        problem, more, start = "", False, time.monotonic()
        try:
            more = job.work()
        except ExplorationCancelled:
            state = "cancelled"
        except (ValueError, MemoryError, WorkerError) as fault:  # every refusal of the engine is a ValueError
            state, problem = "failed", str(fault) or "The server does not have enough memory for this."
        except Exception:
            LOG.exception("%s %s failed", job.kind.name, job.key)
            state, problem = (
                "failed",
                f"{job.kind.doing} failed because of an internal error; the server's log has the reason.",
            )
        with self._changed:
            lane.current.remove(job)
            self._changed.notify_all()
            job.spent += time.monotonic() - start
            if job in lane.jobs:
                lane.jobs.remove(job)
                if more:
                    lane.jobs.append(job)
                    return True
                job.release()
                job.end(state, problem)
                if state == "cancelled":  # by nobody: nobody looks
                    self.forget(job)
            else:
                job.release()
                if not more and state == "done":  # whoever stopped it did so while it came to its end
                    job.end("done")
            self._forget(job.kind)
        return True


def _seconds_left(job: Job) -> float:
    return math.inf if job.progress is None else job.progress.seconds_left
