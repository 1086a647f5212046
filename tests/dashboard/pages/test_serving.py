"""The Serving page shows what the engine finds, lets marks be picked, and says what would help where nothing runs."""

from __future__ import annotations

import functools
import io
import json
import re
import zipfile
from collections.abc import Mapping
from html import escape
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from streamlit.testing.v1 import AppTest

import hardware
import models
from dashboard.charts.serving import MEMORY, decode_step, request_time, serving_frontier, serving_memory
from dashboard.files.serving_report import build_report
from dashboard.link.catalogue import usable_models
from dashboard.pages import registry
from dashboard.pages.serving.tables import COLUMNS, deployments_file
from dashboard.queries.serving import curves, per_degree, refused_part
from dashboard.words.numbers import format_value
from engine import serving
from engine.questions.documents.serving import DeploymentsQuestion
from engine.serving import MEMORY_PARTS, STEP_PARTS, ServingExploration, by_name, deployment_name
from engine.serving.factors import EngineFactors, LatencyFactors
from tests.dashboard.page_runs import figure, html, page_alone, plainly

LEVEL: dict[str, Any] = {"time_to_first_token": 1.0, "time_per_output_token": 0.05}
"""Limits of the page without others [s]."""
QUESTION: dict[str, Any] = {"num_procs": 8, "prompt": 1000, "output": 200}
ASKED: dict[str, Any] = {"model": "llama-3-70B", "system": "h100_80g_sxm", **QUESTION, **LEVEL}
LINK = {
    "serving_model": "llama-3-70B",
    "serving_system": "h100_80g_sxm",
    "serving_procs": "8",
    "serving_prompt": "1000",
    "serving_output": "200",
}


FEW = {**LINK, "serving_model": "llama-3-8B", "serving_procs": "2"}
"""Of so few deployments, for what is tried one after the other where nothing runs."""


@pytest.fixture(scope="module")
def found() -> ServingExploration:
    return serving.explore("llama-3-70B", "h100_80g_sxm", **QUESTION, **LEVEL)


@functools.cache
def few() -> ServingExploration:
    return serving.explore("llama-3-8B", "h100_80g_sxm", **{**QUESTION, "num_procs": 2}, **LEVEL)


def run(link: Mapping[str, str] | None = None) -> AppTest:
    app = page_alone("serving")
    app.session_state["_url"] = dict(link or {})
    return again(app)


@functools.cache
def opened() -> AppTest:
    """The page of `LINK`, for all tests that only look at it."""
    return run(LINK)


def again(app: AppTest) -> AppTest:
    app.run()
    assert not app.exception, [error.value for error in app.exception]
    return app


def url(app: AppTest) -> dict[str, str]:
    return dict(app.session_state["_url"])


def listed(app: AppTest) -> pd.DataFrame:
    """The table of deployments."""
    (found,) = [table.value for table in app.dataframe if "id" in table.value]
    return found


def captions(app: AppTest) -> str:
    return plainly(" ".join(caption.value for caption in app.caption)).replace("\\", "")


def test_the_page_is_in_the_navigation_and_about_no_scenario():
    (entry,) = [entry for entry in registry.PAGES if entry.name == "serving"]
    assert not entry.about_scenario


def test_it_starts_with_the_scenarios_model_and_system():
    page = run()
    assert page.selectbox(key="_serving_model").value == "llama-3.1-70B"
    assert page.selectbox(key="_serving_system").value == "h100_80g_sxm"
    assert "modelled" in html(page)


def test_tiles_are_the_recommended_deployment(found: ServingExploration):
    page = opened()
    best = serving.recommend_deployment(found).row
    assert best is not None
    text = html(page)
    for name in (
        "tokens_per_s_per_processor",
        "tokens_per_s_per_user",
        "time_to_first_token",
        "time_per_output_token",
        "cost_per_million_tokens",
        "energy_per_token",
    ):
        column = by_name(name)
        assert format_value(column, best[name]) in text, name
    assert f"Recommended: {deployment_name(best)}" in text
    assert f"Deployments that run {found.feasible:,}, of {found.total:,}" in text
    assert "Modelled with constants" in text


