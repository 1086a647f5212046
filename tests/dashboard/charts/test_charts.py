"""Charts show the data that they were given, in colours that mean what they should."""

import math
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plotly.basedatatypes import BasePlotlyType

from dashboard.charts.accuracy.residuals import _lines
from dashboard.charts.elements import markup
from dashboard.charts.elements.palette import DARK, LIGHT, MEMORY_KINDS, TIME_KINDS, common_kinds, contrast, kinds_of
from dashboard.charts.elements.template import log_ticks, nice_steps, wrapped
from dashboard.charts.execution.memory_bars import memory_bars, memory_rows, tier_pieces
from dashboard.charts.execution.time_bar import time_pieces, waterfall
from dashboard.charts.explored.choices import choices
from dashboard.charts.explored.histogram import histogram
from dashboard.charts.explored.pareto import MAX_MARKS, Density, edges, pareto, thinned
from dashboard.charts.explored.reasons import reasons
from dashboard.charts.plans.post_training import step_by_split
from dashboard.words import numbers
from dashboard.words.names import in_sentence
from engine.columns import HEADLINE, by_name
from tests import reference
from tests.dashboard.page_runs import exploration, plainly, plots, run

CATEGORICAL = (
    *(kind for kind in common_kinds(TIME_KINDS) if kind.light is not None),
    MEMORY_KINDS[0],
    common_kinds(MEMORY_KINDS)[-1],
)
"""One kind per colour, in the order of the theme's ten categorical colours."""

GIB = 2.0**30
PALETTES = [LIGHT, DARK]
RUNS = reference.golden().query("status == 'ok'").reset_index(drop=True)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.05, 900.0, 1),
        (7.5, 16.7, "L2"),
        (1.0, 100.0, "D2"),
        (2.2, 9.0, "L2"),
        (61.0, 79.0, "L5"),
        (0.0131, 0.0149, "L0.0005"),
    ],
)
def test_a_logarithmic_axis_has_ticks_over_any_range(low: float, high: float, expected: int | str) -> None:
    assert log_ticks(low, high)["dtick"] == expected


def test_names_of_columns_are_told_apart_by_their_ends() -> None:
    assert _lines("Megatron-Bridge 26.04.01", 15) == "Megatron-<br>Bridge 26.04.01"
    assert _lines("Megatron-Bridge 26.02", 30) == "Megatron-Bridge 26.02"
    assert _lines("a<b", 15) == "a&lt;b"
    assert _lines("modules:moe+layernorm+core_attn+moe_act", 12) == "modules:moe+<br>layernorm+<br>…moe_act"


def test_tier_pieces_sum_to_what_the_reference_needs() -> None:
    assert RUNS["weight_offload"].sum() > 50
    for row in RUNS.to_dict("records"):
        first, second = tier_pieces(row)
        assert sum(first.values()) == pytest.approx(row["proc_mem_tier1_cap_req"], rel=1e-12)
        assert sum(second.values()) == pytest.approx(row["proc_mem_tier2_cap_req"], rel=1e-12)


def test_time_pieces_sum_to_the_step_and_use_stored_columns_only() -> None:
    stored = {column.name for column in HEADLINE}
    for row in RUNS.to_dict("records"):
        assert sum(time_pieces({name: row[name] for name in stored}).values()) == pytest.approx(
            row["total_time"], rel=1e-12
        )


def test_memory_bars_show_every_byte_against_the_capacity() -> None:
    row = RUNS[RUNS["weight_offload"] & RUNS["optimizer_offload"] & RUNS["training"]].iloc[0].to_dict()
    chart = memory_bars([("A", row)], (0.5 * row["proc_mem_tier1_cap_req"], math.inf))
    sums = {"x": 0.0, "x2": 0.0}
    for trace in chart.figure.data:
        sums[trace.xaxis] += sum(trace.x)
    scales = [
        numbers.scale_for("act_space", [0.5 * row["proc_mem_tier1_cap_req"]]),
        numbers.scale_for("act_space", [row["proc_mem_tier2_cap_req"]]),
    ]
    assert sums["x"] * scales[0].factor == pytest.approx(row["proc_mem_tier1_cap_req"])
    assert sums["x2"] * scales[1].factor == pytest.approx(row["proc_mem_tier2_cap_req"])
    (line,) = chart.figure.layout.shapes
    assert line.x0 * scales[0].factor == pytest.approx(0.5 * row["proc_mem_tier1_cap_req"])
    assert chart.figure.layout.xaxis.range[1] > sums["x"]
    assert "too much" in chart.alt
    assert "200 %" in [plainly(note.text) for note in chart.figure.layout.annotations]


