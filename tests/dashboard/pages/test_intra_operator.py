"""The Intra-operator page: plans of published and library models, what it draws, says and offers."""

from __future__ import annotations

import functools
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from dashboard.charts.plans.intra_operator import Measured, along_curves, rate_bars, time_bars, vector_points
from dashboard.charts.plans.layer_blocks import segment_map
from dashboard.link.text_encoding import folded
from dashboard.pages.intra_operator.inputs import OWN, IntraOperatorInputs
from dashboard.pages.intra_operator.layers import plans_frame, strategies_frame
from dashboard.pages.intra_operator.measured import complete_points
from dashboard.pages.intra_operator.tables import json_text, vectors_csv
from dashboard.words.numbers import format_value
from engine.planners.contract import PlanError
from engine.planners.intra_operator import (
    IntraOperatorPlan,
    blocks,
    fit_rates,
    measured_points_of,
    mesh_of,
    search,
    sharding_annotations,
)
from engine.planners.intra_operator import segment_map as segments_of
from engine.planners.intra_operator.records import VectorRecords
from engine.questions.documents.operators import OperatorsQuestion
from engine.reproductions.cfp.text_forms import log_text
from tests.dashboard.page_runs import figure, html, page_alone, plainly, plots
from tests.dashboard.server import own_server

MESH = {"devices": 4, "matrix_rate": 83.8e12, "bandwidth": 20.65e9}
LOG = Path(__file__).parents[2] / "reference" / "cfp" / "gpt_f_16_enumeration.log"
NONSENSE = ("<script>alert(1)</script>", "99999999999999999999", "-1", "nan", "', drop table x; --", "é" * 500, "0")
NUMBERS = (
    "devices",
    "batch",
    "layers",
    "rate",
    "bandwidth",
    "exchange",
    "alpha",
    "state",
    "limit",
    "microbatches",
    "outer",
)
CHOICES = (
    "from",
    "suite",
    "model",
    "system",
    "type",
    "width",
    "zero",
    "shown",
    "like",
    "layer",
    "over",
    "result",
    "recompute",
)


def run(link: Mapping[str, str]) -> AppTest:
    app = page_alone("intra_operator")
    app.session_state["_url"] = {f"intra_operator_{name}": value for name, value in link.items()}
    app.run()
    assert not app.exception, [error.value for error in app.exception]
    return app


@functools.cache
def opened(**link: str) -> AppTest:
    """A page that several tests read; one that is clicked on is run anew."""
    return run(link)


@functools.cache
def planned() -> IntraOperatorPlan:
    """GPT F in two layers on four devices."""
    return search("gpt F", MESH, batch=16, layers=2)


def said(app: AppTest) -> str:
    """All that a page says besides its tables."""
    told = [html(app), *(each.value for each in (*app.caption, *app.error, *app.warning))]
    return plainly("\n".join(told)).replace("\\", "")


def test_the_published_solution_of_gpt_is_what_the_page_says() -> None:
    app = opened(batch="24")
    told = said(app)
    assert "Data parallel" in told
    assert "294 ms" in told  # CFP measured 0.2920 to 0.2926 s
    assert "Only the third is reproduced" in told
    assert "Data parallel. All layers: qkv, out, fc1, fc2 by sequences" in told
    rows = next(each.value for each in app.dataframe if "computed / published" in each.value)
    assert list(rows["published, GB"]) == [16.3084, 12.3822, 5.2349, 16.0068]
    assert list(rows["computed, GB"].round(2)) == [10.47, 7.85, 5.03, 10.27]
    assert figure(app, "intra_operator_segments")["data"][0]["text"] == ["1,1,1,1"] * 2


def test_measured_points_stand_beside_the_vectors_that_were_measured() -> None:
    drawn = figure(opened(), "intra_operator_volume")["data"]
    assert next(each["text"] for each in drawn if each.get("name") == "measured") == ["0,0,0,0", "0,0,0,1", "0,0,0,2"]
    assert not [
        each for each in figure(opened(batch="24"), "intra_operator_volume")["data"] if each.get("name") == "measured"
    ]


def test_a_limit_that_nothing_fits_is_a_sentence() -> None:
    app = run({"limit": "2"})
    assert "No plan fits 2 GiB of a device" in said(app)
    assert "the least that GPT F with 2 layers takes on 4 devices is 5.62 GiB" in said(app)


