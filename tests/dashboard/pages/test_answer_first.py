"""A changed question: the proven best stands before the map, and only the last question is worked on and shown."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from dashboard.jobs.explorations import ExplorationJob
from dashboard.link.scenario_parameters import read_scenario
from dashboard.words.numbers import format_value
from engine import Exploration, ExplorationCancelled, Scenario, explore_scenario
from engine.recommendation import recommend
from tests.dashboard.page_runs import ROOT, html, plots
from tests.dashboard.server import Place, own_server

SMALL = {"model": "gpt3-13B", "system": "h100_80g_nvl8", "procs": "8", "batch": "24", "type": "float16"}
LIMITS = "weight_offload:off;activations_offload:off;data_par_overlap:on"


@pytest.fixture
def place() -> Iterator[Place]:
    with own_server(None) as made:
        made.server.recommendations.least = 0  # as large spaces are searched
        yield made


class Gate:
    """Stands in for exploring: waits until a scenario may go on or its job is stopped."""

    def __init__(self) -> None:
        self.open: set[str] = set()
        self.stopped: list[str] = []
        self.begun: dict[str, threading.Event] = {}
        self._changed = threading.Event()

    def __call__(self, scenario: Scenario, *, cancel: Callable[[], bool], **more: Any) -> Exploration:
        self.begun.setdefault(scenario.key, threading.Event()).set()
        while scenario.key not in self.open:
            if cancel():
                self.stopped.append(scenario.key)
                raise ExplorationCancelled
            self._changed.wait(0.005)
        return explore_scenario(scenario, cancel=cancel, **more)


def linked(**parameters: str) -> AppTest:
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60)
    return asked(app, **parameters)


def asked(app: AppTest, **parameters: str) -> AppTest:
    for name, value in {**SMALL, "limits": LIMITS, **parameters}.items():
        app.query_params[name] = value
    return app


def ran(app: AppTest) -> AppTest:
    app.run()
    assert not app.exception, [error.value for error in app.exception]
    return app


def has_map(app: AppTest) -> bool:
    return any(plot.id.endswith("-explore_map") for plot in plots(app))


def scenario_at(**parameters: str) -> Scenario:
    return read_scenario({**SMALL, "limits": LIMITS, **parameters}).scenario


@pytest.mark.parametrize("choice", ["recommended", "fastest"])
def test_the_proven_best_stands_before_the_map_and_stays(place: Place, choice: str) -> None:
    gate = Gate()
    place.explorations.explore = gate
    place.server.board.patience = 0.0
    batch = {"recommended": "24", "fastest": "40"}[choice]
    found = recommend(scenario_at(batch=batch))
    expected = found.execution if choice == "recommended" else found.fastest
    assert expected is not None
    tile = f'aria-label="Throughput {format_value("sample_rate", expected["sample_rate"])}'
    app = linked(batch=batch, figures=choice)
    latest = time.monotonic() + 60
    while tile not in html(ran(app)):
        assert time.monotonic() < latest
    first = html(app)
    assert app.get("progress")
    assert not has_map(app)
    assert "being counted" in first
    gate.open.add(scenario_at(batch=batch).key)
    job = place.explorations.find(scenario_at(batch=batch).key)
    assert job is not None
    assert job.wait(60)
    then = html(ran(app))
    assert has_map(app)
    assert tile in then
    assert then.count('class="ss-strip') == 1
    assert "being counted" not in then
    tiles = [text.split("ss-strip")[1].split("Feasible")[0] for text in (first, then)]
    names = [re.findall(r'aria-label="([^"]+)"', text) for text in tiles]
    assert [name.partition(" tied")[0] for name in names[0][1:]] == names[1][1:], "HBM, step and run do not change"


def test_a_question_changed_twice_ends_at_the_last_and_frees_the_turn_of_the_others(place: Place) -> None:
    gate = Gate()
    place.explorations.explore = gate
    place.server.board.patience = 0.0
    scenarios = [scenario_at(batch=batch) for batch in ("16", "32", "48")]
    app = ran(linked(batch="16"))
    assert gate.begun.setdefault(scenarios[0].key, threading.Event()).wait(30)
    for batch in ("32", "48"):
        ran(asked(app, batch=batch))
    last = place.explorations.find(scenarios[2].key)
    assert isinstance(last, ExplorationJob)
    assert [place.explorations.find(each.key) for each in scenarios[:2]] == [None, None]
    gate.open.add(last.key)
    assert last.wait(30)
    assert set(gate.stopped) == set(gate.begun) - {last.key}
    assert scenarios[0].key in gate.stopped
    ran(app)
    assert last.exploration is not None
    assert f'aria-label="Feasible {last.exploration.feasible:,}' in html(app)
    gate.open.add(scenarios[0].key)  # a return to the first question asks for it again
    ran(asked(app, batch="16"))
    first = place.explorations.find(scenarios[0].key)
    assert first is not None
    assert first.wait(30)
    assert first.state == "done"
