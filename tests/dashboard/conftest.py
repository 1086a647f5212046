"""Settings shared by the tests of the dashboard."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
import pytest
from streamlit.components.v2 import manifest_scanner
from streamlit.testing.v1 import local_script_runner

from dashboard.charts.elements.drawing import Drawing, Part
from dashboard.jobs import server
from dashboard.pages import registry
from dashboard.pages.whatif import inputs
from dashboard.widgets import menus
from tests.dashboard.page_runs import COARSE, wait_for_the_end


@pytest.fixture(autouse=True, scope="session")
def _known_parameters() -> None:
    """Whoever reads a link knows what belongs to the pages, as in a server."""
    assert registry.PAGES


@pytest.fixture(autouse=True, scope="session")
def _no_processes_unasked() -> Iterator[None]:
    """Pages compute in this process, store nothing, and wait for results instead of showing progress.

    All three are settings of a server; tests of workers, stores and progress set their own.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHARDSCAPE_PROCESS", "off")
        patch.setenv("SHARDSCAPE_PATIENCE", "55")
        patch.setenv("SHARDSCAPE_STORE", "off")
        yield


@pytest.fixture(autouse=True)
def _main_module() -> Iterator[None]:
    """Puts `__main__` back: Streamlit's AppTest leaves a page's script there, which spawned processes would run."""
    before = sys.modules["__main__"]
    yield
    sys.modules["__main__"] = before


@pytest.fixture(autouse=True)
def _nobody_looks_any_more() -> Iterator[None]:
    """Has what a page asked for wait when its test has ended: a server would go on for some time, in case of another
    visit."""
    yield
    server.server().board.rest()


@pytest.fixture(autouse=True, scope="session")
def _checked_charts() -> Iterator[None]:
    """Has Plotly check every kind of property that traces and layouts have in a test, which servers send unchecked.

    Those are of a kind that have the same name and values of the same kinds: of some hundred kinds the tests draw some
    hundred thousand, and checking one takes longer than drawing it. Plotly looks at each of them by itself.
    """
    send, checked, sent = Drawing.to_json, set[str](), set[int]()

    def unknown(part: Part, of: str) -> dict[str, Any]:
        found = {}
        for name, value in part.items():
            kind = f"{of} {name} {type(value) if name == ANY else kind_of(value, name in SAID)!r}"
            if kind not in checked:
                checked.add(kind)
                found[name] = value
        return found

    def send_checked(drawing: Drawing) -> str:
        text = send(drawing)
        if hash(text) in sent:  # the same chart, to the last sign
            return text
        traces = [(trace["type"], unknown(trace, trace["type"])) for trace in drawing.traces]
        new = [{**part, "type": kind} for kind, part in traces if part]
        layout = unknown(drawing.layout, "layout")
        if new or layout:
            assert Drawing(new, layout).figure is not None  # or Plotly says which property it does not know
        sent.add(hash(text))
        return text

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Drawing, "to_json", send_checked)
        yield


ANY = "customdata"
"""The property whose elements may be anything."""
SAID = {ANY, "hovertemplate", "hovertext", "ids", "name", "text", "texttemplate", "ticktext"}
"""The properties whose texts may be any."""
COLOUR = re.compile("#[0-9a-fA-F]{6}")


def kind_of(part: Any, said: bool = False) -> Any:
    """What Plotly can find wrong with a part of a figure: its properties, words that it may not know, and whether
    numbers are below 0 or above 1; of a list each kind of element once. said: whether words may be any."""
    if isinstance(part, Mapping):
        return {name: kind_of(value, name in SAID) for name, value in part.items()}
    if isinstance(part, np.ndarray | pd.Series | pd.DataFrame):
        part = np.asarray(part).ravel()
        if part.dtype.kind in "iuf" and len(part):
            return [repr(type(part[0].item()))], bool(part.min() < 0), bool(part.max() > 1)
        part = part.tolist()
    every = part if isinstance(part, list | tuple) else (part,)
    types = set(map(type, every))
    if types <= {int, float}:
        return sorted(map(repr, types)), min(every, default=0) < 0, max(every, default=0) > 1
    if types == {str}:
        return str if said else sorted({"#" if COLOUR.fullmatch(each) else each for each in set(every)})
    if every is part and not (said and not types & {list, tuple, dict}):
        return sorted({repr(kind_of(each, said)) for each in every})
    return sorted(map(repr, types))


@pytest.fixture(autouse=True, scope="session")
def _components_looked_for_once() -> Iterator[None]:
    """Has Streamlit read what the installed packages say of themselves once: AppTest does at every run of a page.

    A server does so when it starts. Nothing is installed between two tests.
    """
    once = functools.cache(manifest_scanner.scan_component_manifests)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(manifest_scanner, "scan_component_manifests", lambda: list(once()))
        yield


@pytest.fixture(autouse=True, scope="session")
def _studies_of_few_points() -> Iterator[None]:
    """Has What-if vary parameters over three values each: whoever draws the page starts its studies."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inputs, "COARSE", COARSE)
        yield


@pytest.fixture(autouse=True, scope="session")
def _pages_are_waited_for() -> Iterator[None]:
    """Has AppTest wait for the end of a page's thread, where it would look every millisecond whether it is there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local_script_runner, "require_widgets_deltas", wait_for_the_end)
        yield


@pytest.fixture(autouse=True, scope="session")
def _menus_are_shut() -> Iterator[None]:
    """Has menus be shut until a test opens them with `page_runs.open_menu`, as a browser has them: what reads pages
    without drawing them would get all that is in them, which takes a tenth of the time of a page."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(menus, "in_browser", lambda: True)
        yield
