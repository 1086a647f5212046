"""The grid of D x H x P on the Schedules page: its answers, its charts, and what it is of."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping

import pandas as pd
import pytest

from dashboard.charts.schedules.parallelism_grid import (
    STYLES,
    envelope_scatter,
    memory_scatter,
    simulated_overlay,
    speedup_curves,
)
from dashboard.compat.caches import computed
from dashboard.queries.parallelism_grids import curves, grid_of, machine_of, stack_of
from engine import Scenario
from engine.questions.documents.distir import DistIRQuestion
from engine.reproductions.distir.simulator import STYLES as ALL_STYLES
from engine.reproductions.distir.simulator import agreement, envelopes, grid, measured_steps, overlay, pareto, timeline
from tests.dashboard.page_runs import html
from tests.dashboard.pages.test_schedules import run

SMALL = DistIRQuestion(models=["mlp-xs"], batches=[64], devices=[1, 2, 4, 8], bandwidth_gbps=25.0)
"""8 layers of width 512."""


def shown(link: Mapping[str, str]) -> tuple[str, list[str]]:
    app = run({"schedules_show": "grid", "schedules_grid_devices": "8", **link})
    return html(app), [caption.value for caption in app.caption]


def test_the_papers_figure() -> None:
    """R1, 200 Gbps, 64 layers of 8,192: DistIR's figure 4, whose pipelines are best with 16, 16, 32 microbatches."""
    told, captions = shown({"schedules_grid_revision": "R1"})
    assert "How every mix scales" in told
    assert any("16 on 2, 16 on 4, 32 on 8" in caption for caption in captions)
    assert "62.1" in told
    assert "0.927" in told
    assert "A step of the fastest" in told
    assert "all-reduces" in told
    assert "22.4\N{NO-BREAK SPACE}% off in the mean" in told.replace("\N{NARROW NO-BREAK SPACE}", "\N{NO-BREAK SPACE}")


def test_the_scenarios_model_on_its_gpu() -> None:
    link = {"schedules_grid_model": "scenario", "schedules_grid_machine": "system", "schedules_grid_fit": "fit"}
    told, captions = shown(link | {"schedules_grid_limit": "70"})
    # Llama 3.1 70B: 80 blocks of 2 (1 + 1/8) + 3 x 3.5 squares of the hidden size.
    assert any("1,020 square weights of 8,192" in caption for caption in captions), captions
    assert "too much memory" in told


@pytest.mark.parametrize(
    "link",
    [
        {"schedules_grid_limit": "0.0001", "schedules_grid_batch": "1"},
        {"schedules_grid_batch": "99999999", "schedules_grid_gbps": "nan", "schedules_grid_devices": "3"},
    ],
)
def test_grids_of_nothing_or_little(link: Mapping[str, str]) -> None:
    told, _ = shown(link)
    assert "Configurations that run" in told


def test_stack_and_machine_of_a_scenario() -> None:
    scenario = Scenario.of("llama-3-70B", "h100_80g_sxm", num_procs=64, max_batch_size=64, datatype="bfloat16")
    layers, width = stack_of(scenario)
    assert width == 8192
    assert layers % 2 == 0
    assert layers * width**2 == pytest.approx(68.5e9, rel=0.01)  # 70.6 G less two embeddings
    machine = machine_of(scenario)
    assert machine["flops"] == pytest.approx(989e12, rel=0.01)
    assert machine["datatype_bytes"] == 2


def test_files_of_a_grid_come_back() -> None:
    """Configurations as a grid with the same figures, events as those of the timeline."""
    table = computed(grid_of)(SMALL)
    read = pd.read_csv(io.StringIO(table.to_csv(index=False)), keep_default_na=False)
    sizes = {"width": 512, "layers": 8, "batch": 64}
    again = grid(read[["D", "H", "P", "m"]], revision="R3", bandwidth_gbps=25.0, **sizes)
    assert again["reason"].tolist() == read["reason"].tolist()
    runs = again["reason"] == ""
    for name in ("latency", "throughput", "peak_memory"):
        assert again.loc[runs, name].tolist() == pytest.approx(read.loc[runs, name].astype(float).tolist(), rel=1e-12)
    found = timeline(revision="R3", D=1, H=1, P=2, m=4, bandwidth_gbps=25.0, **sizes)
    events = json.loads(json.dumps(found.chrome_trace()))
    assert len(events) == len(found.items) + 2 * len(found.transfers)
    spent = sum(float((each["end"] - each["start"]).sum()) for each in (found.items, found.transfers, found.transfers))
    assert sum(each["dur"] for each in events) == pytest.approx(1e6 * spent)


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_charts_say_what_they_show(mode: str) -> None:
    table = computed(grid_of)(SMALL)
    runs = table[table["reason"] == ""]
    front = pareto(runs)
    lines = computed(curves)(SMALL)
    charts = [
        speedup_curves(lines[lines["kind"] == "data"], mode, label="batch", width="Data parallelism"),
        envelope_scatter(runs, envelopes(table), mode),
        memory_scatter(runs, front, mode),
        memory_scatter(runs, front.head(1), mode),
        simulated_overlay(overlay(measured_steps()), agreement(overlay(measured_steps())), mode),
    ]
    for chart in charts:
        assert chart.alt.endswith(".")
        assert len(chart.figure.data) > 1
    assert f"{len(front)} configuration" in charts[2].alt
    edge = charts[2].figure.data[0]
    assert len(edge.x) == len(front)
    assert "81 measured steps" in charts[4].alt
    empty = pd.DataFrame(columns=table.columns)
    assert memory_scatter(empty, empty, mode).alt
    assert envelope_scatter(empty, empty, mode).alt
    assert speedup_curves(lines.head(0), mode, label="m", width="Pipelines").alt


def test_every_style_has_a_mark_of_its_own() -> None:
    assert set(STYLES) == set(ALL_STYLES)
    assert len({symbol for _, symbol in STYLES.values()}) == len(STYLES)
