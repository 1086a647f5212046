"""The Execution page tells one execution as the engine computed it, and why another differs."""

from __future__ import annotations

import json
from html import escape
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import engine
from dashboard.charts.execution.networks import partners, traffic
from dashboard.charts.execution.roofline import STAGES, Roofs, points, roofline
from dashboard.charts.schedules.gantt import MOST_BARS, gantt, joined, shown_stages, true_time
from dashboard.files.execution_files import execution_json
from dashboard.pages.execution.view import _main_finding
from dashboard.queries.tie_breaking import best_of
from dashboard.words.numbers import format_value
from engine.columns import FIELDS, STATISTICS
from engine.cost_models.calculon.account import LAYER_WORDS, named, placement
from engine.cost_models.calculon.cost_model import CALCULON
from engine.cost_models.calibrated.physics.layers.operations import bound
from engine.executions.execution_names import execution_name
from engine.simulate.schedule import schedule
from tests.dashboard.page_runs import FEW, SMALL, again, exploration, figure, html, plainly, plots, run

BLOCKS = 40
FASTEST = {"figures": "fastest"}
TRACES = Path(__file__).parents[2] / "engine" / "traces" / "data"


def piped() -> dict[str, object]:
    """An execution with four stages, several chunks and many microbatches."""
    found = exploration()
    where = [("pipeline_par", "=", 4), ("pipeline_interleaving", ">", 1), ("microbatch_size", "=", 1)]
    row: dict[str, object] = found.evaluate_ids(found.rows.top(1, where=where, names=["id"])["id"]).iloc[0].to_dict()
    return row


def test_it_opens_on_the_best() -> None:
    found = exploration()
    best = found.best
    assert best is not None
    page = run("execution", found, FASTEST)
    text = html(page)
    assert execution_name(best) in text
    assert "rank 1 of" in text
    assert format_value("total_time", best["total_time"]).split()[0] in text
    step = figure(page, "execution_time")["data"][0]
    assert sum(step["x"][1:]) == pytest.approx(step["x"][0])


def test_rank_counts_the_faster_ones() -> None:
    found = exploration()
    row = found.top(60).iloc[-1]
    faster = found.rows.count([("sample_rate", ">", float(row["sample_rate"]))])
    page = run("execution", found, {"id": str(int(row["id"]))})
    assert f"rank {faster + 1:,} of" in html(page)


def test_compared_with_another_term_by_term() -> None:
    found = exploration()
    row = found.top(200).iloc[-1]
    page = run("execution", found, {"id": str(int(row["id"])), "execution_b": "best"})
    best = found.best
    assert best is not None
    drawn = figure(page, "execution_time")["data"]
    assert [trace["name"] for trace in drawn] == ["A", "B"]
    assert drawn[1]["x"][0] / drawn[0]["x"][0] == pytest.approx(best["total_time"] / row["total_time"])
    share = row["total_time"] / best["total_time"] - 1
    assert any(f"{share * 100:.1f} % longer than B" in plainly(element.value) for element in page.markdown)
    assert any("per step: it s" in element.value for element in page.markdown)
    listed = next(element.value for element in page.dataframe if list(element.value.columns) == ["Choice", "A", "B"])
    differing = [column.label for column in FIELDS if row[column.name] != best[column.name]]
    assert listed["Choice"].tolist() == differing


def test_keeping_an_execution_to_compare_with() -> None:
    found = exploration()
    page = run("execution", found, FASTEST)
    page.button(key="execution_keep_this").click()
    page = again(page, found)
    best = best_of(found)
    assert best is not None
    assert page.session_state["_url"]["execution_b"] == str(best["id"])
    assert "B is this one" in [element.value for element in page.caption]


def test_the_account_of_a_difference_adds_up() -> None:
    pieces = [f"{name}_time" for name in ("fw", "bw", "optim_step", "recompute", "bubble")]
    same = piped() | dict.fromkeys((column.name for column in STATISTICS if column.unit == "s"), 0.0)
    one = same | dict(zip(pieces, (0.5, 0.4, 0.3, 0.2, 0.1), strict=True))
    other = same | dict(zip(pieces, (0.1, 0.2, 0.4, 0.45, 0.25), strict=True))
    one["total_time"], other["total_time"] = 1.5, 1.4
    # Four of the five terms would leave 100 ms, which is all of the difference.
    said = plainly(_main_finding(one, other))
    assert "saves 250 ms of recompute, 150 ms of pipeline bubble and 100 ms of optimizer step, but" in said
    assert said.endswith("spends 400 ms of forward and 200 ms of backward more.")


def test_the_json_is_the_execution() -> None:
    row = piped()
    document = json.loads(execution_json(row, "calculon"))
    assert list(document) == [column.name for column in FIELDS]
    scenario = exploration().scenario
    again_ = engine.evaluate(scenario.model, scenario.system, pd.DataFrame([document])).iloc[0]
    assert again_["total_time"] == row["total_time"]