def test_memory_has_one_panel_when_host_memory_is_unused() -> None:
    row = RUNS[RUNS["proc_mem_tier2_cap_req"] == 0].iloc[0].to_dict()
    figure = memory_bars([("", row)], (80 * GIB, 512 * GIB)).figure
    assert {trace.xaxis for trace in figure.data} == {"x"}
    assert "too much" not in memory_bars([("", row)], (math.inf, 0)).alt


def test_memory_rows_keep_the_order_of_the_table() -> None:
    table = RUNS.iloc[:5].assign(id=range(100, 105))
    figure = memory_rows(table, 80 * GIB).figure
    assert list(figure.data[0].y) == [4, 3, 2, 1, 0]
    assert [custom[2] for custom in figure.data[0].customdata] == [100, 101, 102, 103, 104]
    totals = [note.text for note in figure.layout.annotations if "<b>" in note.text]
    assert totals == [f"<b>{numbers.format_value('act_space', value)}</b>" for value in table["proc_mem_tier1_cap_req"]]
    assert "No execution" in memory_rows(table.iloc[:0], GIB).alt


def test_waterfall_parts_follow_each_other_and_end_at_the_step() -> None:
    row = RUNS[RUNS["bubble_time"] > 0].iloc[0].to_dict()
    (trace,) = waterfall(row).figure.data
    assert trace.base[0] == 0
    for index in range(1, len(trace.x)):
        assert trace.base[index] == pytest.approx(sum(trace.x[1:index]))
    assert trace.base[-1] + trace.x[-1] == pytest.approx(trace.x[0])
    assert [shape == "/" for shape in trace.marker.pattern.shape].index(True) == 5  # the bubble
    assert trace.marker.color[1:5] == tuple(kind.light for kind in TIME_KINDS[:4])


def test_waterfall_compares_with_a_second_execution() -> None:
    first, second = RUNS.iloc[0].to_dict(), RUNS.iloc[1].to_dict()
    chart = waterfall(first, "dark", other=second, names=("here", "there"))
    texts = [note.text for note in chart.figure.layout.annotations]
    change = numbers.format_delta("total_time", first["total_time"] - second["total_time"])
    assert f"<b>{change}</b>" in texts
    assert "here − there" in texts
    assert len(texts) == 3 + 3 * (1 + len(kinds_of(TIME_KINDS, "calculon")))
    assert "there takes" in chart.alt


def test_pareto_draws_the_frontier_in_the_units_of_the_axes() -> None:
    frontier = pd.DataFrame(
        {"id": [5, 9, 2], "proc_mem_tier1_cap_req": [40 * GIB, 10 * GIB, 20 * GIB], "sample_rate": [9.0, 1.0, 4.0]}
    )
    density = Density([[1, 0], [3, 1000]], [0, 25 * GIB, 50 * GIB], [0.0, 5.0, 10.0])
    chart = pareto(frontier, "proc_mem_tier1_cap_req", "sample_rate", density=density, selected=9)
    heat, marks = chart.figure.data
    assert (list(marks.x), list(marks.y)) == ([10, 20, 40], [1, 4, 9])
    assert [custom[0] for custom in marks.customdata] == [9, 2, 5]
    assert marks.marker.size[0] > marks.marker.size[1]
    assert marks.line.shape == "hv"
    assert np.isnan(heat.z[0][1])
    assert heat.z[1][1] == pytest.approx(3)
    assert heat.customdata[1][0] == 3
    assert chart.figure.layout.xaxis.title.text == "HBM needed, GiB"
    assert "Best HBM needed 10 GiB, with throughput 1 samples/s" in plainly(chart.alt)


