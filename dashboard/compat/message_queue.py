"""Keep all messages of a page when a fragment runs again before they have reached the browser.

It leans on how Streamlit clears the messages that wait for a browser; checked with Streamlit 1.67.0, and held by
tests/dashboard/compat/test_compat.py.
"""

from __future__ import annotations

from streamlit.runtime.forward_msg_queue import ForwardMsgQueue

__all__ = ["keep_whole"]


def keep_whole() -> None:
    """Make Streamlit deliver all waiting messages when a fragment runs again.

    Streamlit drops the fragment's own messages then and keeps the messages of fragments inside it. Their parents never
    reach the browser, whose page ends in an error and stays blank. It happens after a click, or a rerun that the page
    asks for, before a slow server has sent the first run. The fragment's next run draws over the delivered messages.
    No message is merged with one of the run before.
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
