"""Stage layouts on pages: typed, in links, as filters and choices, in files, and as the lengths of a picture."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

import engine
from dashboard.link import scenario_parameters
from dashboard.queries.explorations import options_of
from dashboard.queries.filters import parse
from dashboard.words.executions import choices
from engine import Exploration, Scenario
from engine.columns import fields_of
from engine.cost_models.registry import cost_model_of
from engine.executions.files import read_executions
from engine.simulate.schedule import schedule
from engine.store import Condition
from tests.dashboard.pages import figure, html, run

DEEPSEEK = "Et*3|(tt|)*29m|L"
LIMITS: dict[str, Any] = {
    "stage_layout": ["balanced", "Et*3|(tt|)*29,m|L", "even", "first_8_last_5"], "tensor_par": [1],
    "pipeline_par": [8, 16], "microbatch_size": [1], "expert_par": [32],
    "activation_recompute": ["none", "full"], "weight_offload": False,
    "activations_offload": False, "optimizer_offload": False,
}  # fmt: skip


@functools.cache
def found() -> Exploration:
    """DeepSeek-V3 on 512 H200s in stages of several layouts."""
    return engine.explore(
        "deepseek-v3", "h200_141g_sxm", num_procs=512, max_batch_size=512, datatype="bfloat16", limits=LIMITS,
        cost_model="calibrated",
    )  # fmt: skip


def best(layout: str) -> dict[str, Any]:
    """The best execution with a layout."""
    rows = found().rows.top(1, "sample_rate", where=[Condition("stage_layout", "=", layout)])
    (number,) = rows["id"].to_pylist()
    return dict(found().evaluate_ids([number]).iloc[0])


def test_every_layout_is_explored_stored_and_asked_for() -> None:
    scenario = found().scenario
    assert scenario.limits["stage_layout"] == [DEEPSEEK, "balanced", "even", "first_8_last_5"]
    assert options_of(found(), "stage_layout") == ["even", "balanced", DEEPSEEK, "first_8_last_5"]
    for layout in (DEEPSEEK, "even", "balanced", "first_8_last_5"):
        assert best(layout)["stage_layout"] == layout
    assert best("first_8_last_5")["pipeline_par"] == 8
    assert (best(DEEPSEEK)["pipeline_par"], best(DEEPSEEK)["pipeline_interleaving"]) in {(16, 2), (8, 4)}


def test_a_link_has_the_layouts_and_a_filter_takes_one() -> None:
    scenario = found().scenario
    read = scenario_parameters.read_scenario(scenario_parameters.parameters_of(scenario))
    assert read.problems == ()
    assert read.scenario == scenario
    assert Scenario.from_document(scenario.to_document()) == scenario
    filters, problems = parse(f"stage_layout:{DEEPSEEK},even")
    assert problems == []
    assert filters[0].values == (DEEPSEEK, "even")
    assert parse("stage_layout:sideways")[1]


def test_the_editor_of_limits_shows_and_takes_any_layout() -> None:
    def script() -> None:
        from dashboard.shell.scenario import limits as limits_editor

        limits_editor._dialog()

    app = AppTest.from_function(script, default_timeout=60)
    app.session_state["_url"] = scenario_parameters.parameters_of(found().scenario)
    app.run()
    assert not app.exception
    box = app.multiselect(key="limit_stage_layout")
    assert set(box.value) == {"even", "balanced", DEEPSEEK, "first_8_last_5"}
    app.session_state["limit_stage_layout"] = ["first_8_last_5"]
    app.run()
    app.button(key="limits_apply").click().run()
    now = scenario_parameters.read_scenario(app.session_state["_url"]).scenario
    assert now.limits["stage_layout"] == ["first_8_last_5"]


@pytest.mark.parametrize("page", ["explore", "execution", "results", "compare", "memory", "whatif", "pareto"])
def test_every_page_tells_layouts(page: str) -> None:
    link = {"results_where": f"stage_layout:{DEEPSEEK}", "id": str(best(DEEPSEEK)["id"])}
    shown = run(page, found(), link)
    assert not any("stage_layout" in message.value for message in (*shown.error, *shown.warning))
    assert page != "execution" or DEEPSEEK in html(shown)


def test_words_of_an_execution_name_its_layout() -> None:
    assert ("stage layout", "first 8 last 5") in choices(best("first_8_last_5"), found().scenario.system)
    assert ("stage layout", DEEPSEEK) in choices(best(DEEPSEEK), found().scenario.system)
    assert "stage layout" not in dict(choices(best("even"), found().scenario.system))


def test_the_picture_has_stages_as_long_as_their_blocks() -> None:
    row = best("first_8_last_5")
    scenario = found().scenario
    account = cost_model_of(scenario).account(scenario.model, scenario.system, row, scenario.used_calibration)
    shares = account.stage_shares()
    assert shares is not None
    drawn = schedule(row, 61, shares=shares)
    forward = drawn.tasks[drawn.tasks["kind"] == "forward"]
    lengths = (forward["end"] - forward["start"]).groupby(forward["stage"]).median()
    assert lengths.to_numpy() == pytest.approx(lengths.max() * np.array(shares) / max(shares), rel=1e-9)
    # 8 blocks of which 3 are dense, six stages of 8, and 5 with the head.
    assert lengths[7] < lengths[0] < lengths[1]
    assert lengths[1:7].nunique() == 1 or np.ptp(lengths[1:7]) < 1e-9 * lengths.max()
    assert drawn.tasks["end"].max() <= row["total_time"] * (1 + 1e-9)
    page = run("execution", found(), {"id": str(row["id"])})
    assert "Pipeline schedule" in html(page)
    assert figure(page, "execution_gantt")["data"]


def test_tables_of_executions_are_written_and_read_with_their_layouts(tmp_path: Any) -> None:
    table = pd.DataFrame([best(layout) for layout in (DEEPSEEK, "first_8_last_5")])
    plain = table[[column.name for column in fields_of("calibrated")]]
    plain.to_csv(tmp_path / "given.csv", index=False)
    plain.to_parquet(tmp_path / "given.parquet")
    plain.to_json(tmp_path / "given.json", orient="records")
    for file in sorted(tmp_path.glob("given.*")):
        (again,) = read_executions(file)
        assert again["stage_layout"].tolist() == [DEEPSEEK, "first_8_last_5"]