def test_limits_of_the_link_are_the_engines(found: ServingExploration):
    page = run(
        {
            **LINK,
            "serving_ttft": "500",
            "serving_tpot": "40.5",
            "serving_price": "2",
            "serving_weight_bits": "16,8,4",
            "serving_launch": "graphs",
        }
    )
    expected = serving.explore(
        "llama-3-70B",
        "h100_80g_sxm",
        **QUESTION,
        time_to_first_token=0.5,
        time_per_output_token=0.0405,
        price=2.0,
        limits={"weight_bits": [16, 8, 4], "launch": "graphs"},
    )
    assert 0 < expected.feasible != found.feasible
    text = html(page)
    assert f"Deployments that run {expected.feasible:,}, of {expected.total:,}" in text
    row = serving.recommend_deployment(expected).row
    assert format_value(by_name("cost_per_million_tokens"), row["cost_per_million_tokens"]) in text
    assert "at the price given" in text


def test_marks_are_the_frontiers_of_every_degree(found: ServingExploration):
    drawn = figure(opened(), "serving_plot")["data"]
    (refused,) = [trace for trace in drawn if trace["name"] == "refused"]
    missing = found.refused.sort_values("tokens_per_s_per_user")
    # Four times slower than the slowest within the limits is not drawn.
    missing = missing[missing["tokens_per_s_per_user"] >= found.table["tokens_per_s_per_user"].min() / 4]
    assert len(missing) > 3
    np.testing.assert_allclose(refused["x"], missing["tokens_per_s_per_user"])
    np.testing.assert_allclose(refused["y"], missing["tokens_per_s_per_processor"])
    drawn = [trace for trace in drawn if trace["name"].startswith("TP")]
    assert [trace["name"] for trace in drawn] == [f"TP {t}" for t in sorted(found.table["tensor_par"].unique())]
    table = found.table.set_index("id")
    ids = [point[0] for trace in drawn for point in trace["customdata"]]
    for trace in drawn:
        rows = table.loc[[point[0] for point in trace["customdata"]]]
        np.testing.assert_allclose(trace["x"], rows["tokens_per_s_per_user"])
        np.testing.assert_allclose(trace["y"], rows["tokens_per_s_per_processor"])
        assert (np.diff(trace["y"]) < 0).all()
        assert len(set(rows["tensor_par"])) == 1
    assert set(found.frontier["id"]) <= set(ids)
    sizes = {
        point[0]: size
        for trace in drawn
        for point, size in zip(trace["customdata"], trace["marker"]["size"], strict=True)
    }
    large = {number for number, size in sizes.items() if size > 4}
    assert large - {serving.recommend_deployment(found).row["id"]} == set(found.frontier["id"])


def test_a_picked_deployment_is_shown_and_the_best_comes_back(found: ServingExploration):
    other = int(found.frontier["id"].iloc[0])
    page = run({**LINK, "serving_id": str(other)})
    row = found.evaluate_ids([other]).iloc[0]
    assert f"Chosen: {deployment_name(row)}" in html(page)
    assert format_value(by_name("time_per_output_token"), row["time_per_output_token"]) in html(page)
    page.button(key="serving_best").click()
    again(page)
    assert "serving_id" not in url(page)
    assert "Recommended: " in html(page)


def test_another_question_gives_up_what_was_picked(found: ServingExploration):
    page = run({**LINK, "serving_id": str(int(found.frontier["id"].iloc[0]))})
    page.number_input(key="_serving_procs").set_value(4)
    again(page)
    assert "serving_id" not in url(page)
    expected = serving.explore("llama-3-70B", "h100_80g_sxm", **{**QUESTION, "num_procs": 4}, **LEVEL)
    assert f"of {expected.total:,}" in html(page)


