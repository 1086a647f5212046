"""The card of a job: how far it is and how to stop it, or how it ended and how to have it done after all."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar
from weakref import WeakKeyDictionary

import streamlit as st

from dashboard.charts.elements.markup import head
from dashboard.compat.types import Place
from dashboard.jobs.job import Job
from dashboard.link.open_sessions import is_open
from dashboard.words.markdown import literal
from dashboard.words.numbers import counted
from dashboard.words.waiting import progress_words

__all__ = ["found_soon", "job_card", "job_words", "rerun_after_end", "watch"]

Asked = TypeVar("Asked", bound=Job)
Found = TypeVar("Found")

POLL: Final = 0.5
"""Interval between looks at a job [s]; longer while others are ahead."""
SLOWEST_POLL: Final = 3.0
SHOW: Final = 1.0
"""Time from which a job in parts, whose parts are shown already, reports its progress [s]."""
_OTHERS: Final = "_job_of_others"
"""Key of what was stopped in vain."""
_RERUN_FOR: Final = "_jobs_rerun_for"
"""Key of the ended jobs after which this session has run the page again."""


def found_soon(job: Job, kind: type[Asked], watcher: str, found: Callable[[Asked], Found]) -> Found | None:
    """Returns the result of a job; None while it is running, or if it has no result, which its card explains.

    Args:
        job: as returned by the board: of another kind if the question cannot be posted now.
        kind: the kind that was posted.
        watcher: session that looks.
        found: returns the result of an ended job.
    """
    if not isinstance(job, kind):
        return None
    if not job.wait(job.board.patience):
        watch(job, watcher)
        return None
    answer = found(job)
    if answer is None:
        job_card(job, watcher)
    return answer


def watch(job: Job, watcher: str, mark: str = "", until: Callable[[], bool] | None = None) -> None:
    """Draws the card of a job again and again until it has ended; the page runs again then.

    A job may end after the page missed its result and before this looks at it: the page runs again then, too.

    watcher: session that looks. mark: distinguishes several jobs of a kind on a page. until: whether there is something
    else to show earlier, for which the page runs again too.
    """
    if job.ended:
        rerun_after_end(job)
        job_card(job, watcher, mark)
    else:
        poll = POLL if until is not None else min(SLOWEST_POLL, POLL * (1 + job.board.position(job) / 2))
        st.fragment(_until_ended, run_every=poll)(job, watcher, mark, until)


def rerun_after_end(job: Job) -> None:
    """Run the page again, once in a session each time that a job has ended.

    What the page read before may lack what the job found in the meantime.
    """
    known = st.session_state.setdefault(_RERUN_FOR, WeakKeyDictionary())
    if known.get(job) != job.started:
        known[job] = job.started
        st.rerun()


def _until_ended(job: Job, watcher: str, mark: str, until: Callable[[], bool] | None) -> None:
    job.board.look(job, watcher)
    if job.ended:
        rerun_after_end(job)
    elif until is not None and until():
        st.rerun()
    job_card(job, watcher, mark)


def job_card(job: Job, watcher: str = "", mark: str = "") -> None:
    """Draws the card of a job. A job in parts shows its results elsewhere, and has a line instead of a card: empty if
    all is well or it has just begun."""
    name = f"{job.kind.name}{mark and '_'}{mark}"
    if not job.ended:
        if not job.kind.in_parts:
            with st.container(border=True, key=f"job_{name}"):
                title, button = st.columns([6, 1], vertical_alignment="center")
                title.html(head(job.title, job.about))
                _draw_stop_button(button, job, watcher, name)
                st.progress(_share_done(job), text=job_words(job))
                vain = st.session_state.get(_OTHERS) == (job.kind.name, job.key)
                st.caption("Another session waits for the same result, so it continues." if vain else job.note)
        elif time.monotonic() - job.started >= SHOW:
            bar, button = st.columns([5, 1], vertical_alignment="center")
            bar.progress(_share_done(job), text=job_words(job))
            _draw_stop_button(button, job, watcher, name)
    elif job.state == "failed":
        st.error(literal(job.account), icon=":material/error:")
        if not job.kind.in_parts:
            _draw_restart_button("Try again", job, name)
    elif job.state == "cancelled" and job.kind.in_parts:
        text, button = st.columns([4, 1], vertical_alignment="center")
        text.caption(job.account)
        button.button(
            "Go on",
            type="tertiary",
            key=f"job_on_{name}",
            on_click=job.board.resume,
            args=(job, watcher),
            width="stretch",
            help="Computes the missing parts.",
        )
    elif job.state == "cancelled":
        st.info(literal(job.account), icon=":material/cancel:")
        _draw_restart_button("Start again", job, name)


def job_words(job: Job) -> str:
    """Returns how far a job is, in words."""
    ahead, progress = job.board.position(job), job.progress
    if ahead:
        return f"Waiting for {counted(ahead, f'earlier {job.kind.name}')}"
    if progress is None:
        return "Starting"
    left = job.board.time_left(job)
    return progress_words(progress.done, progress.total, job.kind.unit, progress.rate, left)


def _share_done(job: Job) -> float:
    progress = job.progress
    return min(1.0, progress.done / progress.total) if progress is not None and progress.total else 0.0


def _draw_stop_button(place: Place, job: Job, watcher: str, name: str) -> None:
    def stop() -> None:
        vain = not job.ended and not job.board.cancel(job, watcher, is_open)
        st.session_state[_OTHERS] = (job.kind.name, job.key) if vain else ()

    place.button(
        "Stop",
        icon=None if job.kind.in_parts else ":material/close:",
        type="tertiary",
        on_click=stop,
        key=f"job_stop_{name}",
        help="What was found stays." if job.kind.in_parts else None,
        width="stretch",
    )


def _draw_restart_button(label: str, job: Job, name: str) -> None:
    """Draw the button that forgets an ended job, so that the page requests it again."""
    st.button(label, icon=":material/refresh:", on_click=job.board.forget, args=(job,), key=f"job_again_{name}")