def test_pareto_with_a_third_axis_colours_the_marks_and_reverses_for_lower_is_better() -> None:
    frontier = pd.DataFrame(
        {"id": [1, 2], "sample_rate": [1.0, 2.0], "total_efficiency": [0.4, 0.3], "bubble_time": [0.5, 0.0]}
    )
    (marks,) = pareto(frontier, "sample_rate", "total_efficiency", z="bubble_time").figure.data
    assert marks.mode == "markers"
    assert list(marks.marker.color) == [0.0, 1.0]
    (line,) = pareto(frontier, "sample_rate", "total_efficiency").figure.data
    assert line.line.shape == "vh"


def test_pareto_leaves_out_what_cannot_be_drawn() -> None:
    frontier = pd.DataFrame({"id": [1, 2], "sample_rate": [1.0, 2.0], "offload_mem_bw_req": [math.inf, 1e9]})
    (marks,) = pareto(frontier, "sample_rate", "offload_mem_bw_req").figure.data
    assert list(marks.x) == [2.0]
    assert "no frontier" in pareto(frontier.iloc[:1], "sample_rate", "offload_mem_bw_req").alt


@given(st.integers(0, 10_000))
def test_thinning_keeps_the_ends(rows: int) -> None:
    kept = thinned(pd.DataFrame({"a": range(rows)}))
    assert len(kept) == min(rows, MAX_MARKS)
    if rows:
        assert (kept["a"].iloc[0], kept["a"].iloc[-1]) == (0, rows - 1)


def test_edges_enclose_the_values() -> None:
    assert edges(1, 100, 2, logarithmic=True) == pytest.approx([1, 10, 100])
    assert edges(0, 4, 4) == [0, 1, 2, 3, 4]
    low, *_, high = edges(5.0, 5.0, 4)
    assert low < 5 < high


def test_histogram_bars_are_the_counts() -> None:
    chart = histogram([3, 0, 9], [0.0, 0.1, 0.2, 0.3], "total_time", marked=0.15)
    assert list(chart.figure.data[0].y) == [3, 0, 9]
    assert list(chart.figure.data[0].x) == pytest.approx([50, 150, 250])
    assert chart.figure.layout.shapes[0].x0 == pytest.approx(150)
    assert "holds 9, from 200 ms to 300 ms" in plainly(chart.alt)
    assert "No execution" in histogram([0, 0], [0, 1, 2], "total_time").alt


CHOICES = pd.DataFrame(
    [
        ("activation_recompute", "full", 69.0),
        ("activation_recompute", "none", 96.0),
        ("activation_recompute", "attn_only", 100.0),
        ("optimizer_sharding", True, 100.0),
        ("optimizer_sharding", False, 99.9),
        ("microbatch_size", 32, math.nan),
        ("tensor_par_net", 1, 84.0),
    ],
    columns=["field", "choice", "value"],
)


def test_choices_are_placed_at_their_share_of_the_best() -> None:
    chart = choices(CHOICES, "sample_rate", networks=("NVLink", "InfiniBand"))
    (dots,) = chart.figure.data
    assert list(dots.x) == pytest.approx([0.69, 0.96, 1, 1, 0.999, 0.84])
    assert dots.y[0] == dots.y[1] == dots.y[2] > dots.y[3] == dots.y[4] > dots.y[5]
    texts = [note.text for note in chart.figure.layout.annotations]
    assert "selective" in texts
    assert "off · on" in texts  # the same place within a hair: one label
    assert "32: none runs" in texts
    assert "InfiniBand" in texts
    assert "recompute full: it leaves 69.0 %" in plainly(chart.alt)


