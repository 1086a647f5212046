"""What-if's searches in a worker's process: the engine's results, nothing of it in the server, and what happens when
either process dies."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

import engine.whatif.prepared_spaces as spaces
import engine.whatif.search as searching
import engine.whatif.studies as engine_studies
from dashboard.jobs.questions import Questions, Unanswered
from dashboard.jobs.studies import Studies
from dashboard.jobs.whatif_answers import StudyName
from dashboard.jobs.worker import Worker
from dashboard.pages.whatif import answer as whatif_answer
from dashboard.pages.whatif import board as whatif_board
from dashboard.settings import settings_from
from dashboard.words.numbers import format_value
from engine import ExplorationCancelled, Scenario, recommendation, whatif
from engine.executions.codes import OFFLOADS
from engine.questions.changes import change_question
from engine.whatif import PointSequence
from tests.dashboard.page_runs import again, exploration, html, plainly, run


def scenario(which: str = "exact") -> Scenario:
    """A space of some thousand executions."""
    system = {"exact": "h100_80g_nvl8", "calibrated": "h100_80g_sxm"}[which]
    return Scenario.of(
        "gpt3-13B",
        system,
        num_procs=16,
        max_batch_size=32,
        datatype="float16",
        limits={**dict.fromkeys(OFFLOADS, False), "tensor_par_overlap": "none"},
    )


def endless() -> Scenario:
    """A space of 6 billion executions, whose search takes some tens of seconds."""
    return Scenario.of(
        "deepseek-v3",
        "h100_80g_sxm",
        num_procs=1024,
        max_batch_size=1024,
        datatype="float16",
        limits={
            "batch_size": {"min": 1},
            "expert_overlap": [True, False],
            "pipeline_overlap": [True, False],
            "launch": ["fused", "graphs", "eager"],
            "gradient_datatype": ["float32", "bfloat16"],
        },
    )


class Asked:
    """Questions and studies of one worker."""

    def __init__(self, *, apart: bool = True) -> None:
        self.worker = Worker(apart=apart)
        self.questions, self.studies = Questions(worker=self.worker), Studies(worker=self.worker)

    def answer(self, scenario: Scenario, changes: dict[str, float]) -> whatif.Answer:
        return self.questions.ask(change_question(scenario, changes))

    def study(self, name: StudyName, *arguments: Any) -> PointSequence[Any]:
        return self.studies.made(name, *arguments, largest=1e9)

    def close(self) -> None:
        self.worker.close()
        self.questions.board.close()


@pytest.fixture(scope="module")
def apart() -> Iterator[Asked]:
    made = Asked()
    yield made
    made.close()


@pytest.fixture(scope="module")
def here() -> Asked:
    return Asked(apart=False)


def told(answer: whatif.Answer) -> str:
    """All of an answer but what finding it took, as text, in which NaN equals itself.

    How many executions are evaluated depends on what was asked before: what was best elsewhere is tried first.
    """
    left_out = ("seconds", "evaluated", "fastest", "scenario")
    own = [getattr(answer, each.name) for each in fields(answer) if each.name not in left_out]
    return repr([own, answer.scenario.key, told(answer.fastest) if getattr(answer, "fastest", None) else None])


def test_what_was_begun_ahead_is_the_answer_and_nothing_is_begun_while_somebody_waits(here: Asked) -> None:
    base, questions = scenario(), here.questions
    value = whatif.parameter(base, "hbm_bandwidth").value
    asked, other = (change_question(base, {"hbm_bandwidth": factor * value}) for factor in (1.25, 1.5))
    questions.ahead(asked)
    begun = questions.board.jobs(questions.kind)[-1]
    assert questions.ask(asked) is begun.answer
    begun.begin()  # somebody waits for it
    questions.ahead(other)
    assert questions.board.jobs(questions.kind)[-1] is begun
    begun.end("done")
    questions.ahead(other)
    assert questions.board.jobs(questions.kind)[-1].wait(60)


@pytest.mark.parametrize("which", ["exact", "calibrated"])
def test_answers_and_studies_are_those_of_this_process(
    apart: Asked, here: Asked, which: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All kinds of them, from the beginning and from the middle; and nothing is searched here meanwhile."""
    base = scenario(which)
    more = {"hbm_bandwidth": 2 * whatif.parameter(base, "hbm_bandwidth").value}
    every: list[tuple[StudyName, tuple[Any, ...]]] = [
        ("sensitivity", (base, (0.9, 1.1), ("hbm_bandwidth", "hbm_capacity"))),
        ("sweep", (base, "hbm_capacity", [20.0, 80.0, 160.0], more)),
        ("sweep_two", (base, "hbm_capacity", [40.0, 80.0], "hbm_bandwidth", [1e3, 2e3])),
        ("shown_sizes", (base, [8, 16, 24], "kept")),
    ]

    def found(one: Asked) -> list[Any]:
        studies = [one.study(kind, *asked) for kind, asked in every]
        return [
            told(one.answer(base, {})),
            told(one.answer(base, more)),
            *([len(study), repr(list(study)), repr(list(study.after(2)))] for study in studies),
        ]

    expected = found(here)
    with monkeypatch.context() as patch:
        for module, name in (
            (searching, "searcher_of"),
            (searching, "best_of"),
            (spaces, "ready"),
            (engine_studies, "searcher_of"),
            (engine_studies, "best_of"),
        ):
            patch.setattr(module, name, None)
        assert found(apart) == expected


