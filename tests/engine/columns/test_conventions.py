"""Both conventions of MFU and TFLOP/s: against published FLOP, by one switch, the same from every door."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import models
from dashboard.link.scenario_parameters import parameters_of, read_scenario
from dashboard.queries.economics import flops_told, metrics, mfu_label, quick_metrics, utilisation
from dashboard.queries.scenario_edits import altered, switch_cost_model
from dashboard.widgets.needed_exploration import seen_with
from dashboard.words.numbers import percent
from engine import Scenario, ScenarioError, whatif
from engine.columns import MFU_OF, TFLOPS_OF
from engine.economics import derived_of
from engine.questions import answer
from models.token_flops import TokenFlops, token_flops
from tests.dashboard.page_runs import exploration, html, run

FASTEST = {"figures": "fastest"}
LLAMA = {"model": "llama-3-70B", "system": "h100_80g_sxm", "procs": "64", "batch": "64", "type": "bfloat16"}


def llama(seq_size: int = 8192) -> TokenFlops:
    return token_flops(models.load("llama-3-70B").model_copy(update={"seq_size": seq_size}))


def test_causal_halves_core_attention_and_nothing_else() -> None:
    # Llama 3 70B by hand: 80 layers, 64 heads of 128, hidden 8192, 8 KV heads, MLP 28672, 128000 words in use.
    weights = 80 * (8192 * (2 * 8192 + 2 * 1024) + 3 * 8192 * 28672) + 8192 * 128_000
    for length in (8192, 131_072):
        core = 80 * 4 * 64 * 128 * length  # q k^T and p v of one token, both 2 FLOP per product
        assert llama(length).model("full") == pytest.approx(3 * (2 * weights + core), rel=1e-12)
        assert llama(length).model("causal") == pytest.approx(3 * (2 * weights + core / 2), rel=1e-3)
    # Counting in full shows 55 % more at 128k tokens.
    assert llama(131_072).model("full") / llama(131_072).model("causal") == pytest.approx(1.55, abs=0.01)


def test_windows_count_what_the_mask_lets_through() -> None:
    found = token_flops(models.load("mistral-7B-v0.1"))
    model = models.load("mistral-7B-v0.1").architecture
    assert model is not None
    window, length = model.sliding_window, 8192
    assert window is not None
    longer = token_flops(models.load("mistral-7B-v0.1").model_copy(update={"seq_size": length}))
    # A token sees itself and up to window - 1 tokens before it.
    seen = np.minimum(np.arange(1, length + 1), window).mean()
    assert longer.causal_attention == pytest.approx(model.layers * 4 * model.heads * model.head_dim * seen, rel=1e-3)
    assert found.weights == longer.weights


def scenario(**more: str) -> Scenario:
    return read_scenario({**LLAMA, **more}).scenario


def test_the_convention_follows_the_cost_model_unless_the_switch_says_otherwise() -> None:
    plain = scenario()
    assert plain.flop_convention == "causal"
    assert switch_cost_model(plain, "calculon").flop_convention == "full"
    for convention in ("causal", "full"):
        chosen = altered(plain, attention=convention)
        assert chosen.flop_convention == convention
        assert chosen.key == plain.key, "no result depends on it"
        assert read_scenario(parameters_of(chosen)).scenario == chosen
        assert Scenario.from_document(chosen.to_document()) == chosen
        assert altered(chosen, num_procs=128).attention == convention
        changed = whatif.changed(chosen, {"hbm_bandwidth": 6144})
        assert read_scenario(parameters_of(changed)).scenario.flop_convention == convention
        assert switch_cost_model(chosen, "calculon").flop_convention == convention
    for hostile in ("half", [], {}, 3, "", True):
        with pytest.raises(ScenarioError, match=r"attention is .*; it must be full or causal"):
            Scenario.from_document({**plain.to_document(), "attention": hostile})
    wrong = read_scenario({**LLAMA, "attention": "half"})
    assert wrong.scenario == plain
    (problem,) = wrong.problems
    assert problem.startswith("The link's attention is half; it must be full or causal.")


def test_figures_name_their_convention_and_both_are_there() -> None:
    for convention in ("causal", "full"):
        chosen = altered(scenario(), attention=convention)
        work, known = llama(chosen.model.seq_size), derived_of(chosen)
        for each in ("causal", "full"):
            flops = work.model(each) * chosen.model.seq_size / chosen.num_procs
            assert known[TFLOPS_OF[each]].factor == pytest.approx(flops)
            assert known[MFU_OF[each]].factor == pytest.approx(flops / 989e12, rel=1e-2)
            assert each in known[MFU_OF[each]].column.label
        assert utilisation(chosen, 1.0) == known[MFU_OF[convention]].factor
        assert mfu_label(chosen) == f"MFU, {convention}"
        assert flops_told(chosen, 1.0) == str(flops_told(altered(scenario(), attention=convention), 1.0))
        assert MFU_OF[convention] in quick_metrics(chosen)
        assert next(name for name in metrics(chosen) if name in MFU_OF.values()) == MFU_OF[convention]


def test_pages_commands_and_json_switch_alike(shardscape: Callable[..., tuple[int, str, str]], tmp_path: Any) -> None:
    found = exploration()
    best, rate = found.best, float(found.best["sample_rate"])  # type: ignore[index]
    assert best is not None
    assert f"MFU, full {percent(utilisation(found.scenario, rate))}" in html(run("execution", found, FASTEST))
    chosen = altered(found.scenario, attention="causal")
    used = percent(utilisation(found.scenario, rate, convention="causal"))
    for page in ("explore", "execution"):
        shown = html(run(page, seen_with(found, chosen), {"attention": "causal", **FASTEST}))
        assert f"MFU, causal {used}" in shown
        assert "MFU, full" not in shown or page == "execution"  # whose training run names the other one too
    documents = [chosen.to_document(), found.scenario.to_document()]
    told = answer("compare", {"scenarios": documents})["scenarios"]
    assert [each["attention"] for each in told] == ["causal", "full"]
    assert told[0]["figures"] == told[1]["figures"], "JSON has both by name, whatever the switch says"
    paths = [tmp_path / f"{each}.json" for each in "ab"]
    for path, document in zip(paths, documents, strict=True):
        path.write_text(json.dumps(document), encoding="utf-8")
    out = shardscape("compare", *paths)[1]
    assert "MFU, causal" in out
    assert out.count(f"{told[0]['figures']['mfu_causal']:.1%}") == 2, "all sides in the convention of A"