def test_options_side_by_side_are_not_read_as_one_number() -> None:
    values = [72.0, 92.7, 93.0, 100.0]
    table = pd.DataFrame({"field": ["pipeline_interleaving"] * 4, "choice": [5, 2, 8, 1], "value": values})
    labels = {note.text: note for note in choices(table, "sample_rate").figure.layout.annotations}
    assert labels["2"].yshift != labels["8"].yshift  # at one height they would say 28
    assert labels["8"].yshift == labels["1"].yshift == labels["5"].yshift


def test_labels_below_a_rail_keep_away_from_those_above_the_next() -> None:
    close = pd.DataFrame({"field": ["tensor_par_comm_type"] * 2, "choice": ["ar", "rs_ag"], "value": [99.0, 100.0]})
    far = pd.DataFrame({"field": ["optimizer_sharding"] * 2, "choice": [False, True], "value": [60.0, 100.0]})

    def heights(first: pd.DataFrame, second: pd.DataFrame) -> tuple[set[int], float]:
        figure = choices(pd.concat([first, second]), "sample_rate").figure
        top = max(figure.data[0].y)
        return {int(note.yshift) for note in figure.layout.annotations if note.y == top}, top - min(figure.data[0].y)

    above, apart = heights(far, close)
    assert len(above) == 1
    both, further_apart = heights(close, far)
    assert len(both) == 2
    assert further_apart > apart


def test_a_long_option_without_room_at_its_dot_stands_a_little_aside() -> None:
    names = ["mlp_stagger", "norm_act", "attn_only"]
    table = pd.DataFrame({"field": ["selective_recompute"] * 3, "choice": names, "value": [96.0, 98.9, 100.0]})
    notes = choices(table, "sample_rate").figure.layout.annotations
    assert len(notes) == 3
    far = min(notes, key=lambda note: note.x)
    assert 0.955 < far.x <= 0.96


def test_choices_of_a_metric_where_lower_is_better() -> None:
    table = pd.DataFrame({"field": ["training"] * 2, "choice": [True, False], "value": [4.0, 2.0]})
    (dots,) = choices(table, "total_time").figure.data
    assert list(dots.x) == pytest.approx([0.5, 1.0])
    assert "No execution" in choices(table.assign(value=math.nan), "total_time").alt


def test_reasons_are_ordered_named_and_complete() -> None:
    counts = {f"reason_{index}": index for index in range(12)}
    chart = reasons(counts, labels={"reason_11": "Out of HBM"}, limit=5)
    (trace,) = chart.figure.data
    assert list(trace.x) == [11, 10, 9, 8, sum(range(8))]
    names = chart.figure.layout.yaxis.ticktext
    assert (names[0], names[1], names[-1]) == ("Out of HBM", "Reason 10", "7 other reasons")
    assert trace.marker.pattern.shape == "/"
    assert "out of HBM, 11 of them (17 %)" in plainly(chart.alt)
    assert reasons({}).alt == "Every execution fits."


def test_mini_bars_and_tiles_escape_and_state_their_numbers() -> None:
    html = markup.memory_bar({"weights": 60 * GIB, "activations": 40 * GIB}, 80 * GIB, "a<b")
    assert "100 GiB of 80 GiB" in plainly(html)
    assert "ss-worse" in html
    assert "left:80.000%" in html
    assert "a&lt;b" in html
    assert "<b style" not in markup.memory_bar({"weights": 8 * GIB}, 80 * GIB)
    unlimited = markup.memory_bar({"weights": 8 * GIB}, 80e9 * GIB)
    assert "width:100.000%" in unlimited  # the bar is its own scale
    assert "PiB" not in unlimited
    strip = markup.figure_strip([markup.Tile("Step <time>", "1.87 s", "▲ 3 % sooner", "better")])
    assert '<div class="ss-tile-value">1.87 <span class="ss-unit">s</span>' in strip
    assert "Step &lt;time&gt;" in strip
    assert "ss-better" in strip
    assert "ss-hatch" in markup.time_bar({"forward": 1.0, "bubble": 1.0})
    for name in ("ss-strip", "ss-tile", "ss-mini", "ss-legend", "ss-chip", "ss-head", "ss-facts", "ss-hatch"):
        assert f".{name}" in markup.stylesheet(), name


