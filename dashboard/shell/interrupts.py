"""End of Streamlit's command after Ctrl-C, without the message and exit code 1 that it has by itself.

`tests/engine/cli/test_interrupts.py` interrupts a server.
"""

from __future__ import annotations

import atexit
import os
import runpy
import signal
import sys
import warnings
from types import FrameType
from typing import Final, NoReturn

__all__ = ["run_streamlit"]

SECONDS_TO_END: Final = 4
"""Time for work under way to clean up [s]."""


def run_streamlit(interrupted: int) -> None:
    """Run Streamlit's command line; after Ctrl-C the process ends silently with the exit code `interrupted`.

    The remaining clean-up runs when Python ends.
    """
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # whoever started this may have let it wait
    ends: list[int] = []

    def leave() -> None:
        # Without Python's own end, which gives the alarm back to the system and aborts where a thread is in a library.
        if ends:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(interrupted)

    # The first to be registered is the last to run: all that is put away has been by then.
    atexit.register(leave)

    def end(number: int, frame: FrameType | None) -> NoReturn:
        ends.append(number)
        # Some libraries swallow what is raised while they load: then the process ends when its time is over.
        signal.signal(signal.SIGALRM, lambda number, frame: os._exit(interrupted))
        signal.alarm(SECONDS_TO_END)
        warnings.simplefilter("ignore")  # such as of a server that was about to begin
        raise SystemExit(interrupted)

    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, end)
    runpy.run_module("streamlit", run_name="__main__")  # as `python -m streamlit` does
