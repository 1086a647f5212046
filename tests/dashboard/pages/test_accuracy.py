"""Labels and intervals say what the measured runs say, and ties follow from them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import engine
from dashboard.charts.elements.markup import Tile, figure_strip
from dashboard.files.exports import about
from dashboard.files.report import build
from dashboard.queries import accuracy
from dashboard.words.numbers import SPACE, percent
from engine import Exploration, Scenario
from engine.questions.documents.explorations import FiguresQuestion
from engine.validation.uncertainty import SHARE, SOURCE_WEIGHT, interval, memory_interval_of, residuals
from tests.dashboard.page_runs import exploration, run
from tests.dashboard.pages.test_calibrated_pages import NO_OFFLOAD, experts, rows, words
from tests.dashboard.pages.test_calibrated_pages import dense as offloading


def made(system: str, **more: Any) -> Scenario:
    return Scenario.of("llama-3.1-70B", system, num_procs=16, max_batch_size=32, **{"datatype": "bfloat16", **more})


@functools.cache
def dense() -> Exploration:
    """The scenario of `offloading` without any, as the runs were that were measured."""
    found = offloading().scenario
    return engine.explore_scenario(replace(found, limits={**found.limits, **dict.fromkeys(NO_OFFLOAD, (False,))}))


@functools.cache
def shown(page: str, of: Callable[[], Exploration]) -> str:
    """All text of a page on one of the explorations, with figures of the fastest, which several tests read."""
    return words(run(page, of(), {"figures": "fastest"}, opened=[f"{page}_accuracy"]))


def test_labels_say_what_was_measured() -> None:
    assert accuracy.label_of(made("h100_80g_sxm")) == "calibrated"
    assert accuracy.label_of(made("mi300x_192g")) == "modelled"
    assert accuracy.label_of(made("h100_80g_sxm", cost_model="calculon")) == "exact"


def test_an_interval_is_that_of_unseen_runs_of_its_kind() -> None:
    row = rows(dense())[0]
    error = accuracy.error_of(dense().scenario, row)
    assert error is not None
    assert error.most == interval(generation="hopper", experts=False, bits=16, share=SHARE)
    own = residuals()[(residuals()["generation"] == "hopper") & ~residuals()["experts"]]
    own = own[own["bits"] == 16] if "bits" in own else own
    inside = own["ratio"].between(error.most.low, error.most.high)
    weights = own.groupby("source")["ratio"].transform("size") ** -SOURCE_WEIGHT
    assert np.average(inside, weights=weights) == pytest.approx(SHARE, abs=2 / len(inside))
    assert error.most.low < error.half.low < error.half.high < error.most.high
    assert accuracy.error_of(exploration().scenario, row) is None


def test_what_was_never_measured_stands_beside_the_figure_on_every_page() -> None:
    """An execution with offloading is best; no run with it was ever measured, so there is no interval around it."""
    best = offloading().best
    assert best is not None
    assert best["weight_offload"]
    assert accuracy.label_of(offloading().scenario, best) == "modelled"
    assert accuracy.error_of(offloading().scenario, best) is None
    (tile,) = accuracy.marked([Tile("Step time", "1 s")], offloading().scenario, best)
    assert (tile.origin, tile.error) == ("modelled", "never measured: offload")
    assert "Never measured: offloading" in build(offloading(), "", asked=FiguresQuestion(figures_of="fastest")).decode()
    assert "Never measured" not in build(dense(), "").decode()
    for page in ("explore", "execution", "memory", "whatif"):  # the last goes on searching
        assert "never measured: offload" in shown(page, offloading), page
        assert "never measured" not in shown(page, dense), page


def test_rates_err_the_other_way_round() -> None:
    row = rows(dense(), 1)[0]
    error = accuracy.error_of(dense().scenario, row)
    assert error is not None
    tiles = [Tile("Step time", "1 s"), Tile("Throughput", "1 samples/s"), Tile("HBM", "1 GiB"), Tile("Bubble", "1 %")]
    time, rate, memory, bubble = accuracy.marked(tiles, dense().scenario, row)
    assert time.error.startswith(accuracy.span(error.most.low, error.most.high))
    assert rate.error.startswith(accuracy.span(1 / error.most.high, 1 / error.most.low))
    assert (time.origin, memory.origin, bubble.origin) == ("calibrated", "modelled", "")
    room = memory_interval_of(dense().scenario)
    assert room is not None
    assert accuracy.span(room.low, room.high) in memory.error  # bytes have errors of their own
    assert bubble.error == ""
    assert "calibrated" in figure_strip([time])
    plain = accuracy.marked(tiles, exploration().scenario, row)
    assert not any(tile.origin for tile in plain)
    assert not any(tile.error for tile in plain)
    assert "ss-tile-error" not in figure_strip(plain)


def test_what_figures_rest_on_is_told_once_below_them() -> None:
    row = rows(dense(), 1)[0]
    error = accuracy.error_of(dense().scenario, row)
    assert error is not None
    told = accuracy.basis(dense().scenario, row)
    assert "fitted to measured runs, memory modelled" in told
    held = percent(error.most.held, 0)
    assert told.endswith(f"% of {error.most.rests_on}, and {held} if their source is left out.")
    tiles = accuracy.marked([Tile("Step time", "1 s")], dense().scenario, row)
    strip = figure_strip(tiles, told)
    assert "ss-origin" not in strip
    assert strip.count("fitted to measured runs") == 1
    fastest = next(row for row in rows(offloading()) if offloading().scenario.not_measured(row))
    assert "times and memory modelled" in accuracy.basis(offloading().scenario, fastest)
    assert "not measured" in accuracy.basis(exploration().scenario, row)


def test_span_reads_as_an_interval() -> None:
    assert accuracy.span(0.93, 1.08) == f"−7.0 to +8.0{SPACE}%"


def test_ties_are_the_executions_within_half_the_interval() -> None:
    found = dense()
    best = found.best
    assert best is not None
    error = accuracy.error_of(found.scenario, best)
    assert error is not None
    times = found.rows.table(["total_time", "batch_size"])
    rates = times["batch_size"].to_numpy() / times["total_time"].to_numpy()
    near = int(np.sum(rates * (1 + error.width) >= rates.max()))
    assert accuracy.ties(found, best) == near - 1 > 0
    same = exploration()
    assert same.best is not None
    assert accuracy.ties(same, same.best) == 0
    slower = {**best, "sample_rate": best["sample_rate"] / (1 + error.width * 0.9)}
    slowest = {**best, "sample_rate": best["sample_rate"] / (1 + error.width * 1.1)}
    assert accuracy.is_tied(found.scenario, best, slower)
    assert accuracy.is_tied(found.scenario, slower, best)
    assert not accuracy.is_tied(found.scenario, best, slowest)
    assert not accuracy.is_tied(same.scenario, best, slower)


def test_pages_show_labels_and_ties() -> None:
    best = experts().best
    assert best is not None
    text = shown("execution", experts)
    assert "measured runs" in text
    assert "other executions lie within the error" in text
    error = accuracy.error_of(experts().scenario, best)
    assert error is not None
    assert f"mixtures of experts on {'Hopper' if 'Hopper' in error.most.described else 'any generation'}" in text
    assert error.most.held_words in text
    assert "other settings are as good within the error" in shown("explore", dense)
    assert "to the last digit" in words(run("execution", exploration(), opened=["execution_accuracy"]))


def test_pareto_and_compare_mark_ties() -> None:
    assert "are tied with the best" in words(run("pareto", dense()))
    assert "are tied with" not in words(run("pareto", exploration()))


def test_report_and_exports_say_what_figures_rest_on() -> None:
    found = dense()
    used = found.scenario.used_calibration
    text = build(found, "").decode()
    assert f"Calibration {used.name} of {used.date}" in text
    assert "Times are <b>calibrated</b>" in text
    assert used.fitted_on[:40] in text
    assert "How much of the peak operations reach" not in text
    account = about(found, ["id", "sample_rate"], [])
    assert account["calibration"]["name"] == used.name
    assert account["calibration"]["errors"][0]["mean_absolute_percent"] > 0
    assert account["label"] == "calibrated"
    assert account["scenario"]["cost_model"] == "calibrated"
    exact = about(exploration(), ["id"], [])
    assert (exact["calibration"], exact["label"]) == (None, "exact")
    assert "Times are <b>exact</b>" in build(exploration(), "").decode()