def test_kinds_cover_the_step_and_the_memory_with_distinct_colours() -> None:
    parts = [name for kind in kinds_of(TIME_KINDS, "calculon") for name in kind.statistics]
    assert sorted(parts) == sorted(column.name for column in HEADLINE if column.group == "Time")
    assert all(by_name(name).unit == "bytes" for kind in MEMORY_KINDS for name in kind.statistics)
    for colours in PALETTES:
        used = [kind.colour(colours) for kind in CATEGORICAL]
        assert len(set(used)) == 10
        for kind in (*TIME_KINDS, *MEMORY_KINDS):
            assert contrast(kind.colour(colours) or colours.panel, kind.label(colours)) >= 4.5, kind.name
        for share in range(101):
            for fill in (colours.ramp(share / 100), colours.diverge(share / 50 - 1)):
                assert contrast(fill, colours.ink_on(fill)) >= 4.5, fill
        assert contrast(colours.muted, colours.background) >= 4.5
        assert contrast(colours.worse, colours.background) >= 4.5
        assert contrast(colours.better, colours.background) >= 4.5


def test_theme_repeats_the_palette() -> None:
    config = tomllib.loads((Path(__file__).parents[3] / ".streamlit" / "config.toml").read_text())
    for colours in PALETTES:
        theme = config["theme"][colours.mode]
        assert tuple(theme["chartSequentialColors"]) == colours.sequential
        assert tuple(theme["chartDivergingColors"]) == colours.diverging
        assert theme["chartCategoricalColors"] == [kind.colour(colours) for kind in CATEGORICAL]
        assert theme["backgroundColor"] == colours.background
        assert theme["textColor"] == colours.text
        assert {len(value) for key, value in theme.items() if key.startswith("chart")} == {10}


def test_interface_is_closed_by_default() -> None:
    config = tomllib.loads((Path(__file__).parents[3] / ".streamlit" / "config.toml").read_text())
    assert config["server"]["address"] == "127.0.0.1"
    assert config["client"]["showErrorDetails"] == "none"
    assert config["browser"]["gatherUsageStats"] is False
    font = config["theme"]["fontFaces"][0]["url"].removeprefix("app/")
    assert (Path(__file__).parents[3] / font).is_file()


def test_small_text_helpers() -> None:
    assert in_sentence("HBM needed") == "HBM needed"
    assert in_sentence("Step time") == "step time"
    assert in_sentence("LoRA tokens") == "LoRA tokens"
    assert in_sentence("Requests at once, LoRA") == "requests at once, LoRA"
    assert wrapped("one two three", 7) == "one two<br>three"
    assert nice_steps(0, 10) == [0, 2, 4, 6, 8, 10]
    assert nice_steps(5, 5) == [5]


@pytest.mark.parametrize("page", ["serving", "validation"])
def test_what_a_page_draws_of_what_does_not_change_is_drawn_once_for_all_sessions(
    page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second session gets the same charts, and none is drawn or changed for it."""
    found = exploration()
    first = run(page, found)
    drawn: list[str] = []
    monkeypatch.setattr(BasePlotlyType, "update", lambda *_, **__: drawn.append("a trace"))
    second = run(page, found)
    assert drawn == []
    charts = [plot.spec for plot in plots(first)]
    assert charts
    assert [plot.spec for plot in plots(second)] == charts


def test_the_best_split_of_every_mode_is_on_the_chart() -> None:
    curve = [
        {"mode": "asynchronous", "gpus_train": 12, "gpus_rollout": 4, "step_s": 10.0},
        {"mode": "colocated", "gpus_train": 16, "gpus_rollout": 16, "step_s": 90.0},
    ]
    chart = step_by_split(curve, 16, {"colocated": "Colocated", "asynchronous": "Asynchronous"})
    assert chart.figure.layout.yaxis.range[1] > 90.0
