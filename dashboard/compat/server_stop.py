"""Ask uvicorn, which serves for Streamlit, whether the server is stopping.

Checked with uvicorn 0.54. It waits for running requests before it announces its stop, so long requests must ask, or
Ctrl-C would wait for them. `tests/dashboard/shell/test_json_api.py` stops a server in the midst of a question.
"""

from __future__ import annotations

import signal

__all__ = ["is_stopping"]


def is_stopping() -> bool:
    """Return whether the object that handles the stop signal has received it; False without such an object."""
    server = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
    return bool(getattr(server, "should_exit", False))
