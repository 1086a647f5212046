"""The process of the dashboard's server: Streamlit's command, which ends with our exit code after Ctrl-C.

    python -m dashboard run app.py --server.port=8501
"""

from __future__ import annotations

import signal
from types import FrameType
from typing import NoReturn

from shardscape import INTERRUPTED, end_at_once


def main() -> None:
    """Runs Streamlit's command line."""
    end_at_once()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # whoever started this may have let it wait
    from streamlit.web import cli

    def end(number: int, frame: FrameType | None) -> NoReturn:
        raise SystemExit(INTERRUPTED)

    # The server stops listening when it is interrupted, then interrupts the process as it would have been without it;
    # what is left to put away is put away when Python ends.
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, end)
    cli.main(prog_name="streamlit")


if __name__ == "__main__":
    main()
