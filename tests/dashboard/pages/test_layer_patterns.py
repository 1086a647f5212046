"""A model with a pattern of layers is drawn by every page, kept in links, and marked as modelled."""

from __future__ import annotations

import functools
import re

import pytest

import engine
from dashboard.files import report
from dashboard.link.packed_scenarios import packed, unpacked
from dashboard.link.scenario_parameters import parameters_of, read_scenario
from dashboard.pages.registry import PAGES
from engine import Exploration
from tests.dashboard.page_runs import BRIEF, html, run
from tests.engine.cost_models.calibrated.small import hybrid_model


@functools.cache
def explored() -> Exploration:
    """Eight blocks of four kinds on 8 H100."""
    limits = {"weight_offload": False, "activations_offload": False, "optimizer_offload": False}
    return engine.explore(
        hybrid_model(),
        "h100_80g_sxm",
        num_procs=8,
        max_batch_size=16,
        datatype="bfloat16",
        limits=limits,
        cost_model="calibrated",
    )


@pytest.mark.parametrize("page", [entry.name for entry in PAGES])
def test_every_page_draws_it(page: str) -> None:
    app = run(page, explored(), BRIEF)
    kinds = ("markdown", "caption", "warning", "error", "info", "code")
    shown = "\n".join([html(app), *(str(element.value) for kind in kinds for element in app.get(kind))])
    assert not re.search(r"(?i)(?<![a-z])(nan|inf)(?![a-z])", shown)


def test_links_and_reports_hold_it() -> None:
    scenario = explored().scenario
    assert read_scenario(parameters_of(scenario)).scenario == scenario
    assert unpacked(packed(scenario)).scenario == scenario
    assert "hybrid" in report.build(explored()).decode()


def test_what_is_modelled_is_named_beside_the_figures() -> None:
    text = html(run("execution", explored(), BRIEF))
    assert "never measured: gated delta net" in text


def test_an_execution_shows_its_launch_script() -> None:
    app = run("execution", explored(), BRIEF)
    assert any("--hybrid-layer-pattern" in str(each.value) for each in app.get("code"))
