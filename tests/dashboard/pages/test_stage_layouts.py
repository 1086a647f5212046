"""Stage layouts on pages: typed, in links, as filters and choices, in files, and as the lengths of a picture."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

import engine
from dashboard.link import scenario_parameters
from dashboard.queries.explorations import options_of
from dashboard.queries.filters import parse
from dashboard.queries.own_stages import bytes_of_ranks, ranks_of
from dashboard.queries.schedules import ScheduleQuestion, find_outcome
from dashboard.words.executions import choices
from engine import Exploration, Scenario
from engine.columns import fields_of
from engine.cost_models.account import ExecutionAccount
from engine.cost_models.chunk_times import microbatches_of
from engine.cost_models.registry import cost_model_of
from engine.executions.files import read_executions
from engine.executions.layer_splits import LayerSplitError
from engine.simulate import replay
from engine.simulate.execution_stages import cut_for, cuts_of
from engine.simulate.schedule import schedule
from engine.simulate.schedules.contract import StagePlacement
from engine.simulate.stage_replay import stage_replay
from engine.store import StoreCondition
from tests.dashboard.page_runs import figure, html, run

DEEPSEEK = "Et*3|(tt|)*29m|L"
LIMITS: dict[str, Any] = {
    "stage_layout": ["balanced", "Et*3|(tt|)*29,m|L", "even", "first_8_last_5"],
    "tensor_par": [1],
    "pipeline_par": [8, 16],
    "microbatch_size": [1],
    "expert_par": [32],
    "activation_recompute": ["none", "full"],
    "weight_offload": False,
    "activations_offload": False,
    "optimizer_offload": False,
}


@functools.cache
def found() -> Exploration:
    """DeepSeek-V3 on 512 H200s in stages of several layouts."""
    return engine.explore(
        "deepseek-v3",
        "h200_141g_sxm",
        num_procs=512,
        max_batch_size=512,
        datatype="bfloat16",
        limits=LIMITS,
        cost_model="calibrated",
    )


def best(layout: str) -> dict[str, Any]:
    """The best execution with a layout."""
    rows = found().rows.top(1, "sample_rate", where=[StoreCondition("stage_layout", "=", layout)])
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
        from dashboard.link.shared import parse_shared
        from dashboard.shell.scenario import limits as limits_editor

        limits_editor._dialog(parse_shared().scenario)

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


def account_of(row: dict[str, Any]) -> ExecutionAccount:
    scenario = found().scenario
    return cost_model_of(scenario).account(scenario.model, scenario.system, row, scenario.used_calibration)


def test_stages_are_told_with_what_they_hold_however_the_model_is_cut() -> None:
    row = best("first_8_last_5")
    account = account_of(row)
    stages = account.model_stages(8, 1)
    assert [part[:2] for part in stages[0].parts] == [("dense blocks", 3), ("blocks with experts", 5), ("embedding", 1)]
    assert [part[:2] for part in stages[7].parts] == [("blocks with experts", 5), ("head and loss", 1)]
    assert all(sum(part.seconds for part in stage.parts) == pytest.approx(stage.seconds) for stage in stages)
    shares = account.stage_shares()
    assert shares is not None
    seconds = np.array([stage.seconds for stage in stages])
    assert seconds / seconds.max() == pytest.approx(np.array(shares) / max(shares))
    # Dense blocks exchange no tokens, so that there is nothing to hide.
    hidden = [stage.seconds - stage.pair for stage in stages]
    assert hidden[0] / 5 == pytest.approx(hidden[1] / 8)
    for ranks, chunks, layout in ((16, 2, DEEPSEEK), (8, 2, "balanced"), (4, 3, "even"), (1, 1, "even")):
        again = account.model_stages(ranks, chunks, layout)
        assert len(again) == ranks * chunks
        assert sum(stage.seconds for stage in again) == pytest.approx(seconds.sum())
    with pytest.raises(LayerSplitError, match="61 blocks are too few for 64"):
        account.model_stages(8, 8, "even")
    with pytest.raises(LayerSplitError, match="there are 8 x 2"):
        account.model_stages(8, 2, DEEPSEEK)


def test_a_pipeline_of_told_stages_takes_as_long_as_the_cost_model_says() -> None:
    """The execution's own schedule with the seconds of its stages, against the closed form without messages."""
    row = best("first_8_last_5")
    stages = account_of(row).model_stages(int(row["pipeline_par"]), 1)
    times = {
        "F": [each.forward for each in stages],
        "B": [each.input_gradient for each in stages],
        "W": [each.weight_gradient for each in stages],
    }
    told = replay("1f1b", stages=8, microbatches=microbatches_of(row), times=times).makespan
    parts = {part.name: part.seconds for part in account_of(row).parts()}
    ends = (
        "DP communication",
        "Tied embeddings",
        "Offload",
        "Optimizer step",
        "Stragglers",
        "Host",
        "PP communication",
    )
    assert told == pytest.approx(sum(each for name, each in parts.items() if name not in ends), rel=0.002)


