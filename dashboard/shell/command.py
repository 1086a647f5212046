"""The command `shardscape` from its first moment on, when little more than Python is loaded.

What a command needs takes a second or two to load, and Ctrl-C in the midst of that would end in a traceback. Nothing is
under way then that would have to be put away, so the process ends at once, without a word.
"""

import _signal as signal  # type: ignore[import-not-found] # less to load than the module around it
import os

__all__ = ["INTERRUPTED", "end_at_once", "main"]

INTERRUPTED = 130
"""Exit code after Ctrl-C, as a shell gives it."""


def end_at_once() -> None:
    """Makes Ctrl-C end the process with `INTERRUPTED`, unless it was started so that Ctrl-C is not for it."""

    def end(number: int, frame: object) -> None:
        os._exit(INTERRUPTED)

    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, end)


def main() -> None:
    """Runs the command line and ends the process with its exit code. While a command runs, it is told of Ctrl-C."""
    end_at_once()
    from engine.cli.main import main as run

    run()


if __name__ == "__main__":
    main()