def test_recomputation_and_microbatches_are_part_of_the_plan() -> None:
    counted: dict[str, Any] = {"recompute": "full", "accumulation": 4}
    found = search("gpt F", MESH, batch=16, layers=2, **counted)
    assert found.chosen is not None
    app = run({"recompute": "full", "microbatches": "4"})
    told = said(app)
    assert plainly(format_value("total_time", found.chosen.seconds)) in told
    assert f"The line is exact: it has all {len(found.frontier)} points" in told
    assert "no multiple of 5 microbatches" in said(run({"microbatches": "5"}))


def test_experts_have_two_kinds_of_layers_and_the_published_spaces() -> None:
    app = run({"suite": "moe E", "shown": "named", "over": "memory"})
    told = said(app)
    assert "Data and expert parallel" in told
    assert "[3, 3, 3, 4] and [3, 3, 3, 3]. 189 vectors are evaluated instead of 108² × 81²" in told
    assert "every second layer from 1 to 3: qkv, out by sequences, gate by groups, up by experts" in told.lower()


def test_a_library_model_goes_on_its_system_and_on_others() -> None:
    told = said(run({"from": "library", "model": "llama-3-8B", "system": "h200_141g_sxm", "batch": "16"}))
    assert "NVIDIA B200 180 GB SXM × 8 comes first" in told
    assert "Published and computed" not in told


def test_a_mesh_of_two_networks_is_searched_off_the_page() -> None:
    link = {"from": "library", "devices": "16", "batch": "16", "layers": "2", "sharded": "fsdp", "over": "memory"}
    app = run(link)
    told = said(app)
    assert "Fully sharded data parallel (FSDP). All layers: q, out, gate_proj, down_proj by sequences." in told
    assert "6,561 vectors are evaluated instead of 6,561²" in told
    assert figure(app, "intra_operator_segments")["data"][0]["text"] == ["11,11,11,11"] * 2


def test_links_that_cannot_be_are_sentences() -> None:
    for value in NONSENSE:
        app = run(dict.fromkeys((*NUMBERS, *CHOICES), value))
        assert len(plots(app)) == 6
    assert "cannot be split over 4096 devices" in said(run({"system": "h100_80g_sxm", "devices": "9999"}))
    assert "no multiple of the 3 of its outer axis" in said(run({"groups": "3"}))
    assert "no whole groups" in said(run({"suite": "moe E", "batch": "3"}))


def test_vectors_are_filtered_by_a_pattern() -> None:
    table = next(each.value for each in run({"like": "0,2,*,2", "shown": "all"}).dataframe if "vector" in each.value)
    assert sorted(table["vector"]) == ["0,2,0,2", "0,2,1,2", "0,2,2,2"]


def test_files_of_a_plan_come_back() -> None:
    plan = search("gpt F", MESH, batch=16, layers=2, memory_limit=7e9)
    table = pd.read_csv(io.StringIO(vectors_csv(plan)), keep_default_na=False)
    vectors = pd.Series([tuple(map(int, each.split(","))) for each in table["vector"]])
    back = table.assign(vector=vectors).rename(columns={"volume_bytes": "volume", "memory_bytes": "memory"})
    pd.testing.assert_frame_equal(back, plan.vectors, rtol=1e-12)
    document = json.loads(json_text(plan))
    again = search(
        document["model"], mesh_of(document["mesh"]), batch=16, layers=2, memory_limit=document["memory_limit"]
    )
    assert again.chosen is not None
    assert json.loads(json.dumps(again.chosen.document())) == document["chosen"]
    printed = measured_points_of(log_text(plan, "enumeration"))
    assert list(printed["seconds"]) == pytest.approx(list(plan.vectors["seconds"]), abs=1e-8)
    annotations = sharding_annotations(plan)
    back = pd.read_csv(io.StringIO(annotations.to_csv(index=False)), keep_default_na=False)
    pd.testing.assert_frame_equal(back, annotations.astype({"shape": str}))


