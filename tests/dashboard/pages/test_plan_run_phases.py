"""Phases on the Plan a run page: ready examples as links, the answer, goals that phases cannot have, and the report."""

from __future__ import annotations

import pytest
from streamlit.testing.v1 import AppTest

from dashboard.charts.plans.run_phases import PhaseBar, phases_over_time
from dashboard.link.run_phases import link_of_life
from engine.lifetime.ready import READY_LIVES, ready_life
from engine.questions.documents.cost import PlanRunQuestion
from tests.dashboard.page_runs import html, page_alone

LINK = {
    "plan_run_model": "llama-3-8B",
    "plan_run_systems": "h100_80g_sxm",
    "plan_run_datatype": "bfloat16",
    "plan_run_tokens": "50",
    "plan_run_days": "10",
    "plan_run_batch": "128",
    "plan_run_most": "16",
    "plan_run_figures_of": "fastest",
    "plan_run_rl_steps": "20",
    "plan_run_rl_prompts": "16",
    "plan_run_sft_tokens": "0.1",
}


def run(**more: str) -> AppTest:
    app = page_alone("plan_run")
    app.session_state["_url"] = {**LINK, **{f"plan_run_{name}": value for name, value in more.items()}}
    app.run()
    assert not app.exception, [error.value for error in app.exception]
    return app


def test_phases_have_an_answer() -> None:
    app = run(phases="pretrain,sft,rl,serve", serve_when="after")
    text = html(app).replace("\xa0", " ")
    assert not app.error
    for words in ("Failures", "of the training phases", "Days against cost", "What binds"):
        assert words in text
    assert any("torchrun" in each.value for each in app.code)
    table = app.dataframe[0].value
    assert list(table["Phase"]) == ["Pre-training", "SFT", "Reinforcement learning", "Serving, afterwards"]
    unpriced = html(run(phases="sft", systems="b200_180g_sxm")).replace("\xa0", " ")
    assert "no price recorded; give one under Prices" in unpriced
    bought = html(run(phases="pretrain,sft", prices="h100_80g_sxm~buy~43800~43800~"))
    assert "held throughout" in bought
    meanwhile = run(phases="lora,serve", serve_when="meanwhile", serve_load="users", serve_users="50")
    assert list(meanwhile.dataframe[0].value["Phase"]) == ["LoRA", "Serving, meanwhile"]


def test_links_that_no_plan_has_are_sentences() -> None:
    late = run(phases="pretrain,sft", days="0.5").warning[0].value
    assert "least times of the phases add up to" in late
    assert "Least change that holds" in late
    assert not run(phases="pretrain,magic", goal="most").exception


@pytest.mark.parametrize("name", READY_LIVES)
def test_ready_examples_are_links_of_the_same_question(name: str) -> None:
    life = ready_life(name)
    asked = PlanRunQuestion.model_validate(life)
    link = {key: value for key, value in link_of_life(life).items() if value is not None}

    def parsed() -> None:
        import streamlit as st

        from dashboard.link.fields import LinkReader
        from dashboard.link.run_phases import RunPhasesLink, phase_documents

        reader = LinkReader(RunPhasesLink, "plan_run")
        for each in RunPhasesLink.model_fields:
            reader.read(each)
        url = st.session_state["_url"]
        found = phase_documents(reader.build(), float(url["plan_run_tokens"]) * 1e9, url["plan_run_model"])
        st.session_state["found"] = found

    app = AppTest.from_function(parsed)
    app.session_state["_url"] = link
    app.run()
    assert not app.exception
    assert PlanRunQuestion.model_validate({**life, "phases": app.session_state["found"]}) == asked
    assert float(link["plan_run_days"]) == asked.deadline_days


def test_bars_say_when_each_phase_is() -> None:
    bars = [PhaseBar("One", 0.0, 20.0, "8 GPUs", (18.0, 24.0)), PhaseBar("Two", 20.0, 20.1, "16 GPUs", is_service=True)]
    for mode in ("light", "dark"):
        chart = phases_over_time(bars, deadline=30.0, mode=mode)
        assert chart.alt == "2 phases over time: One from day 0 to 20; Two from day 20 to 20.1."
        assert any("deadline" in str(each.text) for each in chart.figure.layout.annotations)
    assert "No phases" in phases_over_time([]).alt
