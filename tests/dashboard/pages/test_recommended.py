"""The recommended execution stands beside the fastest, one click from either, with the terms in the link; memory has an
interval, and says where that leaves open that it fits."""

from __future__ import annotations

import functools

import pytest

from dashboard.charts.elements.markup import Tile
from dashboard.queries.accuracy import marked
from dashboard.words.numbers import format_value
from engine import Exploration, explore
from engine.recommendation import recommend
from hardware import GIB
from tests.dashboard.page_runs import again, html, open_menu, plainly, run


@functools.cache
def measured() -> Exploration:
    return explore(
        "llama-3.1-8B",
        "h100_80g_sxm",
        num_procs=8,
        max_batch_size=16,
        datatype="bfloat16",
        limits={"pipeline_par": [1, 2], "microbatch_size": [1, 2]},
    )


@pytest.mark.parametrize("page", ["explore", "execution"])
def test_the_recommended_stands_beside_the_fastest_one_click_away(page: str) -> None:
    found = recommend(measured())
    assert found.execution is not None
    assert found.difference
    app = run(page, measured(), opened=[f"{page}_why"])
    told = plainly(html(app))
    assert f"{found.close:,}" in told
    assert f"{100 - 100 / (1 + found.difference):.1f} % slower on paper" in told
    for row in (found.execution, found.fastest):
        assert row is not None
        assert f"TP {row['tensor_par']} × PP {row['pipeline_par']} × DP {row['data_par']}" in told
    for one in found.contenders:
        assert (one.reason or "recommended") in told
    assert "Recommended · shown" in told
    app.segmented_control(key="_figures").select("fastest")
    again(app, measured())
    assert app.session_state["_url"]["figures"] == "fastest"
    assert "Fastest · shown" in plainly(html(app))
    cell = f"{found.execution['tensor_par']}x{found.execution['pipeline_par']}"
    app = run(page, measured(), {"cell": cell, "figures": "fastest"})
    app.button(key=f"{page}_unselect").click()
    again(app, measured())
    assert "cell" not in app.session_state["_url"]


def test_terms_are_of_the_link() -> None:
    link = {"recommended_headroom": "40", "recommended_offload": "on", "recommended_unmeasured": "on"}
    found = recommend(measured(), headroom=0.4, offload=True, unmeasured=True)
    assert found.execution is not None
    app = run("explore", measured(), link)
    assert f'aria-label="Step time {format_value("total_time", found.execution["total_time"])}' in html(app)
    open_menu(app, "explore_why")
    again(app, measured())
    [field] = [one for one in app.number_input if one.label.startswith("Memory kept free")]
    assert field.value == 40.0
    field.set_value(25.0)
    again(app, measured())
    assert app.session_state["_url"]["recommended_headroom"] == "25"


def test_memory_says_where_it_may_not_fit() -> None:
    scenario = measured().scenario
    row = dict(measured().best or {})
    for gib, expected in ((60.0, "−12.0 to +13.6 %"), (79.2, "may not fit: −12.0 to +13.6 %")):
        row["proc_mem_tier1_cap_req"] = gib * GIB
        [tile] = marked([Tile("HBM per GPU", f"{gib} GiB")], scenario, row)
        assert plainly(tile.error) == expected
