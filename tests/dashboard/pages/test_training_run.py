"""The training-run panel and the metrics of cost and energy tell what the engine derives."""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

import engine
import hardware
from dashboard.queries import explorations
from dashboard.queries.economics import common_metrics, flops_formula, metrics, token_flops, utilisation
from dashboard.widgets.needed_exploration import seen_with
from dashboard.words.amounts import format_duration, format_large, format_usd_range
from dashboard.words.numbers import days, percent
from engine import Exploration, Scenario, economics
from engine.economics import BLOCK_FORMULA, INPUTS, OUTPUTS, PUBLISHED_FORMULA, RunInputs, TrainingRun
from tests.dashboard.page_runs import FEW, SMALL, again, exploration, html, plainly, run

FASTEST = {"figures": "fastest"}


def expected(found: Exploration, **given: Any) -> TrainingRun:
    best, scenario = found.best, found.scenario
    assert best is not None
    return economics.training_run(
        RunInputs.of(scenario.system, **given),
        tokens_per_s=best["sample_rate"] * scenario.model.seq_size,
        num_procs=16,
        parameters=float(scenario.model.parameters or 0),
    )


def told(page: AppTest) -> str:
    return "\n".join(part for part in html(page).splitlines() if "Wall-clock time" in part)


@functools.cache
def opened() -> AppTest:
    """The page with figures of the fastest, for all tests that only look at it."""
    return run("execution", exploration(), FASTEST)


def test_the_panel_tells_the_engine_s_figures() -> None:
    found = exploration()
    page, figures = opened(), expected(found)
    text = told(page)
    assert f"Wall-clock time {days(figures.wall_s)}, {days(figures.compute_s)} without failures" in text
    assert f"GPU-hours {format_large(figures.proc_hours)}" in text
    assert f"Cost {format_usd_range(figures.usd)}, {format_usd_range(figures.usd_per_billion)} per bn tokens" in text
    assert figures.energy_kwh is not None
    assert f"Energy {format_large(figures.energy_kwh / 1e3)} MWh" in text
    assert f"Goodput {percent(figures.goodput)}, {format_large(figures.failures)} failures expected" in text
    assert f"Checkpoint every {format_duration(figures.daly_s)}" in text
    best = found.best
    assert best is not None
    assert f"MFU, causal {percent(utilisation(found.scenario, best['sample_rate'], convention='causal'))}" in text
    shares = [percent(part / figures.wall_s, 2) for part in figures.parts[:4]]
    assert all(f"<b>{share}</b>" in html(page) for share in shares)


def test_every_input_is_visible_with_its_default_and_its_source() -> None:
    found = exploration()
    page = opened()
    for one in INPUTS.values():
        field = page.number_input(key=f"_execution_run_{one.name}")
        assert one.unit in ("", "tokens") or f"[{one.unit.replace('processor', 'GPU')}]" in field.label
        assert "Default\\: " in (field.help or "")
    inputs = RunInputs.of(found.scenario.system)
    assert page.number_input(key="_execution_run_tokens").value == 1000  # bn
    assert page.number_input(key="_execution_run_usd_low").value == inputs.usd_low
    assert page.number_input(key="_execution_run_mtbf_h").value == inputs.mtbf_h
    assert page.number_input(key="_execution_run_interval_s").value is None
    tables = {tuple(table.value.columns): table.value for table in page.dataframe}
    formulas = tables["Figure", "value", "formula", "source"]
    assert len(formulas) == len(OUTPUTS)
    assert "Daly 2006, equation 37" in formulas["source"].tolist()
    sources = tables["Assumption", "value", "from"].set_index("Assumption")
    assert "arXiv:2407.21783" in sources.loc["Time between failures, per GPU", "from"]
    assert "mercatus-ai.com" in sources.loc["Price from", "from"]


def test_changing_an_input_changes_the_figures_and_the_link() -> None:
    found = exploration()
    page = run("execution", found, FASTEST)
    page.number_input(key="_execution_run_tokens").set_value(15_600.0)
    page.number_input(key="_execution_run_interval_s").set_value(1800.0)
    page = again(page, found)
    url = page.session_state["_url"]
    assert (float(url["execution_run_tokens"]), float(url["execution_run_interval_s"])) == (15.6e12, 1800)
    figures = expected(found, tokens=15.6e12, interval_s=1800.0)
    assert f"Wall-clock time {days(figures.wall_s)}" in told(page)
    assert "Checkpoint every 30 min" in plainly(told(page))
    page.number_input(key="_execution_run_tokens").set_value(1000.0)
    page = again(page, found)
    assert "execution_run_tokens" not in page.session_state["_url"]


def test_a_link_carries_the_inputs() -> None:
    found = exploration()
    page = run("execution", found, {**FASTEST, "execution_run_mtbf_h": "900", "execution_run_pue": "1.4"})
    figures = expected(found, mtbf_h=900.0, pue=1.4)
    assert f"Goodput {percent(figures.goodput)}" in told(page)
    assert page.number_input(key="_execution_run_pue").value == 1.4


def test_a_link_with_nonsense_falls_back_to_the_default() -> None:
    found = exploration()
    nonsense = {
        "pue": "0.2",
        "mtbf_h": "1e300",
        "usd_low": "-3",
        "usd_high": "nan",
        "tokens": "<b>",
        "interval_s": "1e999",
    }
    page = run("execution", found, FASTEST | {f"execution_run_{name}": value for name, value in nonsense.items()})
    default = opened()
    for name in nonsense:
        key = f"_execution_run_{name}"
        assert page.number_input(key=key).value == default.number_input(key=key).value, name
    assert page.number_input(key="_execution_run_pue").value == 1.1
    assert f"Wall-clock time {days(expected(found).wall_s)}" in told(page)


