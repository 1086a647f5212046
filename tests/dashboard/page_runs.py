"""What the tests of pages share: one small exploration, and a page run on it without a browser.

All that leans on the inside of Streamlit's AppTest is here; checked with Streamlit 1.67.0.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from streamlit.testing.v1 import AppTest
from streamlit.testing.v1.local_script_runner import LocalScriptRunner
from streamlit.util import calc_hash

import engine
from dashboard.jobs import server
from dashboard.link import page_links
from dashboard.widgets import menus
from dashboard.widgets.chart import NAME
from engine import Exploration, Scenario

ROOT = Path(__file__).parent.parent.parent
SMALL: dict[str, Any] = {"num_procs": 16, "max_batch_size": 32, "datatype": "float16"}
TIGHT = {
    "weight_offload": False,
    "activations_offload": False,
    "optimizer_offload": False,
    "activation_recompute": "none",
    "optimizer_sharding": False,
}


FEW: dict[str, Any] = {"activations_offload": False, "optimizer_offload": False, "data_par_overlap": True}

COARSE = (0.5, 1.0, 2.0)
"""The factors by which studies vary a parameter, of which there are more on a server."""


BRIEF = {"schedules_ranks": "2", "schedules_microbatches": "4", "schedules_chunks": "2", "layerwise_mode": "released"}
"""Parameters with which pages of planners look for less: they say the same words of schedules of so few actions, and of
the quick search's plan."""


@functools.cache
def exploration(limits: str = "") -> Exploration:
    """GPT-3 13B on 16 H100, with weights that may be offloaded and nothing else, and gradients exchanged meanwhile.

    `limits` "tight" leaves cells in which nothing fits, "hopeless" leaves nothing at all, "none" every other choice.
    """
    if limits == "hopeless":
        return engine.explore("megatron-1T", "h100_80g_nvl8", **SMALL)
    chosen = {"tight": TIGHT, "none": {"microbatch_size": [2, 16, 32]}}.get(limits, FEW)
    return engine.explore("gpt3-13B", "h100_80g_nvl8", **SMALL, limits=chosen)


def wait_for_the_end(runner: LocalScriptRunner, timeout: float = 3) -> None:
    """Waits until a page's thread has ended, in place of AppTest's own `require_widgets_deltas`.

    That one wakes every millisecond to look through all events, and takes the interpreter from the page each time. It
    ends a page that takes too long in the same way and with the same words.

    Args:
        runner: what runs the page's script.
        timeout: how long to wait at most [s].

    Raises:
        RuntimeError: when the page takes longer.
    """
    thread = runner._script_thread
    assert thread is not None
    thread.join(timeout)
    if thread.is_alive():
        runner.request_stop()
        runner.join()
        raise RuntimeError(f"AppTest script run timed out after {timeout}(s)")


def page_alone(name: str, timeout: float = 60) -> AppTest:
    """A page without the frame around it: without navigation there are no links to other pages."""
    return AppTest.from_string(
        f"from dashboard.pages import registry\nfrom dashboard.shell import frame\nframe.draw(registry.page({name!r}))",
        default_timeout=timeout,
    )


def explored_by_server(scenario: Scenario) -> Exploration:
    """Return the exploration that pages of this process show for a scenario."""
    job = server.explorations().request(scenario, "test")
    assert job.wait(60)
    assert job.exploration is not None
    return job.exploration


def visit(app: AppTest, name: str) -> AppTest:
    """The whole application at another page. AppTest itself switches to pages that are files only."""
    assert name in {str(info.get("url_pathname") or page_links.START) for info in app._registered_pages.values()}
    app._page_hash = calc_hash(name)
    return app.run()


def run(page: str, found: Exploration, link: Mapping[str, str] | None = None, *, opened: Iterable[str] = ()) -> AppTest:
    """A page, run on an exploration that is ready.

    link: parameters of the page's own and the selection. opened: menus that are, by name; others are shut.
    """
    app = page_alone(page)
    app.session_state["_url"] = dict(link or {})
    for menu in opened:
        open_menu(app, menu)
    return again(app, found)


def open_menu(app: AppTest, name: str) -> None:
    """Has a menu of a page be open when the page runs next."""
    app.session_state[f"{menus.OPENED}{name}"] = True


def again(app: AppTest, found: Exploration) -> AppTest:
    """The page run once more after a widget was changed."""
    with (
        patch("dashboard.widgets.needed_exploration.require_exploration", lambda: found),
        patch("dashboard.link.state.current_scenario", lambda: found.scenario),
    ):
        app.run()
    assert not app.exception, [error.value for error in app.exception]
    return app


def html(app: AppTest) -> str:
    """All HTML of a page as one text."""
    return "\n".join(str(element.value) for element in app.html)


def plainly(text: object) -> str:
    """A text with plain spaces where a number and its unit are held together."""
    return str(text).replace("\u00a0", " ")


class Plot(NamedTuple):
    """A chart of Plotly's on a page."""

    id: str
    """Ends with its key."""
    spec: str
    clickable: bool
    alt: str

    @property
    def figure(self) -> dict[str, Any]:
        """What is drawn."""
        found: dict[str, Any] = json.loads(self.spec)
        return found


def plots(app: AppTest) -> list[Plot]:
    """All charts of a page."""
    messages = [element.proto for element in app.get("bidi_component")]
    shown = [(each.id, json.loads(each.json)) for each in messages if each.component_name == NAME]
    return [Plot(name, told["figure"], told["clickable"], told["alt"]) for name, told in shown]


def progress(app: AppTest) -> list[str]:
    """What the bars of a page say."""
    return [plainly(element.proto.text) for element in app.get("progress")]


def elements(app: AppTest) -> Iterator[Any]:
    """All elements of a page, what holds others before what it holds."""

    def below(block: Any) -> Iterator[Any]:
        for child in block.children.values():
            yield child
            if hasattr(child, "children"):
                yield from below(child)

    return below(app._tree)


def figure(app: AppTest, key: str) -> dict[str, Any]:
    """The Plotly figure of a chart by the key of its element."""
    for plot in plots(app):
        if plot.id.endswith(f"-{key}"):
            return plot.figure
    raise KeyError(key)