def test_one_that_ties_with_the_best_is_not_compared_with_its_equal() -> None:
    found = exploration()
    best = found.best
    assert best is not None
    tie = next(row for row in found.top(50).to_dict("records") if row["id"] != best["id"])
    assert tie["sample_rate"] == best["sample_rate"]
    page = run("execution", found, {"id": str(int(tie["id"])), "execution_b": "best"})
    assert any(each.value == "B is this one" for each in page.caption)
    # Without offload the best is another one, as this one offloads.
    offloading = [("weight_offload", "=", True), ("sample_rate", "=", float(best["sample_rate"]))]
    ids = found.rows.top(1, where=offloading, names=["id"])["id"].to_pylist()
    assert ids
    page = run("execution", found, {"id": str(ids[0]), "execution_b": "plain"})
    assert not any(each.value == "B is this one" for each in page.caption)


def test_an_execution_that_does_not_fit_is_still_explained() -> None:
    found = exploration("tight")
    table = found.evaluate_ids(np.arange(0, found.total, 211))
    short = table[table["reason"] == "memory_tier1"].iloc[0]
    page = run("execution", found, {"id": str(int(short["id"]))})
    assert "does not run" in page.warning[0].value
    assert figure(page, "execution_gantt")["data"]
    other = table[table["reason"].str.startswith("network")].iloc[0]
    page = run("execution", found, {"id": str(int(other["id"]))})
    assert "does not run" in page.warning[0].value
    assert not plots(page)


def test_the_schedule_names_only_what_is_in_it() -> None:
    limits = {**FEW, "data_par_overlap": False, "tensor_par_overlap": "none", "activation_recompute": ["none", "full"]}
    found = engine.explore("gpt3-13B", "h100_80g_nvl8", **SMALL, limits=limits)
    for recompute, words in (("none", ">backward<"), ("full", ">backward with recompute<")):
        where = [("activation_recompute", "=", recompute), ("pipeline_par", "=", 2), ("data_par", "=", 8)]
        row = found.evaluate_ids(found.rows.top(1, where=where, names=["id"])["id"]).iloc[0]
        assert (row["recompute_time"] > 0) == (recompute == "full")
        page = run("execution", found, {"id": str(int(row["id"]))})
        legends = [each.value for each in page.html if "gradient exchange, exposed" in str(each.value)]
        assert len(legends) == 1
        assert words in legends[0].replace("</i>", ">").replace("</span>", "<")
        said = next(each.value for each in page.caption if each.value.startswith("Each bar: one chunk"))
        assert ("recompute" in said) == (recompute == "full")
        assert ("offload" in said) == (row["fw_offload_exposed_time"] + row["bw_offload_exposed_time"] > 0)
    alone = found.rows.top(1, where=[("data_par", "=", 1)], names=["id"])["id"]
    page = run("execution", found, {"id": str(alone[0].as_py())})
    assert "gradient exchange, exposed" not in html(page)


def test_a_formula_leads_to_the_next() -> None:
    found = exploration()
    page = run("execution", found)
    assert any("total_time = fw_time + bw_time" in element.value for element in page.code)
    page.button(key="execution_why_bubble_time").click()
    page = again(page, found)
    assert any(element.value.startswith("bubble_time = (pipeline_par − 1) × chunk_time") for element in page.code)
    page = run("execution", found, {"execution_figure": "block_fw_flops"})
    assert any("sum over the layers of fw_flops" in element.value for element in page.code)


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_the_gantt_ends_at_the_step_time_and_fills_every_row(mode: str) -> None:
    row = piped()
    found = schedule(row, BLOCKS)
    chart = gantt(found, mode)
    bars = [trace for trace in chart.figure.data if trace.type == "bar"]
    low, high = chart.figure.layout.xaxis.range
    factor = found.step_time / high
    assert low == 0
    for stage in range(found.stages):
        place = found.stages - 1 - stage
        filled = sum(float(x) for trace in bars for x, y in zip(trace.x, trace.y, strict=True) if y == place)
        assert filled * factor == pytest.approx(found.step_time, rel=1e-9)
    assert f"{found.stages} stages" in chart.alt


def test_long_and_wide_schedules_stay_drawable() -> None:
    found = engine.explore(
        "gpt3-175B",
        "h100_80g_nvl8",
        num_procs=64,
        max_batch_size=1536,
        datatype="float16",
        limits={"tensor_par": 2, "pipeline_par": 32, "microbatch_size": 1},
    )
    assert found.best is not None
    drawn = schedule(found.best, 96, most_tasks=4 * MOST_BARS)
    assert drawn.skipped > 0
    chart = gantt(drawn)
    assert len(chart.figure.layout.yaxis.tickvals) == 16
    assert sum(len(trace.x) for trace in chart.figure.data) <= 3 * MOST_BARS
    ticks = [float(text.split()[0]) for text in chart.figure.layout.xaxis.ticktext]
    assert ticks == sorted(ticks)
    assert ticks[-1] > chart.figure.layout.xaxis.range[1]
    assert true_time(drawn, drawn.end) == pytest.approx(drawn.step_time)
    assert shown_stages(32)[0] == 0
    assert shown_stages(32)[-1] == 31
    merged = joined(drawn.tasks)
    assert len(merged) < len(drawn.tasks)
    for stage, tasks in merged.groupby("stage"):
        whole = drawn.tasks[drawn.tasks["stage"] == stage]
        assert (tasks["end"] - tasks["start"]).sum() == pytest.approx((whole["end"] - whole["start"]).sum())


