"""Which process runs which tests, with `pytest -n`."""

from __future__ import annotations

from typing import Final

from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

__all__ = ["BrowserBesideTheRest"]

BROWSER: Final = "tests/browser/"


class BrowserBesideTheRest(LoadFileScheduling):
    """Gives every file to one process, and the files of the browser to the first one as long as there are others.

    A file's tests share what was explored for them, and the browser's files share a server and a browser, which a
    second process would have to start again. Tests in the browser wait often: the rest computes meanwhile.
    """

    def _assign_work_unit(self, node: WorkerController) -> None:
        """Puts the file to be assigned first in the queue."""
        wanted = node is self.nodes[0]
        files = [file for file in self.workqueue if file.startswith(BROWSER) == wanted]
        if files:
            self.workqueue.move_to_end(files[0], last=False)
        super()._assign_work_unit(node)
