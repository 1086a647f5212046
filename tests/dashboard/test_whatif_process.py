"""What-if's searches in a process of their own: the engine's results, nothing of it in the server, and what happens
when either process dies."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import engine.whatif_search as searching
import engine.whatif_space as spaces
from dashboard import whatif_answer, whatif_cards
from dashboard.format import format_value
from dashboard.settings import settings_from
from dashboard.whatif_process import Apart, Here, Kind
from dashboard.whatif_studies import studies
from engine import Scenario, whatif
from engine.parallel import WorkerError
from tests.dashboard.pages import again, exploration, html, plainly, run


def scenario(which: str = "exact") -> Scenario:
    """A space of some hundred thousand executions."""
    system = {"exact": "h100_80g_nvl8", "calibrated": "h100_80g_sxm"}[which]
    return Scenario.of("gpt3-13B", system, num_procs=16, max_batch_size=32, datatype="float16")


def endless() -> Scenario:
    """A space of 6 billion executions, whose search takes some tens of seconds."""
    return Scenario.of(
        "deepseek-v3", "h100_80g_sxm", num_procs=1024, max_batch_size=1024, datatype="float16",
        limits={"batch_size": {"min": 1}, "expert_overlap": [True, False], "pipeline_overlap": [True, False],
                "launch": ["fused", "graphs", "eager"], "gradient_datatype": ["float32", "bfloat16"]},
    )  # fmt: skip


@pytest.fixture(scope="module")
def apart() -> Iterator[Apart]:
    made = Apart()
    yield made
    made.close()


def told(answer: whatif.Answer) -> str:
    """All of an answer but the time it took, as text, in which NaN equals itself."""
    return repr([getattr(answer, name) for name in answer.__slots__ if name != "seconds"])


@pytest.mark.parametrize("which", ["exact", "calibrated"])
def test_answers_and_studies_are_those_of_this_process(
    apart: Apart, which: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All kinds of them, from the beginning and from the middle; and nothing is searched here meanwhile."""
    base = scenario(which)
    more = {"hbm_bandwidth": 2 * whatif.parameter(base, "hbm_bandwidth").value}
    every: list[tuple[Kind, tuple[Any, ...]]] = [
        ("sensitivity", (base, (0.9, 1.1), ("hbm_bandwidth", "hbm_capacity"))),
        ("sweep", (base, "hbm_capacity", [20.0, 80.0, 160.0], more)),
        ("sweep_two", (base, "hbm_capacity", [40.0, 80.0], "hbm_bandwidth", [1e3, 2e3])),
        ("sizes", (base, [8, 16, 24], "kept")),
    ]

    def found(one: Here) -> list[Any]:
        studies = [one.study(kind, *asked, largest=1e9) for kind, asked in every]
        return [told(one.answer(base, {})), told(one.answer(base, more)),
                *([len(study), repr(list(study)), repr(list(study.after(2)))] for study in studies)]  # fmt: skip

    here = found(Here())
    with monkeypatch.context() as patch:
        for module, name in ((searching, "searcher_of"), (searching, "best_of"), (spaces, "ready"),
                             (whatif, "searcher_of"), (whatif, "best_of")):  # fmt: skip
            patch.setattr(module, name, None)
        assert found(apart) == here


def test_the_page_searches_nothing_itself(apart: Apart, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither for its answer nor for its four studies."""
    assert settings_from({}).process
    found = exploration()
    best = Here().answer(found.scenario, {"hbm_bandwidth": 4321.0}).best
    assert best is not None
    for module in (whatif_answer, whatif_cards):
        monkeypatch.setattr(module, "searches", lambda: apart)
    for name in ("searcher_of", "best_of"):
        monkeypatch.setattr(whatif, name, None)
    page = run("whatif", found, {"whatif_changes": "hbm_bandwidth:4321"})
    assert plainly(format_value("sample_rate", best["sample_rate"])) in plainly(html(page))
    latest = time.monotonic() + 120
    while not (every := [one for one in studies()._runs.values() if found.key in one.key]) or any(
        not one.done.is_set() for one in every
    ):
        assert time.monotonic() < latest
        page = again(page, found)
    assert [one.problem for one in every] == [""] * 4
    assert all(one.found for one in every)


def test_a_refusal_is_said_in_the_words_of_the_engine(apart: Apart) -> None:
    with pytest.raises(ValueError, match="hbm_capacities") as here:
        Here().answer(scenario(), {"hbm_capacities": 1.0})
    with pytest.raises(ValueError, match="hbm_capacities") as there:
        apart.answer(scenario(), {"hbm_capacities": 1.0})
    assert str(there.value) == str(here.value)


def test_a_question_that_takes_long_holds_up_neither_others_nor_studies_and_a_death_is_told(apart: Apart) -> None:
    """A study that was under way goes on in the process that takes its place."""
    points = iter(apart.study("sizes", scenario(), [8, 16, 24], "kept", largest=1e9))
    first = next(points)
    with ThreadPoolExecutor(1) as threads:
        slow = threads.submit(apart.answer, endless(), {})
        assert told(apart.answer(scenario(), {})) == told(Here().answer(scenario(), {}))
        second = next(points)
        assert not slow.done()
        before = apart._process.pid
        os.kill(before, signal.SIGKILL)
        with pytest.raises(WorkerError, match="The process that was searching has ended"):
            slow.result(60)
    third = next(points)
    assert repr([first, second, third]) == repr(list(whatif.sizes(scenario(), [8, 16, 24])))
    assert apart._process.pid != before


_SERVER = """
import threading
from dashboard.whatif_process import Apart
made = Apart()
from tests.dashboard.test_whatif_process import endless, scenario
threading.Thread(target=made.answer, args=(endless(), {}), daemon=True).start()
made.answer(scenario(), {})
print(made._process.pid, flush=True)
threading.Event().wait()
"""


def test_the_process_ends_with_the_server_whatever_it_is_doing() -> None:
    """Closed, or killed."""
    closed = Apart()
    closed.close()
    with pytest.raises(WorkerError, match="is being stopped"):
        closed.answer(scenario(), {})
    server = subprocess.Popen(
        [sys.executable, "-c", _SERVER], stdout=subprocess.PIPE, cwd=Path(__file__).parents[2], text=True
    )
    assert server.stdout is not None
    other = int(server.stdout.readline())
    server.kill()
    server.communicate()
    latest = time.monotonic() + 60
    for one in (closed._process.pid, other):
        state = Path(f"/proc/{one}/stat")
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            while state.read_text().split()[2] != "Z":
                assert time.monotonic() < latest
                time.sleep(0.05)
