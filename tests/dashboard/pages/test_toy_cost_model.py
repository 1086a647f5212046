"""A cost model that no page has heard of is drawn by all of them: nothing asks which one it is."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

import engine
from dashboard.files import comparison_report, report
from dashboard.link.comparison import Comparison
from dashboard.link.packed_scenarios import packed, unpacked
from dashboard.link.scenario_parameters import parameters_of, read_scenario
from dashboard.pages.registry import PAGES
from dashboard.queries.document_sheets import representation
from dashboard.queries.scenario_edits import altered, switch_cost_model
from dashboard.words.changes import text_of
from dashboard.words.numbers import format_value
from dashboard.words.scenarios import sentence_of
from engine import Exploration, whatif
from engine.cost_models.registry import COST_MODELS
from tests import toy
from tests.dashboard.page_runs import BRIEF, ROOT, html, plots, run
from tests.dashboard.pages.test_cost_model import limits_dialog, shown
from tests.dashboard.pages.test_explore import settled as settled_exploration
from tests.dashboard.pages.test_whatif import studied
from tests.dashboard.server import own_server


@pytest.fixture(autouse=True, scope="module")
def _known(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The toy is known in this process only, so explorations and searches are made here."""
    with toy.known(), own_server(tmp_path_factory.mktemp("toy")):
        yield


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


ELSEWHERE = {"elastic", "intra_operator", "codesign", "serving", "guide", "validation", "calibrate", "library"}
"""Pages with questions of their own, which look the same whatever was explored."""


@pytest.mark.parametrize(
    ("found", "page"),
    [
        pytest.param(found, entry.name, id=f"{name}-{entry.name}")
        for name, found in FOUND.items()
        for entry in PAGES
        if name == "runs" or entry.name not in ELSEWHERE
    ],
)
def test_every_page_draws_a_cost_model_that_it_does_not_know(page: str, found: Any) -> None:
    app = run(page, found(), BRIEF)
    kinds = ("markdown", "caption", "warning", "error", "info", "code")
    shown = "\n".join([html(app), *(str(element.value) for kind in kinds for element in app.get(kind))])
    assert not re.search(r"(?i)(?<![a-z])(nan|inf)(?![a-z])", shown)


def test_an_execution_is_told_as_far_as_the_cost_model_tells_it() -> None:
    """Its figures have formulas of their own only; cards that it has nothing for are not drawn."""
    app = run("execution", explored())
    text = html(app)
    assert "Formula of a figure" in text
    assert "Pipeline schedule" in text
    for card in ("Parts of the step", "Sustained rates of a GPU", "Who talks to whom", "Roofline"):
        assert card not in text
    assert any("as a whole" in each.value for each in app.caption)


def test_what_if_answers_and_studies() -> None:
    found = explored()
    peak = whatif.parameter(found.scenario, "matrix").value
    app = studied({"whatif_changes": text_of({"matrix": 2.0 * peak})}, found)
    assert "100" in html(app)
    assert len(plots(app)) > 1


def test_scenarios_keep_it_and_switch_to_it() -> None:
    scenario = explored().scenario
    assert read_scenario(parameters_of(scenario)).scenario == scenario
    assert unpacked(packed(scenario)).scenario == scenario
    assert "toy" in sentence_of(scenario)
    for name in COST_MODELS:
        other = switch_cost_model(scenario, name)
        assert other.cost_model == name
        assert switch_cost_model(other, scenario.cost_model) == scenario
    assert (
        altered(
            scenario,
            model=engine.Scenario.of(
                "deepseek-v3", scenario.system, num_procs=512, max_batch_size=512, datatype="bfloat16"
            ).model,
            num_procs=512,
        ).cost_model
        == toy.TOY.name
    )
    assert "in the toy cost model" in [scope for _, scope, _ in representation(scenario.model)]


def test_the_sentence_offers_it_and_its_limits() -> None:
    made = explored().scenario
    app = shown(made)
    assert "toy: operations over the peak" in app.radio(key="sentence_cost").options
    assert app.radio(key="sentence_cost").value == toy.TOY.name
    assert "sentence_calibration" not in {box.key for box in app.selectbox}
    app.radio(key="sentence_cost").set_value("calculon").run()
    assert not app.exception
    limits = limits_dialog(made)
    keys = {group.key for group in limits.get("button_group")} | {box.key for box in limits.multiselect}
    assert {"limit_tensor_par", "limit_activation_recompute"} <= keys
    assert "limit_zero_stage" not in keys


@pytest.mark.parametrize("found", FOUND.values(), ids=list(FOUND))
def test_reports_are_written_of_it(found: Any) -> None:
    text = report.build(found()).decode()
    assert "toy" in text
    other = explored()
    both = comparison_report.build(Comparison((found().scenario, other.scenario)), [found(), other])
    assert toy.TOY.name in both.decode()


def test_a_link_is_explored_and_shown_as_a_whole() -> None:
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60)
    for name, value in parameters_of(explored().scenario).items():
        app.query_params[name] = value
    settled_exploration(app)
    assert not app.error
    best = explored().best
    assert best is not None
    assert format_value("sample_rate", best["sample_rate"]) in html(app)
    assert app.radio(key="sentence_cost").value == toy.TOY.name