def test_what_cannot_be_is_told_in_a_sentence() -> None:
    found = exploration()
    page = run("execution", found, {"execution_run_usd_low": "9"})
    sentences = [element.value for element in page.warning]
    assert any("Price from must be at most Price to" in sentence for sentence in sentences)
    assert not told(page)
    page = run("execution", found, {"execution_run_mtbf_h": "0.01"})
    assert any("never end" in element.value and "16 GPUs fail" in plainly(element.value) for element in page.warning)


def test_without_a_price_or_a_power_one_can_be_given() -> None:
    document = hardware.to_document(exploration().scenario.system)
    del document["accelerator"]
    found = engine.explore("gpt3-13B", hardware.load_document(document), **SMALL, limits={**FEW, "tensor_par": [4]})
    text = told(run("execution", found, FASTEST))
    assert "Cost –, no price recorded" in text
    assert "Energy –, no power recorded" in text
    text = told(run("execution", found, {**FASTEST, "execution_run_usd_low": "3"}))
    assert f"Cost {format_usd_range(expected(found, usd_low=3.0, usd_high=3.0).usd)}," in text
    assert {"usd", "energy"} & set(metrics(found.scenario)) == set()
    assert "usd" not in common_metrics([exploration().scenario, found.scenario])
    assert "usd" in common_metrics([exploration().scenario])


def test_cost_and_energy_of_tokens_by_hand() -> None:
    found = exploration()
    known, best = metrics(found.scenario), found.best
    assert best is not None
    seconds = 1e12 / (best["sample_rate"] * 2048)
    hours = 16 * seconds / 3600
    assert known["usd"].of(best["sample_rate"]) == pytest.approx(hours * (1.99 + 5.0) / 2)
    assert known["energy"].of(best["sample_rate"]) == pytest.approx(hours * 0.7 * 1.5 * 1.1)
    assert known["tokens_per_usd"].of(best["sample_rate"]) == pytest.approx(1e12 / (hours * (1.99 + 5.0) / 2))
    flops = token_flops(found.scenario).model("full")
    assert known["tflops_per_gpu"].of(best["sample_rate"]) == pytest.approx(best["sample_rate"] * 2048 * flops / 16)
    assert "mercatus-ai.com" in known["usd"].formula
    assert math.isinf(known["usd"].of(0.0))
    assert "12 L h s" in known["mfu"].formula
    assert "6 L h s" in known["mfu_causal"].formula
    assert known["mfu_causal"].factor < known["mfu"].factor


def test_the_map_of_cost_is_that_of_throughput_turned_round() -> None:
    found = exploration()
    known = metrics(found.scenario)
    rates, costs = (explorations.cells_of(found, known[key]) for key in ("sample_rate", "usd"))
    places = ["tensor_par", "pipeline_par"]
    both = rates[[*places, "value"]].merge(costs[[*places, "value"]], on=places, suffixes=("_rate", "_cost"))
    fits = both.dropna()
    assert len(fits) > 3
    assert (fits["value_rate"] * fits["value_cost"]).to_numpy() == pytest.approx(known["usd"].factor)
    assert both["value_rate"].isna().equals(both["value_cost"].isna())
    assert fits["value_cost"].idxmin() == fits["value_rate"].idxmax()
    choices = explorations.choice_costs(found, known["usd"])
    plain = explorations.choice_costs(found, known["sample_rate"])
    assert (choices["value"] * plain["value"]).to_numpy() == pytest.approx(known["usd"].factor)


def test_explore_ranks_by_cost() -> None:
    found = exploration()
    page = run("explore", found, {**FASTEST, "metric": "usd"})
    assert "best cost of 1 T tokens with the choice fixed" in html(page)
    assert "fastest here" in html(page), "the fastest costs least"
    assert "<b>100 %</b>" in plainly(html(page)) or "<b>100.0 %</b>" in plainly(html(page))


def test_model_flop_is_of_what_is_timed() -> None:
    scenario = exploration().scenario
    assert flops_formula(scenario).startswith(BLOCK_FORMULA)
    assert token_flops(scenario).head == 0
    experts = Scenario.of("deepseek-v3", "h100_80g_sxm", num_procs=16, max_batch_size=16, datatype="bfloat16")
    assert flops_formula(experts).startswith(PUBLISHED_FORMULA)
    assert token_flops(experts) == economics.token_flops(experts.model)


def test_an_exploration_is_shown_with_the_price_of_the_scenario_that_was_asked_for() -> None:
    found = exploration()
    document = hardware.to_document(found.scenario.system)
    document["accelerator"]["usd_per_h"] = [1.0, 1.0]
    cheaper = replace(found.scenario, system=hardware.load_document(document))
    assert cheaper.key == found.key
    seen = seen_with(found, cheaper)
    assert metrics(seen.scenario)["usd"].factor == pytest.approx(metrics(found.scenario)["usd"].factor / 3.495)
    assert seen.rows is found.rows
    assert found.scenario.system != cheaper.system
    assert seen_with(found, found.scenario) is found


def test_amounts_are_written_shortly() -> None:
    assert format_usd_range((960_000.0, 2_618_000.0)) == "$0.960–2.62 M"
    assert format_usd_range((12.0, 12.0)) == "$12"
    assert format_usd_range(None) == "–"
    assert [plainly(format_duration(seconds)) for seconds in (34.1, 600.0, 13_920.0)] == ["34.1 s", "10 min", "3.87 h"]
    assert format_large(43_912.0) == "43,900"
    assert plainly(format_large(30_853_901.0)) == "30.9 M"
