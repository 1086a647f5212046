"""Executors of tasks: this process, processes of this machine, or the workers of a Dask cluster.

All three are executors of `concurrent.futures`; they decide the order of tasks.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Executor, Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from queue import SimpleQueue
from typing import Any, Final

from engine.codesign.errors import ClusterError
from engine.cost_models.registry import added, register
from engine.exploration.interpreters import Interpreter, InterpreterError, answer_requests

__all__ = ["HereExecutor", "Interpreters", "of_client", "serve", "workers_at", "workers_of"]

ATTEMPTS: Final = 3
"""Number of times that a task is given to a process before the task is blamed for its end."""

CONNECT_SECONDS: Final = 10.0
"""Time limit for a scheduler's answer, at first and after it was lost."""

RETRIES: Final = 1
"""Number of times that Dask repeats a failed task; repeats after the death of a worker do not count."""


class HereExecutor(Executor):
    """Runs everything at once, in the caller's thread."""

    workers = 1

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        """Runs the function and returns its result as a future that is done."""
        future: Future[Any] = Future()
        try:
            future.set_result(function(*arguments, **named))
        except Exception as problem:
            future.set_exception(problem)
        return future


class Interpreters(Executor):
    """Processes of this machine, each of which runs one call at a time; one that dies is replaced, and its call run
    again."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._stack = ExitStack()
        self._threads = ThreadPoolExecutor(workers)
        self._idle: SimpleQueue[Interpreter | None] = SimpleQueue()
        self._all: list[Interpreter] = []
        self._over = False
        for _ in range(workers):
            self._idle.put(None)  # started when it is first needed

    @property
    def pids(self) -> list[int]:
        """Return the numbers of the processes."""
        return [each.pid for each in self._all]

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        """Run the function in one of the processes."""
        return self._threads.submit(self._run, (function, arguments, named))

    def _run(self, call: tuple[Any, ...]) -> Any:
        interpreter = self._idle.get()
        try:
            for _ in range(ATTEMPTS):
                if self._over:
                    raise CancelledError
                if interpreter is None:
                    interpreter = Interpreter(f"{__name__}:serve", (added(),))
                    self._all.append(interpreter)
                try:
                    worked, result = interpreter.ask(call)
                except InterpreterError:
                    self._end(interpreter)
                    interpreter = None
                    continue
                if not worked:
                    raise result
                return result
            raise ClusterError(
                f"A process ended {ATTEMPTS} times over the same points, perhaps for lack of memory; what is written "
                "stays good: run the study again with fewer workers."
            )
        finally:
            self._idle.put(interpreter)

    def _end(self, interpreter: Interpreter) -> None:
        with contextlib.suppress(ValueError):  # the caller is ending all of them
            self._all.remove(interpreter)
        interpreter.__exit__(None, None, None)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End all processes at once; unwritten results are computed when the study is run again."""
        self._over = True
        for each in list(self._all):
            self._end(each)
        self._threads.shutdown(wait=wait, cancel_futures=cancel_futures)


def serve() -> None:
    """Runs, in a process of `Interpreters`, one call after the other."""
    with answer_requests() as (requests, answer):
        for cost_model in next(requests):
            register(cost_model)
        for function, arguments, named in requests:
            try:
                answer((True, function(*arguments, **named)))
            except Exception as problem:
                answer((False, problem))


@contextmanager
def of_client(client: Any) -> Iterator[Executor]:
    """Yield the executor of a Dask client, or of the scheduler at an address. Needs the extra `cluster`.

    Raises `ClusterError` if no scheduler answers at the address.

    Args:
        client: a `distributed.Client`, or the address of a scheduler.
    """
    try:
        import distributed
    except ImportError:
        raise ClusterError("A cluster needs dask.distributed; install shardscape[cluster].") from None
    with ExitStack() as stack:
        if isinstance(client, str):
            address = client
            try:
                made: Any = distributed.Client
                client = stack.enter_context(made(address, timeout=CONNECT_SECONDS))
            except (OSError, TimeoutError, ValueError) as problem:
                text = (str(problem) or type(problem).__name__).splitlines()[0]
                raise ClusterError(
                    f"No scheduler answers at {address[:200]} ({text[:200]}); give the address that dask scheduler "
                    "prints, such as tcp://10.0.0.1:8786."
                ) from None
        yield client.get_executor(pure=False, retries=RETRIES)


def workers_at(address: str) -> int:
    """Returns how many tasks the workers of a scheduler run at once; 0 while none has joined it. Raises
    `ClusterError`.

    Args:
        address: of the scheduler.
    """
    with of_client(address) as executor:
        found: Any = executor
        return int(sum(found._client.nthreads().values()))


def workers_of(executor: Executor) -> int:
    """Return the number of tasks that an executor runs at once, if it reports it; 0 without workers.

    Args:
        executor: one of this module's.
    """
    own = getattr(executor, "workers", None)
    if own is not None:
        return int(own)
    client: Any = getattr(executor, "_client", None)
    return int(sum(client.nthreads().values()))