def test_inputs_become_part_of_the_link():
    page = run(FEW)
    page.number_input(key="_serving_tpot").set_value(40.0)
    again(page)
    assert url(page)["serving_tpot"] == "40"
    assert "limit 40 ms" in plainly(html(page))
    page.number_input(key="_serving_tpot").set_value(None)
    again(page)
    assert url(page)["serving_tpot"] == "none"
    assert "no limit" in plainly(html(page))
    page = run({**FEW, "serving_tpot": "none"})
    page.number_input(key="_serving_tpot").set_value(50.0)
    again(page)
    assert "serving_tpot" not in url(page)
    page.selectbox(key="_serving_model").set_value("llama-2-7B")
    again(page)
    assert url(page)["serving_model"] == "llama-2-7B"


def test_nothing_fits_and_each_change_helps():
    link = {**LINK, "serving_model": "deepseek-v3", "serving_procs": "4"}
    page = run(link)
    assert "cannot be served like this" in page.warning[0].value
    assert "GiB too much" in page.warning[0].value.replace("\\", "")
    changes = [button for button in page.button if str(button.key).startswith("serving_change_")]
    assert changes
    for position in range(len(changes)):
        page = page if position == 0 else run(link)
        page.button(key=f"serving_change_{position}").click()
        again(page)
        assert not page.warning
        assert "Recommended: " in html(page)


def test_two_limits_that_no_deployment_meets_give_way_together() -> None:
    page = run({**FEW, "serving_tpot": "2", "serving_ttft": "10"})
    label = plainly(page.button(key="serving_change_0").label)
    rows = few().table
    missed = np.maximum(rows["time_to_first_token"] / 0.010, rows["time_per_output_token"] / 0.002)
    nearest = rows.loc[missed.idxmin()]
    first, later = (np.ceil(1e4 * nearest[name]) / 10 for name in ("time_to_first_token", "time_per_output_token"))
    assert label.startswith(f"Allow the first token {first:g} ms and each token {later:g} ms")
    page.button(key="serving_change_0").click()
    again(page)
    assert not page.warning
    assert url(page)["serving_ttft"] == f"{first:g}"


def test_a_deployment_off_the_curves_is_ringed_where_it_is(found: ServingExploration) -> None:
    drawn = curves(found)
    row = found.table[~found.table["id"].isin(drawn["id"])].iloc[0].to_dict() | {"title": "aside"}
    plain = serving_frontier(drawn).figure
    ringed = serving_frontier(drawn, chosen=row).figure
    assert len(ringed.data) == len(plain.data) + 1
    mark = ringed.data[-1]
    assert mark.customdata[0][0] == row["id"]
    assert mark.x[0] == pytest.approx(row["tokens_per_s_per_user"])
    assert "aside" in mark.hovertext[0]
    on_curve = drawn.iloc[3].to_dict()
    again_plain = serving_frontier(drawn, chosen=on_curve).figure
    assert len(again_plain.data) == len(plain.data)
    assert sum(size == 14 for trace in again_plain.data for size in trace.marker.size) == 1


def test_the_table_shows_what_fits_and_everything_on_demand() -> None:
    shown = listed(opened())
    assert {"id", "tensor_par", "tokens_per_s_per_processor", "memory_total"} <= set(shown.columns)
    assert "expert_par" not in shown  # 1 in all: the model has no experts
    assert set(COLUMNS) == set(listed(run({**LINK, "serving_columns": "on"})).columns)
    by_energy = listed(run({**LINK, "serving_by": "energy_per_token"}))
    assert "energy_per_token" in by_energy


def test_limits_that_nothing_meets_name_the_nearest():
    page = run({**FEW, "serving_tpot": "2"})
    nearest = few().table["time_per_output_token"].min()
    told = plainly(page.warning[0].value).replace("\\", "")
    assert f"An output token takes {1e3 * nearest:,.4g} ms, more than the limit of 2 ms" in told
    label = page.button(key="serving_change_0").label
    assert label.startswith(f"Allow each token {np.ceil(1e4 * nearest) / 10:g} ms")
    page.button(key="serving_change_0").click()
    assert "Recommended: " in html(again(page))


