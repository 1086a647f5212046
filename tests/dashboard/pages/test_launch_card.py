"""The Launch card: whatever execution a page shows, as a configuration to start it with, and what that cannot say."""

from __future__ import annotations

import pytest
from streamlit.testing.v1 import AppTest

import engine
from dashboard.link.scenario_parameters import read_scenario
from dashboard.queries.tie_breaking import plainest
from engine import launch
from engine.executions.execution_names import execution_name
from engine.questions.documents.explorations import FiguresQuestion
from engine.questions.shown_executions import find_shown
from engine.recommendation.shown import FIGURES_OF, FiguresOf
from tests.dashboard.page_runs import again, exploration, plainly, run

KEY = "execution_launch"


def test_the_card_has_the_configuration_of_the_execution_shown() -> None:
    found = exploration()
    app = run("execution", found, {"figures": "fastest"})
    assert not app.exception
    first = found.reductions.best()
    assert first is not None
    shown_first = plainest(found, found.key, first[0], "sample_rate").id
    (best,) = found.evaluate_ids([shown_first]).to_dict("records")
    assert app.selectbox(key=f"{KEY}_framework").options == [each.title for each in launch.FRAMEWORKS.values()]
    for name in launch.FRAMEWORKS:
        app.selectbox(key=f"{KEY}_framework").set_value(name)
        app = again(app, found)
        told = " ".join(each.value for each in (*app.markdown, *app.caption, *app.info)).replace("\\", "")
        try:
            written = launch.write(best, found.scenario.model, framework=name)
        except launch.LaunchError as error:
            refused = str(error)
        else:
            refused = ""
        if refused:
            assert refused in told
            continue
        shown = [each.value for each in app.code]
        assert all(file.text.strip() in (text.strip() for text in shown) for file in written.files)
        for sentence in (*written.not_expressible, *written.not_modelled, *written.remarks):
            assert sentence.split(":")[0] in told
        assert written.version in told


CALIBRATED = {"model": "llama-3-8B", "system": "h100_80g_sxm", "procs": "8", "batch": "32", "type": "bfloat16"}


def told(app: AppTest) -> str:
    """All sentences of a page."""
    return " ".join(plainly(each.value) for each in (*app.markdown, *app.caption, *app.info)).replace("\\", "")


@pytest.mark.parametrize("figures", FIGURES_OF)
def test_a_card_offers_the_execution_of_the_framework_that_pages_show(figures: FiguresOf) -> None:
    scenario = read_scenario({**CALIBRATED, "limits": "tensor_par:2,4"}).scenario
    found = engine.explore_scenario(scenario, workers=1)
    own = launch.with_framework(scenario, "deepspeed")
    shown, other = (
        find_shown(own, FiguresQuestion(figures_of=each)) for each in sorted(FIGURES_OF, key=lambda it: it != figures)
    )
    assert shown is not None
    assert other is not None
    assert shown.id != other.id
    fastest = launch.find_framework_cost(scenario, "deepspeed").fastest
    assert fastest is not None
    app = run("execution", found, {"figures": figures, "id": str(fastest["id"])})
    app.selectbox(key=f"{KEY}_framework").set_value("deepspeed")
    app = again(app, found)
    assert "DeepSpeed does not run this execution as it is" in told(app)
    assert f"{FIGURES_OF[figures]} with DeepSpeed: {execution_name(shown.execution)}, " in told(app)
    app.button(key=f"{KEY}_framework_best").click()
    app = again(app, found)
    link = app.session_state["_url"]
    assert (link["framework"], link["limits"], link["id"]) == ("deepspeed", "tensor_par:2,4", str(shown.id))
    assert read_scenario(link).scenario == own


def test_the_map_says_what_the_framework_costs() -> None:
    scenario = read_scenario({**CALIBRATED, "framework": "deepspeed"}).scenario
    app = run("explore", engine.explore_scenario(scenario, workers=1))
    assert launch.find_framework_cost(scenario, "deepspeed").sentence in told(app)
    free = run("explore", engine.explore_scenario(launch.with_framework(scenario, "any"), workers=1))
    assert "fastest of all" not in told(free)