def test_the_picture_is_the_replay_of_what_stages_take_and_says_how_far_the_step_is_off() -> None:
    row = best("first_8_last_5")
    account = account_of(row)
    told = stage_replay(row, account)
    assert told is not None
    assert abs(told.apart) < 0.002
    drawn = schedule(row, 61, model_stages=account.model_stages(8, 1))
    lengths = drawn.tasks.assign(took=drawn.tasks["end"] - drawn.tasks["start"]).groupby(["stage", "kind"])["took"]
    forward = lengths.median().xs("forward", level="kind").to_numpy()
    expected = np.array([stage.forward for stage in account.model_stages(8, 1)])
    # With messages, and shortened to the closed form where that is shorter.
    assert np.ptp(forward - expected) < 1e-3 * expected.max()
    assert drawn.tasks["end"].max() <= row["total_time"] * (1 + 1e-9)
    listed = best(DEEPSEEK)
    further = stage_replay(listed, account_of(listed))
    assert further is not None
    assert abs(further.apart) < 0.16
    page = run("execution", found(), {"id": str(listed["id"])})
    assert any("by replay of its stages" in each.value for each in page.caption)


@pytest.mark.parametrize("layout", ["even", "first_8_last_5", DEEPSEEK, "balanced"])
def test_memory_of_ranks_by_the_replay_is_the_cost_models(layout: str) -> None:
    row = best(layout)
    ranks, chunks = int(row["pipeline_par"]), int(row["pipeline_interleaving"])
    (cut,) = (each for each in cuts_of(account_of(row), ranks, chunks, None) if each.chunks == chunks)
    found_there = replay(
        str(row["schedule"]),
        stages=ranks,
        microbatches=microbatches_of(row),
        chunks=chunks,
        times={"F": 1, "B": 1, "W": 1},
    )
    held = bytes_of_ranks(cut, found_there, sharded=True)
    assert max(whole for _, whole in held) == pytest.approx(row["proc_mem_tier1_cap_req"], rel=1e-9)
    twice = replay("dualpipe", stages=4, microbatches=8, times={"F": 1, "B": 1, "W": 1})
    (both,) = (each for each in cuts_of(account_of(row), 4, 2, "even") if each.chunks == 1)
    directions = bytes_of_ranks(both, twice, sharded=True)
    assert directions[0] == pytest.approx(directions[3])
    once = bytes_of_ranks(both, replay("1f1b", stages=4, microbatches=8, times={"F": 1, "B": 1, "W": 1}), sharded=True)
    assert directions[0][1] - directions[0][0] > once[0][1] - once[0][0]