def test_a_prompt_beyond_the_context_can_be_shortened():
    page = run({**LINK, "serving_prompt": "9000"})
    assert "context ends at 8,192" in page.warning[0].value.replace("\\", "")
    page.button(key="serving_change_0").click()
    again(page)
    assert int(url(page)["serving_prompt"]) + int(url(page).get("serving_output", 256)) <= 8192
    assert "Recommended: " in html(page)


def test_links_full_of_nonsense_show_the_defaults():
    page = run(
        {
            "serving_model": "x",
            "serving_system": "<b>",
            "serving_procs": "0",
            "serving_prompt": "-1",
            "serving_ttft": "1e9",
            "serving_tpot": "0.0",
            "serving_weight_bits": "7",
            "serving_id": "99999999",
            "serving_by": "speed",
            "serving_launch": "graphs,magic",
        }
    )
    assert "Recommended: " in html(page)
    assert page.selectbox(key="_serving_model").value == "llama-3.1-70B"


def test_links_of_before_the_limits_open_and_show_them():
    page = run(FEW)
    assert [page.number_input(key=f"_serving_{name}").value for name in ("ttft", "tpot")] == [1000.0, 50.0]
    shown = plainly(html(page))
    assert "limit 1 s" in shown
    assert "limit 50 ms" in shown
    # A deployment of such a link that the limits refuse is named with the limit.
    free = serving.explore("llama-3-8B", "h100_80g_sxm", **{**QUESTION, "num_procs": 2})
    late = int(free.table.loc[free.table["time_per_output_token"].idxmax(), "id"])
    page = run({**FEW, "serving_id": str(late)})
    (said,) = page.session_state["_url_problems"].values()
    assert re.fullmatch(
        rf"The link's deployment {late:,} does not run within the limits\. .* more than the limit of [\d,]+ ms\. "
        r"Showing the recommended one instead\.",
        said,
    )
    page = run({**FEW, "serving_id": str(late), "serving_ttft": "none", "serving_tpot": "none"})
    assert deployment_name(free.evaluate_ids([late]).iloc[0]) in plainly(html(page))


def test_the_table_is_sorted_and_can_be_the_frontier_only(found: ServingExploration):
    page = run({**LINK, "serving_by": "time_to_first_token"})
    shown = listed(page)
    assert shown["id"].tolist() == found.top(len(shown), "time_to_first_token")["id"].tolist()
    page = run({**LINK, "serving_only": "on"})
    assert set(listed(page)["id"]) == set(found.frontier["id"])


@pytest.mark.parametrize("kind", ["csv", "json", "parquet"])
def test_downloads_have_every_deployment(found: ServingExploration, kind: str):
    data = deployments_file(found, kind)
    if kind == "csv":
        with zipfile.ZipFile(io.BytesIO(data)) as packed:
            rows = pd.read_csv(packed.open("deployments.csv"))
            about = json.loads(packed.read("about.json"))
        assert "time_to_first_token [s]" in rows
    elif kind == "json":
        document = json.loads(data)
        about, rows = document["about"], pd.DataFrame(document["deployments"])
    else:
        table = pq.read_table(io.BytesIO(data))
        about, rows = json.loads(table.schema.metadata[b"shardscape"]), table.to_pandas()
    assert about["kind"] == "modelled"
    assert about["software"].startswith("shardscape ")
    assert {column["name"]: column["unit"] for column in about["columns"]}["memory_total"] == "bytes"
    bare = {name for name, value in about.items() if isinstance(value, int | float) or value is None}
    assert set(about["units"]) == bare | set(about["assumptions"])
    assert {about["units"][name] for name in ("graph_memory", "collective_latency")} == {"bytes", "s"}
    # From the file alone the same deployments are found again.
    model, system = models.load_document(about["model"]), hardware.load_document(about["system"])
    asked = {name: about[name] for name in (*QUESTION, *LEVEL)}
    redone = serving.explore(model, system, **asked)
    assert redone.table["id"].tolist() == found.table["id"].tolist()
    assert rows["id"].tolist() == found.table["id"].tolist()