def test_the_page_searches_nothing_itself(apart: Asked, here: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither for its answer nor for its four studies."""
    assert settings_from({}).process
    found = exploration()
    best = here.answer(found.scenario, {"hbm_bandwidth": 4321.0}).best
    assert best is not None
    monkeypatch.setattr(whatif_answer, "questions", lambda: apart.questions)
    monkeypatch.setattr(whatif_board, "studies", lambda: apart.studies)
    for name in ("searcher_of", "best_of"):
        monkeypatch.setattr(engine_studies, name, None)
    page = run("whatif", found, {"whatif_changes": "hbm_bandwidth:4321"})
    assert plainly(format_value("sample_rate", best["sample_rate"])) in plainly(html(page))
    every = apart.studies.board.jobs(apart.studies.kind)
    assert all(one.wait(120) for one in every)
    again(page, found)
    assert [one.problem for one in every] == [""] * 4
    assert all(one.found for one in every)


def test_a_refusal_is_said_in_the_words_of_the_engine(apart: Asked) -> None:
    with pytest.raises(ValueError, match="hbm_capacities") as said:
        whatif.reoptimise(scenario(), {"hbm_capacities": 1.0})
    with pytest.raises(Unanswered) as there:
        apart.answer(scenario(), {"hbm_capacities": 1.0})
    assert str(there.value) == str(said.value)


def test_a_question_that_takes_long_holds_up_neither_others_nor_studies_and_a_death_is_told(
    apart: Asked, here: Asked
) -> None:
    """A study that was under way goes on in the process that takes its place, and the question can be asked again."""
    points = iter(apart.study("shown_sizes", scenario(), [8, 16, 24], "kept"))
    first, expected = next(points), told(here.answer(scenario(), {"hbm_capacity": 60.0}))
    with ThreadPoolExecutor(1) as threads:
        slow = threads.submit(apart.answer, endless(), {})
        assert told(apart.answer(scenario(), {"hbm_capacity": 60.0})) == expected
        second = next(points)
        assert not slow.done()
        before = apart.worker.pid
        assert before is not None
        os.kill(before, signal.SIGKILL)
        with pytest.raises(Unanswered, match="The process that was searching has ended") as problem:
            slow.result(60)
    page = AppTest.from_function(_card, kwargs={"job": problem.value.job}).run()
    page.button(key="job_again_search").click().run()
    assert apart.questions.board.find(apart.questions.kind, problem.value.job.key) is None
    third = next(points)
    assert repr([first, second, third]) == repr(list(recommendation.shown_sizes(scenario(), [8, 16, 24])))
    assert apart.worker.pid != before


def _card(job: object) -> None:
    from dashboard.jobs.job import Job
    from dashboard.widgets.job_card import job_card

    assert isinstance(job, Job)
    job_card(job, "me")


_SERVER = """
import json, sys, threading
from dashboard.jobs.questions import Questions
from dashboard.jobs.worker import Worker
from engine import Scenario
from engine.questions.changes import change_question
long, short = (change_question(Scenario.from_document(each), {}) for each in json.loads(sys.argv[1]))
worker = Worker()
questions = Questions(worker=worker)
threading.Thread(target=questions.ask, args=(long,), daemon=True).start()
questions.ask(short)
print(worker.pid, flush=True)
threading.Event().wait()
"""


def test_the_process_ends_with_the_server_whatever_it_is_doing() -> None:
    """Closed, or killed."""
    closed = Asked()
    closed.worker.start()
    closed.close()
    with pytest.raises(ExplorationCancelled, match="is being stopped"):
        next(iter(closed.study("shown_sizes", scenario(), [8], "kept")))
    server = subprocess.Popen(
        [sys.executable, "-c", _SERVER, json.dumps([endless().to_document(), scenario().to_document()])],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[3],
        text=True,
    )
    assert server.stdout is not None
    other = int(server.stdout.readline())
    server.kill()
    server.communicate()
    latest = time.monotonic() + 60
    for one in (closed.worker.pid, other):
        state = Path(f"/proc/{one}/stat")
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            while state.read_text().split()[2] != "Z":
                assert time.monotonic() < latest
                time.sleep(0.05)
