"""Measured servers on the pages Serving and Validation: own results against predictions, nearest servers, errors."""

from __future__ import annotations

import json

import pytest
from streamlit.testing.v1 import AppTest

from dashboard.words.numbers import format_value
from engine.questions import answer
from engine.serving import by_name
from engine.validation.serving.nearest_servers import predicted_servers
from tests.dashboard.page_runs import html, page_alone

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


def run(*files: tuple[str, str]) -> AppTest:
    app = page_alone("serving")
    app.session_state["_url"] = dict(LINK)
    app.run()
    field = next(each for each in app.file_uploader if each.key == "serving_results")
    field.set_value([(name, text.encode(), "application/json") for name, text in files]).run()
    assert not app.exception
    return app


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
    assert f"× {factor:.3f}" in html(app)
    nearest = next(each.value for each in app.dataframe if "Distance" in each.value)
    assert len(nearest) == 6
    assert nearest["Distance"].is_monotonic_increasing


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
