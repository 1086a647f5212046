"""What leans on uvicorn, which serves for Streamlit: whether the server was asked to stop.

Checked with uvicorn 0.54. It waits for answers under way before it tells anybody that it stops; what takes long has to
ask, or Ctrl-C would wait for it. `tests/dashboard/shell/test_json_api.py` stops a server in the midst of a question.
"""

from __future__ import annotations

import signal

__all__ = ["is_stopping"]


def is_stopping() -> bool:
    """Returns whether the server was asked to stop, by the object that answers the signal to; False where none does."""
    server = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
    return bool(getattr(server, "should_exit", False))
