"""What a chart, a formula or a table says means the same wherever it is read."""

from __future__ import annotations

import math
from typing import Any

import pytest

import engine
from dashboard.charts.elements.palette import palette
from dashboard.charts.execution.time_bar import waterfall
from dashboard.pages.whatif.studies import swings_of
from dashboard.queries.economics import utilisation
from engine import Exploration, best_of, whatif
from engine.columns import by_name
from engine.cost_models.calibrated.formulas import EXPRESSIONS
from tests.dashboard.page_runs import SMALL, exploration, figure, html, plainly, run
from tests.dashboard.pages.test_calibrated_pages import dense
from tests.dashboard.pages.test_whatif import only, studied


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_what_takes_less_time_than_the_other_has_a_minus_and_the_colour_of_better(mode: str) -> None:
    found = exploration()
    rows = found.top(400).to_dict("records")
    fast, slow = rows[0], rows[-1]
    assert slow["total_time"] > fast["total_time"]
    colours = palette(mode)
    for one, other, sign, tone in ((fast, slow, "−", colours.better), (slow, fast, "+", colours.worse)):
        notes = waterfall(one, mode, other=other, names=("best", "base")).figure.layout.annotations
        assert "best − base" in {note.text for note in notes}
        whole = [note for note in notes if note.text.startswith(f"<b>{sign}")]
        assert [note.font.color for note in whole] == [tone]
        for note in notes:
            text = note.text.replace("<b>", "")
            if note.font.color in (colours.better, colours.worse):
                assert (note.font.color == colours.better) == text.startswith("−")


def test_the_tornado_compares_work_and_sets_the_model_apart() -> None:
    """Half the sequence is twice the samples and no gain; hardware keeps its gain in throughput."""
    scenario = exploration().scenario
    names = ["hbm_bandwidth", "sequence", "hidden"]
    found = list(whatif.sensitivity(scenario, (0.5, 2.0), names))
    base = best_of(scenario)["sample_rate"]
    swings = {swing.name: swing for swing in swings_of(scenario, found, base, (0.5, 2.0))}
    assert [swing.group for swing in swings.values()] == ["Hardware", "Model", "Model"]
    before = utilisation(scenario, base)
    for which, factor, point in found:
        swing = swings[which.name]
        gain = swing.down if factor < 1 else swing.up
        expected = point.rate / base - 1
        if which.about == "model":
            changed = whatif.changed(scenario, {which.name: point.values[which.name]})
            expected = utilisation(changed, point.rate) / before - 1
            assert abs(expected) < 0.5 < abs(point.rate / base - 1) or math.isnan(expected)
        assert gain == pytest.approx(expected, nan_ok=True)
    # The other studies have one size, and no sweep over two parameters.
    link = {"whatif_step": "2", "whatif_x": "hbm_capacity", "whatif_range": "16..16:1"}
    with only("sensitivity"):
        drawn = figure(studied(link), "whatif_tornado")
    labels = drawn["layout"]["yaxis"]["ticktext"]
    assert {"<b>Hardware</b>", "<b>Model</b>"} <= set(labels)


def test_a_filtered_panel_says_which_best_it_means() -> None:
    found = exploration()
    everything = plainly(html(run("explore", found)))
    assert "<span>of best</span>" in everything
    for link, told in (
        (
            {"results_where": "activation_recompute:full", "figures": "fastest"},
            "longer than in the fastest without filters",
        ),
    ):
        page = run("explore", found, link)
        text, captions = plainly(html(page)), plainly(" ".join(each.value for each in page.caption))
        assert "<span>of filtered best</span><b>100 %</b>" in text
        assert "<span>of best</span>" not in text
        assert told in captions


def written(app: Any) -> list[list[str]]:
    """The lines of every formula on a page."""
    return [code.value.split("\n= ") for code in app.code if "= " in code.value and "{" not in code.value]


@pytest.mark.parametrize(
    ("found", "names"),
    [
        (dense, ["tp_comm_exposed_time", "optim_step_time", "total_time", "overhead_time"]),
        (exploration, ["dp_comm_exposed_time", "act_grad_space", "sample_rate", "block_fw_flops", "block_fw_time"]),
    ],
)
def test_no_formula_repeats_itself(found: Any, names: list[str]) -> None:
    explored: Exploration = found()
    for name in names:
        app = run("execution", explored, {"execution_figure": name})
        for first, *rest in written(app):
            given = first.partition(" = ")
            lines = [given[2], *rest]
            assert len(set(lines)) == len(lines) > 1, lines
        assert by_name(name).description in " ".join(each.value.replace("\\", "") for each in app.caption)


def test_a_part_that_is_only_another_name_is_no_formula() -> None:
    assert not [name for name, (text, _) in EXPRESSIONS.items() if isinstance(text, str) and text.isidentifier()]


@pytest.mark.parametrize("offloads", [True, False])
def test_bandwidths_are_of_what_the_execution_does(offloads: bool) -> None:
    limits = {
        "weight_offload": offloads,
        "activations_offload": False,
        "optimizer_offload": False,
        "tensor_par_overlap": "none",
        "data_par_overlap": False,
        "microbatch_size": 1,
        "tensor_par": [4, 8],
    }
    found = engine.explore("gpt3-13B", "h100_80g_nvl8", **SMALL, limits=limits)
    app = run("execution", found)
    tables = [table.value for table in app.dataframe if "needed" in table.value]
    assert bool(tables) == offloads
    if offloads:
        assert all("ctivation" not in label and "ptimizer" not in label for label in tables[0]["Bandwidth"])
