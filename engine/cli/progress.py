"""Progress of long commands on stderr: share, rate and time left, on a terminal as one line, elsewhere as a few."""

from __future__ import annotations

import math
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Final, TextIO

from engine.cli.output import format_rate

if TYPE_CHECKING:
    from engine import Progress

__all__ = ["FIRST_S", "ExplorationLine", "ProgressReport"]

FIRST_S: Final = 5.0
"""Time after which a command that writes to no terminal says for the first time how far it is [s]."""
LONGEST_S: Final = 60.0
"""Longest time between two such lines, each of which waits twice as long as the one before [s]."""
_REDRAWN_S: Final = 0.1
_BAR: Final = 24


class ProgressReport:
    """Progress of a command. On a terminal one line is updated; elsewhere a line is written after 5 s, and then less
    and less often, so that log files stay short.

    Within `with` it also reports between calls, because a step may take minutes.

    Args:
        what: current work, such as "Fitting", unless a call is more precise.
        steps: total steps, for the rate; 0 without steps.
        unit: unit of the steps, in the plural.
        stream: output stream; stderr if None.
        clock: returns seconds since any time.
    """

    def __init__(
        self,
        what: str,
        *,
        steps: int = 0,
        unit: str = "steps",
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._terminal = self._stream.isatty()
        self._clock, self._start = clock, clock()
        self._began = self._start
        self._what, self._steps, self._unit = what, steps, unit
        self._share = 0.0
        self._drawn = False
        self._last, self._due, self._wait = -math.inf, FIRST_S, FIRST_S
        self._lock, self._stopped = threading.RLock(), threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> ProgressReport:
        self._thread = threading.Thread(target=self._tick, name="progress", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()
        self.clear()

    def __call__(self, share: float, doing: str = "") -> None:
        """Record and report the progress.

        Args:
            share: share of all work that is done, from 0 to 1.
            doing: current work; the work of the command if empty.
        """
        with self._lock:
            self._share = min(max(share, 0.0), 1.0)
            self._what = doing or self._what
            self._show()

    def count(self, done: int, total: int, unit: str, doing: str = "") -> None:
        """Record and report steps whose number is known only once the work has begun.

        Args:
            done: steps that are done.
            total: all steps.
            unit: unit of the steps, in the plural.
            doing: current work; the work of the command if empty.
        """
        with self._lock:
            if self._steps and unit != self._unit:  # another part of the work has a rate of its own
                self._began = self._clock()
            self._steps, self._unit = total, unit
            self(done / total if total else 1.0, doing)

    def clear(self) -> None:
        """Remove the line, so that results can be written; the next call draws it again."""
        with self._lock:
            if self._drawn:
                self._stream.write("\r\x1b[K")
                self._stream.flush()
                self._drawn, self._last = False, -math.inf

    def _tick(self) -> None:
        while not self._stopped.wait(0.5):
            with self._lock:
                self._show()

    def _show(self) -> None:
        spent = self._clock() - self._start
        if self._terminal:
            if spent - self._last >= _REDRAWN_S:
                self._stream.write(f"\r\x1b[K{self._line(spent)[: terminal_width() - 1]}")
                self._stream.flush()
                self._drawn, self._last = True, spent
        elif spent >= self._due:
            self._wait = min(2.0 * self._wait, LONGEST_S)
            self._due = spent + self._wait
            self._stream.write(f"{self._line(spent)}\n")
            self._stream.flush()

    def _line(self, spent: float) -> str:
        worked = spent + self._start - self._began
        parts = [f"{self._share:4.0%}"] if self._share else []
        if self._steps:
            done = self._share * self._steps
            parts.append(f"{done:,.0f} of {self._steps:,} {self._unit}")
            if done and worked > 0:
                parts.append(step_rate(done / worked))
        parts.append(f"{duration_text(spent)} so far")
        if self._share and worked >= 1.0:
            parts.append(f"about {duration_text(worked * (1.0 - self._share) / self._share)} left")
        return "  ".join([*parts, self._what])


class ExplorationLine:
    """The same of an exploration, which knows its own rate."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream, self._clock = stream, clock
        self._shown = stream.isatty()
        self._due, self._wait = clock() + FIRST_S, FIRST_S
        self.calls = 0

    def __call__(self, progress: Progress) -> None:
        """Shows progress in place of what was shown before."""
        self.calls += 1
        share = progress.done / progress.total if progress.total else 1.0
        left = f"{progress.seconds_left:.1f} s left" if math.isfinite(progress.seconds_left) else "starting"
        text = f"{share:4.0%}  {progress.done:,} of {progress.total:,}  {format_rate(progress.rate)}  {left}"
        if self._shown:
            wide = min(_BAR, terminal_width() - len(text) - 4)  # figures first: a narrow terminal has no bar
            self._stream.write(f"\r\x1b[K{(draw_bar(share, wide) + text)[: terminal_width() - 1]}")
            self._stream.flush()
        elif self._clock() >= self._due:
            self._wait = min(2.0 * self._wait, LONGEST_S)
            self._due = self._clock() + self._wait
            self._stream.write(f"{text.strip()}\n")
            self._stream.flush()

    def clear(self) -> None:
        """Removes the line."""
        if self._shown and self.calls:
            self._stream.write("\r\x1b[K")
            self._stream.flush()


def draw_bar(share: float, wide: int) -> str:
    """Returns a bar of so many signs, filled by a share; empty where there is no room for one."""
    filled = round(wide * share)
    return f"[{'#' * filled}{'.' * (wide - filled)}] " if wide > 1 else ""


def step_rate(per_s: float) -> str:
    """Returns a rate of steps: "12/s", or "4.1/min" below one in a second."""
    return f"{per_s:,.3g}/s" if per_s >= 1.0 else f"{60.0 * per_s:,.2g}/min"


def duration_text(seconds: float) -> str:
    """Returns a duration in one unit: "8 s", "13 min", "2.5 h"."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 99.5 * 60 else f"{seconds / 3600:.1f} h"


def terminal_width() -> int:
    """Returns how many signs a line of the terminal has."""
    return shutil.get_terminal_size((100, 24)).columns if os.environ.get("TERM") != "dumb" else 80
