"""The panel "Your run": on every page about a scenario, from the link alone, with one figure that was measured."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from streamlit.testing.v1 import AppTest

from dashboard.link.own_run import execution_from_text, execution_to_text, own_run_parameters
from dashboard.link.scenario_parameters import parameters_of, read_scenario
from dashboard.pages.registry import PAGES
from engine import Scenario, launch
from engine.columns import fields_of
from engine.launch.standing import evaluate_execution
from engine.questions.documents.executions import StandingQuestion
from engine.questions.standings import find_standing
from engine.recommendation.own_run import describe_distance, describe_steps
from engine.validation.explanations import find_explanations
from tests.dashboard import page_runs
from tests.dashboard.page_runs import exploration, explored_by_server, html, plainly

SCENARIO = Scenario.of(
    "llama-3-8B",
    "h100_80g_sxm",
    num_procs=16,
    max_batch_size=64,
    datatype="bfloat16",
    limits={"tensor_par": [1, 2, 4], "microbatch_size": [1], "weight_offload": False, "activations_offload": False},
)
RUN = launch.evaluable(
    {"tensor_par": 4, "pipeline_par": 2, "data_par": 2, "batch_size": 64, "microbatch_size": 1, "datatype": "bfloat16"}
    | {"activation_recompute": "full", "tensor_par_comm_type": "rs_ag"}
)
LINK = {**parameters_of(SCENARIO), **own_run_parameters(RUN, "megatron")}


def opened(page: str, link: Mapping[str, str]) -> AppTest:
    """A page with its panel and nothing below."""
    explored_by_server(read_scenario(link).scenario)
    app = AppTest.from_function(_draw_frame, default_timeout=60, kwargs={"page": page})
    app.session_state["_url"] = dict(link)
    return again(app)


def _draw_frame(page: str) -> None:
    from dataclasses import fields
    from types import SimpleNamespace
    from typing import cast

    from dashboard.pages import registry
    from dashboard.pages.contract import Page, View
    from dashboard.shell import frame

    class BarePage(Page):
        """A page of the registry that draws nothing itself."""

        def view(self) -> View:
            return cast(View, SimpleNamespace(parse=lambda *needed: None, render=lambda view: None))

    found = registry.page(page)
    frame.draw(BarePage(**{each.name: getattr(found, each.name) for each in fields(found)}))


def again(app: AppTest) -> AppTest:
    app.run()
    assert not app.exception, [error.value for error in app.exception]
    return app


def said(app: AppTest) -> str:
    every = (*app.markdown, *app.caption, *app.warning)
    return plainly(" ".join(str(each.value) for each in every)).replace("\\", "").replace("`", "")


@pytest.mark.parametrize("page", [each.name for each in PAGES if each.about_scenario])
def test_every_page_about_the_scenario_has_the_run_of_the_link(page: str) -> None:
    stands = find_standing(
        StandingQuestion(execution=RUN, model="llama-3-8B", system="h100_80g_sxm", limits=dict(SCENARIO.limits))
    )
    flags = launch.flag_changes(stands, framework="megatron")
    app = opened(page, LINK)
    assert "TP 4 × PP 2 × DP 2 · Megatron-LM" in html(app)
    told = said(app)
    assert stands.faster is not None
    assert f"place {stands.faster + 1:,} of {stands.feasible:,} that run" in told
    assert describe_distance(stands) in told
    assert describe_steps(stands, flags) in told
    assert all(str(changed) in told for step in flags for changed in step[:3])
    app.button(key="own_run_forget").click()
    again(app)
    assert "Your run" not in html(app)
    assert not {"run", "run_from", "own"} & set(app.session_state["_url"])


def test_the_run_stays_when_the_scenario_changes() -> None:
    """Other limits rank it among others; other GPUs do not, and lead back."""
    fewer = {**LINK, "limits": "tensor_par:1,2;weight_offload:off"}
    app = opened("memory", fewer)
    found = explored_by_server(read_scenario(fewer).scenario)
    row = evaluate_execution(found.scenario, RUN)
    faster = int((found.rows.table(["sample_rate"])["sample_rate"].to_numpy() > row["sample_rate"]).sum())
    assert f"place {faster + 1:,} of {found.feasible:,} that run" in said(app)
    assert not [button for button in app.button if button.key == "own_run_show"]  # the limits leave it out
    app = opened("memory", {**LINK, "procs": "32"})
    assert "It is of 16 GPUs, batch 64, bfloat16; this scenario is of 32 GPUs" in said(app)
    app.button(key="own_run_setting").click()
    again(app)
    assert app.session_state["_url"]["procs"] == "16"
    assert "that run" in said(app)


def test_a_run_by_its_number_is_ones_own_too() -> None:
    found = explored_by_server(SCENARIO)
    chosen = int(found.top(300)["id"].iloc[-1])
    app = opened("memory", {**parameters_of(SCENARIO), "own": str(chosen)})
    assert "Your run" in html(app)
    app.button(key="own_run_show").click()
    again(app)
    assert app.session_state["_url"]["id"] == str(chosen)


def test_any_execution_can_be_declared_ones_own() -> None:
    found = exploration()
    chosen = int(found.top(40)["id"].iloc[-1])
    app = page_runs.run("execution", found, {"id": str(chosen)})
    assert "Your run" not in html(app)
    app.button(key="own_run_declare").click()
    page_runs.again(app, found)
    assert "Your run" in html(app)
    assert not [button for button in app.button if button.key == "own_run_declare"]
    (row,) = found.evaluate_ids([chosen]).to_dict("records")
    stated = execution_from_text(app.session_state["_url"]["run"])
    assert all(stated[column.name] == row[column.name] for column in fields_of("calculon"))
    assert "place" in said(app)


def test_a_measured_figure_is_inside_the_error_or_explained() -> None:
    """A figure that is the prediction of another setting is explained by that setting."""
    row = evaluate_execution(SCENARIO, RUN)
    inside = opened("memory", {**LINK, "run_measured": f"{row['total_time'] * 1.01:.4f}"})
    assert "1 % slower than the predicted" in said(inside)
    assert "inside the error" in said(inside)
    other = evaluate_execution(SCENARIO, {**RUN, "attention_kernel": "flash1"})
    outside = said(opened("memory", {**LINK, "run_measured": f"{other['total_time']:.4f}"}))
    assert "outside the error" in outside
    assert "a step with Attention kernel native → FlashAttention 1" in outside
    (first, *_) = find_explanations(SCENARIO, row, "total_time", other["total_time"])
    assert (first.changes, first.difference) == ({"attention_kernel": ("native", "flash1")}, 0.0)
    other = evaluate_execution(SCENARIO, {**RUN, "activation_recompute": "none"})
    gib = other["proc_mem_tier1_cap_req"] / 2**30
    memory = said(opened("memory", {**LINK, "run_measured": f"{gib:.3f}", "run_measured_as": "memory"}))
    assert f"Measured {gib:.3g} GiB" in memory
    assert "outside the error" in memory
    assert f"It would be predicted at {gib:.3g}" in memory
    assert "GiB with Recompute full → " in memory
    assert "more than the memory of a GPU" in said(
        opened("memory", {**LINK, "run_measured": "90", "run_measured_as": "memory"})
    )


def test_an_execution_is_the_same_after_its_text() -> None:
    names = [column.name for column in fields_of(SCENARIO.cost_model)]
    for row in SCENARIO.space.table(range(0, SCENARIO.space.total, SCENARIO.space.total // 40)).to_dict("records"):
        execution = launch.evaluable({name: row[name] for name in names})
        assert execution_from_text(execution_to_text(execution)) == execution


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("tensor_par:4", "does not say pipeline_par"),
        ("nonsense:1", "is no field of an execution"),
        ("tensor_par:0;pipeline_par:1;data_par:1;batch_size:1;microbatch_size:1", "must be a whole number from 1"),
        ("tensor_par:x;pipeline_par:1;data_par:1;batch_size:1;microbatch_size:1", "must be a whole number from 1"),
        (f"{execution_to_text(RUN)};datatype:unheard", "it must be one of"),
    ],
)
def test_a_run_that_cannot_be_is_left_out_with_a_sentence(text: str, reason: str) -> None:
    app = opened("memory", {**LINK, "run": text})
    assert "Your run" not in html(app)
    (told,) = app.session_state["_url_problems"].values()
    assert reason in told
