"""Keep all messages of a page when a fragment runs again before they have reached the browser.

It leans on how Streamlit clears the messages that wait for a browser; checked with Streamlit 1.67.0, and held by
tests/dashboard/compat/test_compat.py.
"""

from __future__ import annotations

from streamlit.runtime.forward_msg_queue import ForwardMsgQueue

__all__ = ["keep_whole"]


def keep_whole() -> None:
    """Make Streamlit deliver all waiting messages when a fragment runs again.

    Streamlit drops the fragment's own messages then, and keeps those of fragments inside it: these are placed among
    elements that the browser never hears of, at which its page ends in an error and stays blank. It happens where
    somebody clicks, or a part of the page asks for the next, before a slow server has sent all of the first run. What
    is kept is drawn over by the fragment's run a moment later. No message is merged with one of the run before.
    """
    clear = ForwardMsgQueue.clear

    def cleared(
        self: ForwardMsgQueue, retain_lifecycle_msgs: bool = False, fragment_ids_this_run: list[str] | None = None
    ) -> None:
        if retain_lifecycle_msgs and fragment_ids_this_run:
            self._delta_index_map = {}
        else:
            clear(self, retain_lifecycle_msgs, fragment_ids_this_run)

    ForwardMsgQueue.clear = cleared  # type: ignore[method-assign]