def test_downloads_have_the_measured_factors() -> None:
    own = EngineFactors("own", "h100_80g_sxm", "two results", {"vllm": LatencyFactors(1.3, 1.1)})
    given = {**ASKED, "num_procs": 1, "limits": {"engine": "vllm"}, "factors": own}
    about = json.loads(deployments_file(serving.explore(**{**given, "model": "llama-3-8B"}), "json"))["about"]
    engines = {"vllm": {"time_to_first_token": 1.3, "time_per_output_token": 1.1}}
    assert about["factors"] == {
        "name": "own",
        "system": "h100_80g_sxm",
        "fitted_on": "two results",
        "engines": engines,
    }


def test_bars_add_up(found: ServingExploration):
    rows = per_degree(found)
    drawn = serving_memory(rows).figure.data
    assert [trace.name for trace in drawn] == [kind.name for kind in MEMORY]
    assert [kind.key for kind in MEMORY] == list(MEMORY_PARTS)
    total = np.sum([trace.x for trace in drawn], axis=0)
    np.testing.assert_allclose(total, rows["memory_total"] / 2**30)
    best: dict[str, Any] = dict(found.best or {})
    assert sum(decode_step(best).figure.data[0].x) == pytest.approx(best["decode_step_time"], rel=0.01)
    assert sum(best[name] for name in STEP_PARTS) == pytest.approx(best["decode_step_time"])
    slow = {**best, "time_per_output_token": 1.5 * best["time_per_output_token"]}
    # A factor per token stretches steps and prefills of others alike.
    plain, adjusted = (request_time(each, factor=times).figure.data[0].x for each, times in ((best, 1.0), (slow, 1.5)))
    assert list(adjusted[1:]) == pytest.approx([1.5 * each for each in plain[1:]])
    assert sum(request_time(best).figure.data[0].x) == pytest.approx(best["request_latency"], rel=0.01)
    assert "modelled" in decode_step(best).alt


def test_names_at_the_ends_of_curves_do_not_cover_each_other(found: ServingExploration):
    notes = serving_frontier(curves(found)).figure.layout.annotations
    assert {note.text for note in notes} == {f"TP {t}" for t in found.table["tensor_par"].unique()}
    assert "No deployment" in serving_frontier(curves(found).head(0)).alt


def test_a_name_at_the_end_of_a_curve_stands_clear_of_the_marks_beside_it():
    # The first curve ends just left of the second one, where its name would have stood.
    points = [
        (1, 20.0, 800.0),
        (1, 60.0, 300.0),
        (1, 75.0, 100.0),
        (2, 25.0, 900.0),
        (2, 70.0, 400.0),
        (2, 78.0, 150.0),
        (2, 80.0, 100.0),
        (2, 90.0, 30.0),
    ]
    degrees, users, processors = zip(*points, strict=True)
    table = pd.DataFrame(
        {
            "id": range(8),
            "title": "x",
            "tensor_par": degrees,
            "on_frontier": True,
            "tokens_per_s_per_user": users,
            "tokens_per_s_per_processor": processors,
            "time_to_first_token": 0.1,
            "memory_total": 1e10,
        }
    )
    figure = serving_frontier(table).figure
    (low, high), (bottom, top) = figure.layout.xaxis.range, figure.layout.yaxis.range
    (name,) = [note for note in figure.layout.annotations if note.text == "TP 1"]
    centre = {"left": 15, "right": -15}.get(name.xanchor, 0), {"bottom": 7, "top": -7}.get(name.yanchor, 0)
    for user, processor in zip(users, processors, strict=True):
        across = (np.log10(user) - name.x) / (high - low) * 640 - (name.xshift or 0) - centre[0]
        up = (np.log10(processor) - name.y) / (top - bottom) * 400 - (name.yshift or 0) - centre[1]
        assert abs(across) > 15 or abs(up) > 7


