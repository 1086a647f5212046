"""Cache of the latest few values made on demand, each made once for all threads that ask at the same time."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Generic, TypeVar

__all__ = ["Kept"]

Value = TypeVar("Value")


class Kept(Generic[Value]):
    """Things by their keys, those used latest. Who asks for what another thread is making waits for it."""

    def __init__(self, most: int) -> None:
        """most: how many are kept."""
        self._most = most
        self._lock = threading.Lock()
        self._things: OrderedDict[Hashable, Future[Value]] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """Return the cached value of a key, or the result of `make`.

        None is not cached, and an exception of `make` is raised to all waiting callers; a later call runs `make` again.
        """
        with self._lock:
            thing = self._things.get(key)
            mine = thing is None
            if thing is None:
                thing = self._things[key] = Future()
            self._things.move_to_end(key)
            while len(self._things) > self._most:
                self._things.popitem(last=False)
        if mine:
            try:
                made = make()
            except BaseException as problem:
                self._drop(key, thing)
                thing.set_exception(problem)
                raise
            if made is None:
                self._drop(key, thing)
            thing.set_result(made)
        return thing.result()

    def _drop(self, key: Hashable, thing: Future[Value]) -> None:
        with self._lock:
            if self._things.get(key) is thing:
                del self._things[key]
