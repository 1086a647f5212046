"""Fair turns for clients of the JSON API: no client can take all answering processes."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Final

__all__ = ["AskerTurns", "TooManyQuestions"]

MOST_WAITING: Final = 64
"""Most waiting questions of all clients."""


class TooManyQuestions(Exception):  # noqa: N818 - reads as a sentence where it is raised
    """Raised when the queue of questions is full."""

    def __init__(self, sentence: str, *, of_one: bool) -> None:
        super().__init__(sentence)
        self.of_one = of_one
        """True if the client has too many questions, False if all together have."""


@dataclass
class AskerTurns:
    """Turns of clients, for one event loop.

    A client never has all turns. Next is the waiting client with the fewest turns, and among equals the one whose last
    turn is longest ago.
    """

    at_once: int
    """Questions that are answered at once."""
    of_one: int
    """Questions of one client that are answered at once."""
    waiting_of_one: int
    """Waiting questions of one client."""
    _answered: Counter[str] = field(default_factory=Counter)
    _waiting: dict[str, deque[asyncio.Future[None]]] = field(default_factory=dict)  # the longest without a turn first

    def ask(self, asker: str) -> asyncio.Future[None]:
        """Return a future that is done when the client has a turn; give it back with `end`, or cancel it.

        Raises TooManyQuestions.
        """
        waits = self._waiting.setdefault(asker, deque())
        self._forget_cancelled(asker)
        if len(waits) >= self.waiting_of_one and not self._has_turn(asker):
            raise TooManyQuestions(
                f"{self._answered[asker] + len(waits)} questions of yours are being answered or wait; "
                "ask again when one is done.",
                of_one=True,
            )
        if sum(map(len, self._waiting.values())) >= MOST_WAITING:
            raise TooManyQuestions("Too many questions wait already; ask again later.", of_one=False)
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(asker, waits).append(turn)
        self._give()
        return turn

    def end(self, asker: str) -> None:
        """Give a turn back."""
        self._answered[asker] -= 1
        self._answered += Counter()  # drops those who have none
        self._give()

    def _has_turn(self, asker: str) -> bool:
        return self._answered.total() < self.at_once and self._answered[asker] < self.of_one

    def _give(self) -> None:
        """Give the turns that are free."""
        while self._answered.total() < self.at_once:
            for asker in list(self._waiting):
                self._forget_cancelled(asker)
            can = [asker for asker, waits in self._waiting.items() if waits and self._has_turn(asker)]
            if not can:
                return
            asker = min(can, key=lambda one: self._answered[one])
            waits = self._waiting.pop(asker)  # and last from now on
            turn = waits.popleft()
            if waits:
                self._waiting[asker] = waits
            self._answered[asker] += 1
            turn.set_result(None)

    def _forget_cancelled(self, asker: str) -> None:
        waits = deque(turn for turn in self._waiting.get(asker, ()) if not turn.done())
        if waits:
            self._waiting[asker] = waits
        else:
            self._waiting.pop(asker, None)
