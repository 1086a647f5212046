"""Measured servers on the pages Serving and Validation: own results against predictions, nearest servers, errors."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from dashboard.link.serving_factors import factors_document
from dashboard.words.numbers import format_value
from engine.questions import answer
from engine.serving import by_name
from engine.validation.serving.nearest_servers import predicted_servers
from tests.dashboard.page_runs import html, page_alone, plainly

LINK = {
    "serving_model": "llama-3-8B",
    "serving_system": "h200_141g_sxm",
    "serving_procs": "1",
    "serving_prompt": "1000",
    "serving_output": "200",
    "serving_engine": "sglang",
    "serving_weight_bits": "8",
}
LINE = {
    "backend": "sglang",
    "request_rate": float("inf"),
    "max_concurrency": 16,
    "duration": 20.0,
    "completed": 160,
    "total_input_tokens": 160 * 1000,
    "total_output_tokens": 160 * 200,
    "output_throughput": 1600.0,
    "mean_ttft_ms": 100.0,
    "mean_tpot_ms": 9.5,
    "accept_length": None,
}


def run(*files: tuple[str, str], **more: str) -> AppTest:
    app = page_alone("serving")
    app.session_state["_url"] = {**LINK, **more}
    app.run()
    if not files:
        return app
    field = next(each for each in app.file_uploader if each.key == "serving_results")
    field.set_value([(name, text.encode(), "application/json") for name, text in files]).run()
    assert not app.exception
    return app


def said(elements: Iterable[Any]) -> str:
    """Return the sentences of elements without signs of Markdown."""
    return " ".join(str(each.value) for each in elements).replace("\\", "")


def tile(app: AppTest, label: str) -> str:
    """Return the value of a figure of the service."""
    found = re.search(rf'aria-label="{label} ([^,"]*)', plainly(html(app)))
    assert found is not None
    return found[1]


def test_uploaded_results_have_the_verdicts_of_the_question() -> None:
    app = run(("bench.jsonl", json.dumps(LINE)), ("wrong.json", '{"loss": 2}'))
    (problem,) = [each.value.replace("\\", "") for each in app.error]
    assert problem.startswith("wrong.json is no result of a known benchmark; give one of")
    shown = next(each.value for each in app.dataframe if "Verdict" in each.value)
    deployment = {"tensor_par": 1, "engine": "sglang", "weight_bits": 8}
    bits = [int(cell) for cell in ("8", "16") if f"KV cache <b>{cell} bits" in html(app)]
    found = answer(
        "compare_servers",
        {
            "model": "llama-3-8B",
            "system": "h200_141g_sxm",
            "deployment": {**deployment, "kv_bits": bits[0]},
            "results": {"bench.jsonl": json.dumps(LINE)},
        },
    )
    (own,) = found["results"]
    assert list(shown["Verdict"]) == [figure["verdict"] for figure in own["figures"].values()]
    assert list(shown["Predicted"]) == [
        format_value(by_name(name), figure["predicted"]) for name, figure in own["figures"].items()
    ]
    factor = found["calibration"]["parameters"]["factor.sglang.time_per_output_token"]["value"]
    assert f"per token × {factor:.3g}" in said(app.markdown)
    nearest = next(each.value for each in app.dataframe if "Distance" in each.value)
    assert len(nearest) == 6
    assert nearest["Distance"].is_monotonic_increasing


def test_own_factors_adjust_all_figures_of_the_page_until_they_are_removed() -> None:
    app = run(("bench.jsonl", json.dumps(LINE)), serving_rate="30")
    plain = {name: tile(app, name) for name in ("First token, p99", "Per token, p99")}
    app.button(key="serving_adjust").click().run()
    link = dict(app.session_state["_url"])
    own = factors_document(link["serving_factors"])
    assert own["system"] == "h200_141g_sxm"
    assert list(own["parameters"]) == [
        "factor.sglang.time_to_first_token",
        "factor.sglang.time_per_output_token",
    ]
    # A new session with the link shows the same, and the engine's figures with the factors.
    app = run(**{name: value for name, value in link.items() if name not in LINK})
    note = said(app.info)
    value = own["parameters"]["factor.sglang.time_per_output_token"]["value"]
    assert f"SGLang: first token × {own['parameters']['factor.sglang.time_to_first_token']['value']:.3g}" in note
    assert f"per token × {value:.3g}" in note
    question = {"model": "llama-3-8B", "system": "h200_141g_sxm", "prompt": 1000, "output": 200, "factors": own}
    limits = {"engine": ["sglang"], "weight_bits": [8]}
    found = answer("size_service", {**question, "limits": limits, "request_rate": 30.0})
    for name, figure in (("First token, p99", "first_token_p99"), ("Per token, p99", "per_token_p99")):
        assert tile(app, name) == plainly(format_value(by_name(figure), found["best"][figure]))
        assert tile(app, name) != plain[name]
    assert "adjusted by your servers" in html(app)
    app.button(key="serving_unadjust").click().run()
    assert "serving_factors" not in app.session_state["_url"]
    assert not app.info
    assert tile(app, "Per token, p99") == plain["Per token, p99"]


def test_a_file_of_factors_is_used_and_that_of_another_system_is_refused() -> None:
    own = factors_document("vllm~1.2~1.1~~2026-11-20~h200_141g_sxm")
    app = run(("mine.json", json.dumps(own)), ("other.json", json.dumps({**own, "system": "b200_180g_sxm"})))
    (problem,) = [each.value.replace("\\", "") for each in app.error]
    assert "was measured on b200_180g_sxm, not on h200_141g_sxm" in problem
    app.button(key="serving_adjust_0").click().run()
    # The page showed another engine; it shows that of the factors now.
    assert dict(app.session_state["_url"])["serving_engine"] == "vllm"
    assert "vLLM: first token × 1.2, per token × 1.1" in said(app.info)
    app = run(serving_factors="vllm~1.2~1.1~~2026-11-20~b200_180g_sxm")
    assert not app.info
    assert not app.exception


def test_validation_has_servers_by_engine_and_hardware() -> None:
    app = page_alone("validation")
    app.run()
    assert not app.exception
    shown = next(each.value for each in app.dataframe if "Servers" in each.value)
    servers = predicted_servers()
    assert shown["Servers"].sum() == len(servers)
    some = servers[(servers["gpu"] == "h200_sxm") & servers["model"].str.endswith("gpt-oss-120b")]
    row = shown[(shown["GPU"] == "H200") & (shown["Model"] == "gpt-oss-120b")].iloc[0]
    errors = some["predicted_tpot_ms"] / some["tpot_ms"] - 1
    assert (row["Engine"], row["Servers"]) == ("vLLM", len(some))
    assert row["Per token, %"] == pytest.approx(100 * errors.abs().median())
