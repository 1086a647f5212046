"""The Layer-wise page: plans of profiles and of library models, what it draws, says and offers."""

from __future__ import annotations

import functools
import io
import json
from collections.abc import Mapping
from unittest.mock import patch

import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from dashboard.charts.plans.layer_plan import device_grid, plan_curves, stage_memory_bars, stage_timeline
from dashboard.jobs.layer_plans import Planned, found_plan
from dashboard.jobs.worker import Task
from dashboard.link.scenario_parameters import read_scenario
from engine.planners.layerwise import LayerwiseProblem, plan
from engine.planners.layerwise.cluster import PRESETS
from engine.planners.layerwise.own_stages import valued
from engine.planners.layerwise.profiles.examples import example
from engine.planners.layerwise.profiles.reading import profile_text
from engine.planners.layerwise.profiles.tables import csv_text
from engine.planners.layerwise.strategy import strategy, strategy_text, user_stages
from engine.planners.layerwise.tabulated import candidates_table
from engine.questions.documents.layers import LayersQuestion, SystemShare
from tests.dashboard.page_runs import html, page_alone


def run(link: Mapping[str, str], **session: object) -> AppTest:
    app = page_alone("layerwise")
    app.session_state["_url"] = dict(link)
    for name, value in session.items():
        app.session_state[name] = value
    app.run()
    assert not app.exception, [error.value for error in app.exception]
    return app


def test_the_page_plans_an_example_and_says_what_it_looked_at() -> None:
    app = run({"layerwise_mode": "released"})
    told = html(app)
    assert "14.04" in told
    assert "over one device; 2 stages" in told
    assert "12.47" in told  # the same devices, each alone
    assert "All candidates" in told
    app = run({"layerwise_mode": "released", "layerwise_cluster": "B", "layerwise_profile": "vgg19"})
    assert "2 stages" in html(app)


def test_a_link_that_cannot_be_is_a_sentence() -> None:
    app = run({"layerwise_microbatch": "900", "layerwise_batch": "4"})
    assert "larger than the global batch" in app.error[0].value
    assert not run({"layerwise_batch": "99999999", "layerwise_mode": "released"}).exception
    assert not run({"layerwise_from": "file"}).exception


QUESTION = LayersQuestion(global_batch=64, profile="bert_48", profile_batch=2.0)
PROBLEM = LayerwiseProblem(example("bert_48"), 2, 64, PRESETS["A"], mode="paper")


@functools.cache
def planned() -> Planned:
    """What is found of the problem that most tests look at."""
    return found_plan(Task(), QUESTION)


def test_charts_show_the_plan() -> None:
    found = planned()
    plan = found.plan
    machines = [("", each.devices) for each in plan.problem.cluster.machines]
    grid = device_grid([stage.devices for stage in plan.stages], machines)
    assert "2 stages on 16 of 16" in grid.alt
    assert [list(trace.text) for trace in grid.figure.data] == [["1"] * 8, ["2"] * 8]
    passes = pd.DataFrame(
        [
            (stage, kind, number, 0.0, 1.0)
            for stage in (0, 1)
            for kind in ("forward", "backward")
            for number in range(6)
        ],
        columns=["stage", "kind", "microbatch", "start", "took"],
    )
    timeline = stage_timeline(passes, 12.0)
    assert len(timeline.figure.data[0].x) == 12
    assert timeline.alt.startswith("6 microbatches take 12 s")
    assert "Stage 2 is the fullest: 3 of 4 GB" in stage_memory_bars([1.0, 1.0], [2.0, 3.0], [4.0, 4.0], "dark").alt
    assert found.batches is not None
    assert "4,096" in plan_curves(found.batches, 64).alt
    assert found.devices is not None
    assert "devices 16" in plan_curves(found.devices, 16, "dark").alt
    document = json.loads(json.dumps(strategy(found.plan)))
    assert valued(found.plan, user_stages(document, 16, len(found.plan.states))) == pytest.approx(found.plan.speedup)


def test_files_of_a_plan_come_back() -> None:
    """The strategy as a plan of one's own, the profile as one that is planned alike, tables as they were."""
    found = planned()
    stages = user_stages(json.loads(strategy_text(found.plan)), 16, len(found.plan.states))
    assert valued(found.plan, stages) == pytest.approx(found.plan.speedup)
    profile = profile_text(csv_text(PROBLEM.profile))
    again = plan(profile, profile_batch=2, global_batch=64, machines=[8, 16], mode="paper")
    assert again.speedup == pytest.approx(found.plan.speedup)
    assert found.batches is not None
    for table in (candidates_table(found.plan), found.batches):
        pd.testing.assert_frame_equal(
            pd.read_csv(io.StringIO(table.to_csv(index=False)), keep_default_na=False),
            table.fillna(""),
            check_dtype=False,
            rtol=1e-12,
        )


def test_a_library_model_is_set_beside_the_cost_model() -> None:
    share = SystemShare(system="h100_80g_sxm", num_procs=8)
    question = LayersQuestion(global_batch=32, model="llama-3-8B", systems=[share], tensor_par=2)
    found = found_plan(Task(), question)
    assert any("Best of all executions" in line for line in found.told)
    assert found.model is not None
    assert found.model.layout is not None


def test_a_plan_of_a_library_model_opens_as_an_execution_with_its_stages() -> None:
    link = {
        "layerwise_from": "model",
        "layerwise_model": "llama-3-70B",
        "layerwise_gpus": "64",
        "layerwise_tensor": "8",
        "layerwise_batch": "128",
    }
    with patch("streamlit.switch_page") as switched:
        app = run(link, _pages={"execution": "the page Execution"})
        app.button(key="layerwise_execution").click().run()
    assert not app.exception
    assert switched.called
    opened = read_scenario(switched.call_args.kwargs["query_params"]).scenario
    assert opened.limits["stage_layout"] == ["Et*21|(t*20|)*2t*19L"]
    assert (opened.model.name, opened.limits["pipeline_par"], opened.limits["tensor_par"]) == ("llama-3-70B", [4], [8])
