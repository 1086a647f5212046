"""The Plan a run page: every goal, own prices, and links that cannot be."""

from __future__ import annotations

import pytest
from streamlit.testing.v1 import AppTest

from dashboard.charts.plans.run_plan import RunPoint, days_against_cost
from tests.dashboard.page_runs import html, page_alone

LINK = {
    "plan_run_model": "llama-3-8B",
    "plan_run_systems": "h100_80g_sxm",
    "plan_run_datatype": "bfloat16",
    "plan_run_tokens": "50",
    "plan_run_days": "4",
    "plan_run_batch": "128",
    "plan_run_gpus": "32",
    "plan_run_budget": "9",
    "plan_run_figures_of": "fastest",
}


def run(**more: str) -> AppTest:
    app = page_alone("plan_run")
    app.session_state["_url"] = {**LINK, **{f"plan_run_{name}": value for name, value in more.items()}}
    app.run()
    assert not app.exception, [error.value for error in app.exception]
    return app


@pytest.mark.parametrize("goal", ["deadline", "budget", "both", "gpus", "most"])
def test_every_goal_has_an_answer(goal: str) -> None:
    app = run(goal=goal)
    assert not app.error
    text = html(app).replace("\xa0", " ")
    assert "Wall-clock time" in text
    assert "Days against cost" in text
    assert "50.0 bn" in text or goal == "most"
    assert any("torchrun" in each.value for each in app.code)


def test_own_prices_of_the_link_count() -> None:
    text = html(run(goal="gpus", prices="h100_80g_sxm~buy~43800~43800~"))
    assert "bought" in text
    assert "share of the purchase" in text
    assert "no price" in run(goal="gpus", prices="h100_80g_sxm~buy~~~").error[0].value


def test_links_that_cannot_be_are_sentences() -> None:
    assert "Nothing reaches the goal" in run(tokens="9999999", days="0.01").warning[0].value
    assert not run(prices="h100~steal~1~2~", goal="gpus", gpus="1.5", systems="nonsense").exception


def test_the_curve_says_its_ends_and_limits() -> None:
    points = [
        RunPoint("H100", gpus, "TP 1", 100.0 / gpus, 1e6 + gpus, None, None, mark, gpus > 8)
        for gpus, mark in ((8, ""), (16, "chosen"), (32, "knee"))
    ]
    for mode in ("light", "dark"):
        chart = days_against_cost(points, "USD", days=10.0, cost=1.5e6, mode=mode)
        assert "3.12 days for 1.00 M USD to 12.5 days" in chart.alt.replace("\xa0", " ")
        assert "million USD" in str(chart.figure.layout.yaxis.title.text)
        assert {each.text for each in chart.figure.layout.annotations} >= {
            "16 GPUs",
            "deadline",
            "budget",
        }
    assert "Nothing runs" in days_against_cost([], "USD").alt