def test_all_models_can_be_chosen():
    names = opened().selectbox(key="_serving_model").options
    assert {models.load(name).title for name in ("deepseek-v3", "llama-3-70B")} <= set(names)
    assert len(set(names)) == len(names) == len(usable_models())


def test_without_a_load_the_curve_is_that_of_the_shown_deployment():
    page = opened()
    said = plainly(html(page))
    (most,) = re.findall(r"holds the limits at p99 up to ([\d,.]+) requests/s", said)
    (row,) = [each for each in [serving.recommend_deployment(serving.explore(**ASKED)).row] if each is not None]
    fixed = ("tensor_par", "pipeline_par", "expert_par", "weight_bits", "kv_bits", "launch", "engine", "batch")
    found = serving.size_service(
        "llama-3-70B",
        "h100_80g_sxm",
        load=serving.ServiceLoad(request_rate=1.0),
        prompt=1000,
        output=200,
        num_procs=8,
        limits={name: [row[name]] for name in fixed},
        **LEVEL,
    ).best
    assert found is not None
    assert float(most.replace(",", "")) == pytest.approx(found["most_load"], rel=0.01)
    assert figure(page, "serving_load_first")["data"]


def test_two_pools_are_compared_with_one():
    page = run({**LINK, "serving_rate": "40", "serving_disaggregated": "either"})
    said = " ".join(str(each.value) for each in page.info)
    assert "Prefill and decode in two pools." in said
    assert re.search(r"(Pools win|Aggregated wins) with \d+\sGPUs against \d+\sGPUs", said)
    page = run({**LINK, "serving_users": "400", "serving_think": "10", "serving_disaggregated": "yes"})
    assert "GPUs per user" in " ".join(str(each.value) for each in page.info)
    assert "s think time)" in plainly(html(page))
    assert not page.exception


def test_the_limit_per_token_is_a_line_and_the_slower_part_is_shaded(found: ServingExploration) -> None:
    chart = serving_frontier(curves(found), refused=refused_part(found), limits=(1.0, 0.05))
    band, line = chart.figure.layout.shapes
    assert (line.x0, line.x1, band.x1) == (20.0, 20.0, 20.0)
    assert "limit 50 ms per token" in plainly(" ".join(note.text for note in chart.figure.layout.annotations))
    assert "miss a limit" in chart.alt
    assert not serving_frontier(curves(found), limits=(1.0, None)).figure.layout.shapes


def test_changes_and_a_second_deployment_are_the_engines(found: ServingExploration) -> None:
    advice = serving.recommend_deployment(found)
    best = found.best
    assert best is not None
    page = run({**LINK, "serving_beside": str(best["id"])})
    (shown,) = [table.value for table in page.dataframe if "Effect" in table.value]
    changed = serving.try_changes(found, advice)
    assert shown["Change"].tolist() == ["As asked", *(each.words for each in changed)]
    assert shown["Effect"].tolist() == ["", *(each.verdict for each in changed)]
    compared = serving.compare_deployments(advice.row, best)
    said = plainly(" ".join(each.value for each in page.markdown)).replace("\\", "")
    assert compared.sentence.replace("The second", "B") in said
    wrong = run({**LINK, "serving_beside": "99999999"})
    assert "does not exist" in wrong.warning[0].value.replace("\\", "")


def test_the_report_has_the_figures_of_the_page(found: ServingExploration) -> None:
    advice = serving.recommend_deployment(found)
    question = DeploymentsQuestion(model="llama-3-70B", system="h100_80g_sxm", **QUESTION)
    changed = serving.try_changes(found, advice)
    pair = serving.compare_deployments(advice.row, found.best), found
    text = plainly(build_report(question, found, advice, advice.row, changed, pair, "http://x/serving").decode())
    for words in (advice.reason, deployment_name(advice.row), pair[0].sentence, "http://x/serving"):
        assert plainly(escape(words)) in text
    for name in ("time_to_first_token", "cost_per_million_tokens"):
        assert plainly(format_value(by_name(name), advice.row[name])) in text
    assert all(each.verdict in text for each in changed)
    assert "<link" not in text.split("<script")[0]