def layers() -> pd.DataFrame:
    scenario = exploration().scenario
    return named(engine.operations(scenario.model, scenario.system, exploration().best or {}, cost_model="calculon"))


def test_every_layer_has_a_name_for_people() -> None:
    scenario = exploration().scenario
    for where in ([("tensor_par_overlap", "=", "none")], [("tensor_par_overlap", "=", "ring")]):
        ids = exploration().rows.top(1, where=[*where, ("tensor_par", ">", 1)], names=["id"])["id"]
        row = exploration().evaluate_ids(ids).iloc[0].to_dict()
        found = named(engine.operations(scenario.model, scenario.system, row, cost_model="calculon"))
        assert set(found["block"]) == {"Attention", "MLP"}
        assert all(name.partition("_")[2] in LAYER_WORDS for name in found["name"]), found["name"].tolist()


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_no_layer_is_above_its_roof(mode: str) -> None:
    found = layers()
    roofs = Roofs(1e15, 1.2e14, 3.072e12)
    for mark in points(found):
        peak = roofs.matrix if mark["engine"] == "matrix" else roofs.lower
        assert mark["rate"] <= min(peak, roofs.bandwidth * mark["intensity"]) * (1 + 1e-9)
    chart = roofline(found, roofs, mode)
    marks = [trace for trace in chart.figure.data if trace.mode == "markers"]
    assert [trace.name for trace in marks] == [name for _, name in STAGES]
    assert sum(len(trace.x) for trace in marks) == len(points(found))
    assert bound(1e4, roofs.matrix, roofs.bandwidth) == "compute"
    assert bound(1.0, roofs.matrix, roofs.bandwidth) == "memory"


def test_every_bandwidth_says_what_it_is() -> None:
    page = run("execution", exploration(), {"id": str(piped()["id"])})
    table = next(each.value for each in page.dataframe if "needed" in each.value)
    said = html(page)
    assert len(table) > 3
    labels = {column.label: column.description for column in STATISTICS}
    for label in table["Bandwidth"]:
        assert f"<dt>{label}</dt><dd>{escape(labels[label])}</dd>" in said


def test_partners_are_as_many_as_the_degrees_say() -> None:
    row = piped()
    groups = {group.name: group for group in placement(row)}
    assert len(groups["TP"].partners) == row["tensor_par"]
    assert len(groups["DP"].partners) == row["data_par"]
    assert len(groups["PP"].partners) == 3  # itself, the next stage, and the last, which hands back
    inner = [group for group in groups.values() if group.tier == 0 and group.degree > 1]
    assert all(number < exploration().scenario.system.networks[0].size for one in inner for number in one.partners)
    chart = partners(placement(row), dict.fromkeys(groups, "NVLink"), 16, 8)
    told = f"TP over {row['tensor_par']} GPUs on NVLink"
    assert told in chart.alt if row["tensor_par"] != 1 else "TP" not in chart.alt


def test_link_and_exposed_times_are_the_engine_s() -> None:
    row = piped()
    scenario = exploration().scenario
    told = CALCULON.account(scenario.model, scenario.system, row, None).communication()
    rows = told.times
    assert {one.name for one in rows} <= {"TP", "TP repeated", "PP", "DP"}
    for one in rows:
        key = {"TP": "tp_comm", "TP repeated": "recomm", "PP": "pp_comm", "DP": "dp_comm"}[one.name]
        assert one.link == row[f"{key}_link_time"]
        assert one.exposed == row[f"{key}_exposed_time"]
    chart = traffic(rows, {group.name: "NVLink" for group in told.groups})
    assert len(chart.figure.data) == 2 * len(rows)
    assert "on the links" in chart.alt


def test_a_measured_step_stands_beside_the_predicted_one() -> None:
    page = run("execution", exploration())
    trace = (TRACES / "synthetic_moe_3d_rank0.json.gz").read_bytes()
    page.file_uploader[0].set_value(("rank0.json.gz", trace, "application/gzip")).run()
    assert not page.exception
    assert any(plainly(element.value).startswith(r"Step 1 ms measured \(median of 3\)") for element in page.markdown)
    (table,) = [each.value for each in page.dataframe if "measured" in each.value]
    assert table.iloc[-1]["Part"] == "Step"
    assert {"Forward pass", "Data-parallel communication"} <= set(table["Part"])
    page.file_uploader[0].set_value(("log.json", b"hello", "application/json")).run()
    assert any("is no trace" in element.value for element in page.error)