def test_a_log_of_ones_own_stands_beside_what_is_predicted_and_gives_rates() -> None:
    points = measured_points_of(LOG.read_text(encoding="utf-8"))
    app = run({})
    app.file_uploader[0].set_value((LOG.name, LOG.read_bytes(), "text/csv")).run()
    told = said(app)
    assert "4 points of your file" in told
    assert "Rates that fit the points best: matrix rate" in told
    drawn = figure(app, "intra_operator_volume")["data"]
    assert next(each["text"] for each in drawn if each.get("name") == "measured")[0] == "0,0,0,0"
    app.button(key="intra_operator_fit").click().run()
    assert not app.exception
    assert "4 points of your file" in said(run({"log": folded(LOG.read_text(encoding="utf-8"))}))
    for wrong in ("1abc", folded("nothing of the kind")):
        assert len(run({"log": wrong}).error) == 1
    fitted = fit_rates(points)
    assert fitted.bandwidth is not None
    used = float(app.session_state["_url"]["intra_operator_bandwidth"])
    assert used == pytest.approx(fitted.bandwidth / 1e9, abs=1e-4)


def test_a_file_that_names_a_path_as_its_model_is_refused() -> None:
    question = OperatorsQuestion(model="gpt F", devices=4, batch=16, layers=2)
    asked = IntraOperatorInputs(question, "GPT F", OWN, "", 32)
    points = measured_points_of('vector,seconds,model\n"1,1,1,1",0.3,/etc/passwd.json\n')
    with pytest.raises(PlanError, match=r"There is no model '/etc/passwd\.json'"):
        complete_points(points, asked)
    assert list(complete_points(points.assign(model=None), asked)["devices"]) == [4]


def test_vectors_are_kept_in_the_store_once(tmp_path: Path) -> None:
    plan = planned()
    with own_server(tmp_path) as place:
        store = place.explorations.store
        records = VectorRecords(store)
        assert (records.add(plan), records.add(search("gpt F", MESH, batch=16, layers=2, memory_limit=7e9))) == (81, 0)
        assert records.add(search("gpt F", MESH, batch=24, layers=2)) == 81
        kept = records.find(plan)
        assert list(kept["seconds"]) == list(plan.vectors["seconds"])
        assert list(kept["vector"])[:2] == ["0,0,0,0", "0,0,0,1"]
        app = run({"batch": "32"})
        app.button(key="intra_operator_keep").click().run()
        assert "81 vectors kept." in said(app)
        assert len(records) == 3 * 81


def test_block_tables_hold_the_published_plans() -> None:
    plans = plans_frame(blocks("moe E")).drop_duplicates("contraction").set_index("contraction")
    assert plans.loc["out.wgrad", "plan"] == "0,2,1"
    assert plans.loc["out.dgrad", "plan"] == "2,1,0"
    assert plans.loc["down", "plan"] == "2,0,1,3"
    assert plans.loc["out.wgrad", "strategy 1"] == "sequences, all-reduce"
    named = strategies_frame(blocks("gpt F"))
    assert list(named["name"][:3]) == [
        "SS = SR x RS @ {0,1}",
        "SS = SR x RS @ {1,0}",
        "RS = RS x SS @ {1,0} (allreduce @ 1)",
    ]


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_charts_say_what_they_show(mode: str) -> None:
    plan = planned()
    points = vector_points(
        plan.vectors, "volume", "communication_seconds", mode, chosen={}, measured=[Measured("0,0,0,0", 16.3e9, 0.79)]
    )
    assert points.alt.startswith("81 vectors; time of collectives: ")
    bars = time_bars(plan.vectors.head(3).assign(label=["a", "b", "c"]), mode)
    assert "of it collectives" in bars.alt
    rows = pd.DataFrame(
        {
            "value": [1, 2, 4],
            "name": "best",
            "solution": ["x", "x", "y"],
            "rate": [1.0, 2.0, 3.0],
            "seconds": [1.0, 1.0, 1.0],
            "memory": [1e9, 1e9, 1e9],
        }
    )
    assert along_curves(rows, "Batch", 2, "rate", mode).alt == "Best plan by batch: x from 1 to 2; y at 4."
    systems = pd.DataFrame({"label": ["A", "B"], "devices": [4, 8], "rate": [100.0, None], "solution": ["x", ""]})
    assert rate_bars(systems, "A", mode).alt == "A × 4 comes first with 100 TFLOP/s of a device, x."
    segments = segment_map(segments_of("moe E", batch=64, layers=4), None, mode)
    assert segments.alt == "4 layers of 2 kinds: 2 experts, 2 dense."
    assert "contractions 15 to 23<br>(14, 22) mapped to (0, 8); 108 vectors" in segments.figure.data[0].hovertext[1]