def test_the_schedules_page_replays_the_stages_of_an_execution() -> None:
    row = best("first_8_last_5")
    link = {"id": str(row["id"]), "schedules_microbatches": "8", "schedules_along": "send"}
    page = run("schedules", found(), link)
    told = html(page)
    assert "Stages with 1F1B" in told
    assert "head and loss" in told
    (table,) = [each.value for each in page.dataframe if "holds" in each.value]
    assert len(table) == 8
    assert "rank 0 holds the most" in told
    assert table["memory"].max() == pytest.approx(row["proc_mem_tier1_cap_req"] / 2**30, rel=1e-9)
    assert table["holds"].iloc[0] == "3 dense blocks, 5 blocks with experts, 1 embedding"
    assert table["why"].iloc[0].startswith("5 blocks with experts: \u2212")
    assert figure(page, "schedules_stages")["data"]
    wrong = run("schedules", found(), {**link, "schedules_microbatches": "2", "schedules_layout": "Et*4|t*4L"})
    assert any("it lists 2 stages of the model" in each.value for each in wrong.caption)
    few = {**link, "schedules_ranks": "2", "schedules_microbatches": "2", "schedules_stages": "equal"}
    assert "Stages with 1F1B" not in html(run("schedules", found(), few))


def test_planned_orders_are_replayed_with_every_stage() -> None:
    cuts = cuts_of(account_of(best("even")), 4, 2, None)
    work = [
        sum(getattr(each, name) for each in cut_for(cuts, 1).stages) / 4
        for name in ("forward", "input_gradient", "weight_gradient")
    ]
    question = ScheduleQuestion(
        ranks=4,
        microbatches=8,
        chunks=2,
        group=None,
        forward=work[0],
        input_gradient=work[1],
        weight_gradient=work[2],
        hidden=0.0,
        uneven=0.0,
        send=0.01,
        mode="overlap",
        memory=None,
        own=cuts,
    )
    for name in ("zb-auto-1p", "zb-auto-2p", "zbv-auto"):
        made = find_outcome(question, name)
        assert made.found is not None, made.reason
        assert made.found.busy.sum() == pytest.approx(8 * 4 * sum(work))
        assert made.took > find_outcome(replace(question, own=()), name).took
        assert "planned with the mean" in made.found.remarks[0]


def test_work_of_ranks_follows_the_placement_and_says_what_makes_it() -> None:
    cuts = cuts_of(account_of(best("even")), 4, 3, None)
    assert [(each.chunks, len(each.stages)) for each in cuts] == [(1, 4), (2, 8), (3, 12)]
    turned = ranks_of(cut_for(cuts, 2), 4, StagePlacement.V)
    assert {"embedding", "head and loss"} <= {name for name, _, _ in turned[0].holds}
    (listed,) = (each for each in cuts_of(account_of(best("even")), 8, 2, "Et*4|(t*8|)*6t*9L") if each.chunks == 1)
    work = ranks_of(listed, 8, StagePlacement.LOOP)
    assert max(work, key=lambda each: each.over).rank == 7
    assert [held[:2] for held in work[7].holds] == [("blocks with experts", 9), ("head and loss", 1)]
    both = ranks_of(cut_for(cuts, 1), 4, StagePlacement.BIDIRECTIONAL)
    assert both[0].seconds == pytest.approx(both[3].seconds)
    loop = ranks_of(cut_for(cuts, 1), 4, StagePlacement.LOOP)
    assert sum(each.seconds for each in loop) == pytest.approx(sum(each.seconds for each in turned))
    assert max(loop, key=lambda each: each.over).why.split(":")[0].endswith(("experts", "head and loss"))


def test_tables_of_executions_are_written_and_read_with_their_layouts(tmp_path: Any) -> None:
    table = pd.DataFrame([best(layout) for layout in (DEEPSEEK, "first_8_last_5")])
    plain = table[[column.name for column in fields_of("calibrated")]]
    plain.to_csv(tmp_path / "given.csv", index=False)
    plain.to_parquet(tmp_path / "given.parquet")
    plain.to_json(tmp_path / "given.json", orient="records")
    for file in sorted(tmp_path.glob("given.*")):
        (again,) = read_executions(file)
        assert again["stage_layout"].tolist() == [DEEPSEEK, "first_8_last_5"]
