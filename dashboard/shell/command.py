"""Entry point of the command `shardscape`, before its modules are loaded.

They take a second or two to load, and Ctrl-C meanwhile would end in a traceback. There is nothing to clean up yet, so
the process ends at once, silently.
"""

import _signal as signal  # type: ignore[import-not-found] # less to load than the module around it
import os

__all__ = ["INTERRUPTED", "end_at_once", "main"]

INTERRUPTED = 130
"""Exit code after Ctrl-C, as a shell gives it."""


def end_at_once() -> None:
    """Make Ctrl-C end the process with `INTERRUPTED`, unless the process was started with it ignored."""

    def end(number: int, frame: object) -> None:
        os._exit(INTERRUPTED)

    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, end)


def main() -> None:
    """Run the command line and end the process with its exit code. A running command handles Ctrl-C itself."""
    end_at_once()
    from engine.cli.main import main as run

    run()


if __name__ == "__main__":
    main()
