"""A cost model that no page has heard of is drawn by all of them: nothing asks which one it is."""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import pytest

import engine
from dashboard.jobs.searches import Here
from dashboard.jobs.server import searches
from dashboard.jobs.studies import studies
from dashboard.link.packing import packed, unpacked
from dashboard.link.scenario_parameters import parameters_of, read_scenario
from dashboard.pages.registry import PAGES
from dashboard.queries.document_sheets import representation
from dashboard.queries.scenario_edits import altered, switch
from dashboard.words.changes import text_of
from dashboard.words.scenarios import sentence_of
from engine import Exploration, whatif
from engine.cost_models.registry import COST_MODELS
from tests import toy
from tests.dashboard.pages import again, html, run


@pytest.fixture(autouse=True)
def _known() -> Iterator[None]:
    """The toy is known in this process only, so searches are made here."""
    studies.clear()
    with toy.known(), patch("dashboard.jobs.server.Apart", Here):
        searches.clear()
        yield
        studies.clear()
    searches.clear()


@functools.cache
def explored(model: str = "gpt3-13B", procs: int = 16) -> Exploration:
    """A model on H100; one of a trillion weights does not fit on four of them."""
    return engine.explore(
        model, "h100_80g_sxm", num_procs=procs, max_batch_size=32, datatype="bfloat16", cost_model=toy.TOY.name
    )


FOUND = {
    "runs": lambda: explored(),
    "experts": lambda: explored("deepseek-v3", 512),
    "nothing fits": lambda: explored("megatron-1T", 4),
}


@pytest.mark.parametrize("page", [entry.name for entry in PAGES])
@pytest.mark.parametrize("found", FOUND.values(), ids=list(FOUND))
def test_every_page_draws_a_cost_model_that_it_does_not_know(page: str, found: Any) -> None:
    app = run(page, found())
    kinds = ("markdown", "caption", "warning", "error", "info", "code")
    shown = "\n".join([html(app), *(str(element.value) for kind in kinds for element in app.get(kind))])
    assert not re.search(r"(?i)(?<![a-z])(nan|inf)(?![a-z])", shown)


def test_an_execution_is_told_as_far_as_the_cost_model_tells_it() -> None:
    """Its figures have formulas of their own only; cards that it has nothing for are not drawn."""
    app = run("execution", explored())
    text = html(app)
    assert "How a figure comes about" in text
    assert "Pipeline schedule" in text
    for card in ("What the step is made of", "What a GPU sustains", "Who talks to whom", "Roofline"):
        assert card not in text
    assert any("as a whole" in each.value for each in app.caption)


def test_what_if_answers_and_studies() -> None:
    found = explored()
    peak = whatif.parameter(found.scenario, "matrix").value
    app = run("whatif", found, {"whatif_changes": text_of({"matrix": 2.0 * peak})})
    assert "100" in html(app)
    latest = time.monotonic() + 60
    while any(not each.done.is_set() for each in studies()._runs.values()):
        assert time.monotonic() < latest
        time.sleep(0.05)
    assert len(again(app, found).get("plotly_chart")) > 1


def test_scenarios_keep_it_and_switch_to_it() -> None:
    scenario = explored().scenario
    assert read_scenario(parameters_of(scenario)).scenario == scenario
    assert unpacked(packed(scenario)).scenario == scenario
    assert "toy" in sentence_of(scenario)
    for name in COST_MODELS:
        other = switch(scenario, name)
        assert other.cost_model == name
        assert switch(other, scenario.cost_model) == scenario
    assert altered(scenario, model=engine.Scenario.of(
        "deepseek-v3", scenario.system, num_procs=512, max_batch_size=512, datatype="bfloat16"
    ).model, num_procs=512).cost_model == toy.TOY.name  # fmt: skip
    assert "in the toy cost model" in [scope for _, scope, _ in representation(scenario.model)]
