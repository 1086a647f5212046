"""Notice a signal to stop before the server waits for its running requests.

The server announces its stop only after they have ended, so long requests must ask, or Ctrl-C would wait for them.
`tests/dashboard/shell/test_nothing_sent.py` stops a server in the midst of a question.
"""

from __future__ import annotations

import signal
import threading
from functools import partial
from types import FrameType
from typing import Any, Final

__all__ = ["is_stopping", "watch_stop_signals"]

_STOPPING: Final = threading.Event()


def is_stopping() -> bool:
    """Return whether this process has received a signal to stop since `watch_stop_signals`."""
    return _STOPPING.is_set()


def watch_stop_signals() -> None:
    """Note stop signals before the handlers that the server has set by now take them.

    Does nothing outside the main thread, which alone can set handlers.
    """
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            handler = signal.getsignal(number)
            if callable(handler):
                signal.signal(number, partial(_note_and_pass_on, handler))


def _note_and_pass_on(handler: Any, number: int, frame: FrameType | None) -> None:
    _STOPPING.set()
    handler(number, frame)
