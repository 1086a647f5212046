"""Steps of a long command on stderr, with the time that is left."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TextIO

__all__ = ["StepReport"]

PAUSE_S = 5.0
"""Time between two lines about the same step without a terminal [s]."""


class StepReport:
    """Progress of a command whose steps take a known share of the time.

    Args:
        usual_s: usual seconds of each step by name, in order; they are scaled by the time that steps really take.
        first, last: first and last step of this process, where others do the rest; all steps where None.
        stream: where to; stderr if None.
        clock: returns seconds since any time.
    """

    def __init__(
        self,
        usual_s: Mapping[str, float],
        *,
        first: str | None = None,
        last: str | None = None,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._usual, self._names = dict(usual_s), list(usual_s)
        self._first, self._last = first or self._names[0], last or self._names[-1]
        self._stream, self._clock = stream or sys.stderr, clock
        self._start = clock()
        self._place, self._share = -1, 0.0
        self._due = 0.0

    def __enter__(self) -> StepReport:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None and self._last == self._names[-1]:
            self._write(f"done in {self._clock() - self._start:.0f} s", ends=True)

    def begin(self, name: str) -> None:
        """Report the beginning of a step.

        Args:
            name: one of the steps.
        """
        self._place, self._share = self._names.index(name), 0.0
        self._show()

    def progress(self, share: float) -> None:
        """Report how far the step is.

        Args:
            share: of the step, from 0 to 1.
        """
        self._share = share
        if self._stream.isatty() or self._clock() >= self._due:
            self._show()

    def _show(self) -> None:
        self._due = self._clock() + PAUSE_S
        spent, whole = self._clock() - self._start, sum(self._usual.values())
        done, end = (sum(self._usual[name] for name in self._names[:place]) for place in (self._place, self._place + 1))
        done += self._share * (end - done)
        own = done - sum(self._usual[name] for name in self._names[: self._names.index(self._first)])
        # Slow machines are slow in all steps.
        left = (whole - done) * (spent / own if own > 0.1 * whole else 1.0)
        self._write(f"[{self._place + 1}/{len(self._names)}] {self._names[self._place]}, about {left:.0f} s left")

    def _write(self, text: str, *, ends: bool = False) -> None:
        if self._stream.isatty():
            self._stream.write(f"\r\x1b[K{text}" + ("\n" if ends else ""))
        else:
            self._stream.write(f"{text}\n")
        self._stream.flush()
