"""The process of the dashboard's server: Streamlit's command, which ends with our exit code after Ctrl-C.

    python -m dashboard run app.py --server.port=8501
"""

from __future__ import annotations

import os
import signal
import warnings
from types import FrameType
from typing import NoReturn

from dashboard.shell.command import INTERRUPTED, end_at_once

SECONDS_TO_END = 4
"""How long what is under way may take to be put away."""


def main() -> None:
    """Runs Streamlit's command line."""
    end_at_once()
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # whoever started this may have let it wait
    from streamlit.web import cli

    def end(number: int, frame: FrameType | None) -> NoReturn:
        # Some libraries swallow what is raised while they load: then the process ends when its time is over.
        signal.signal(signal.SIGALRM, lambda number, frame: os._exit(INTERRUPTED))
        signal.alarm(SECONDS_TO_END)
        warnings.simplefilter("ignore")  # such as of a server that was about to begin
        raise SystemExit(INTERRUPTED)

    # The server stops listening when it is interrupted, then interrupts the process as it would have been without it;
    # what is left to put away is put away when Python ends.
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, end)
    cli.main(prog_name="streamlit")


if __name__ == "__main__":
    main()
