"""The fewest GPUs for a load through Python, the command, JSON and the page: the same figures to the last digit."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from dashboard.words.numbers import format_value
from engine import ExplorationCancelled, serving
from engine.questions import VERBS, Context, QuestionError, answer
from engine.serving import by_name
from tests.dashboard.page_runs import figure, html, page_alone

MODEL, SYSTEM = "llama-3-8B", "h100_80g_sxm"
QUESTION: dict[str, Any] = {
    "model": MODEL,
    "system": SYSTEM,
    "prompt": 1000,
    "output": 200,
    "request_rate": 90.0,
    "time_to_first_token_s": 0.5,
    "time_per_output_token_s": 0.03,
    "held_at": "p90",
    "output_cv": 0.5,
    "limits": {"launch": ["graphs"]},
    "price_usd_per_h": 2.5,
}
LENGTHS = ("--prompt", 1000, "--output", 200)


def test_every_door_has_the_same_service(shardscape: Callable[..., tuple[int, str, str]]) -> None:
    question = {**QUESTION, "top": 3}
    Draft202012Validator(VERBS["size_service"].question_schema()).validate(question)
    found = answer("size_service", question)
    Draft202012Validator(VERBS["size_service"].answer_schema()).validate(json.loads(json.dumps(found)))
    python = serving.size_service(
        MODEL,
        SYSTEM,
        load=serving.ServiceLoad(request_rate=90.0, output_cv=0.5),
        prompt=1000,
        output=200,
        time_to_first_token=0.5,
        time_per_output_token=0.03,
        level="p90",
        limits=QUESTION["limits"],
        price=2.5,
    )
    assert found["best"] == python.best
    assert (found["total"], found["holding"]) == (python.total, len(python.table))
    assert [row["gpus"] for row in found["top"]] == python.table["gpus"].head(3).tolist()
    assert [row["first_token_p99"] for row in found["curve"]] == python.curve["first_token_p99"].tolist()
    assert found["ranges"]["time_per_output_token"]["rows"] > 15

    options = ("--rate", 90, "--ttft", 0.5, "--tpot", 0.03, "--held-at", "p90", "--output-cv", 0.5, "--price", 2.5)
    rest = ("--limit", "launch=graphs", "--top", 3)
    code, out, _ = shardscape("service", MODEL, SYSTEM, *LENGTHS, *options, *rest, "--json")
    assert code == 0
    assert {**json.loads(out), "seconds": 0} == {**found, "seconds": 0}
    code, out, _ = shardscape("service", MODEL, SYSTEM, *LENGTHS, *options, *rest, "--curve")
    assert code == 0
    assert "Fewest GPUs within the limits, which hold for the p90" in out
    assert "latencies under load are modelled" in out
    assert "Load of the best service" in out


def test_page_shows_the_same_service() -> None:
    found = answer("size_service", QUESTION)
    page = page_alone("serving")
    page.session_state["_url"] = {
        "serving_model": MODEL,
        "serving_system": SYSTEM,
        "serving_procs": "1",
        "serving_prompt": "1000",
        "serving_output": "200",
        "serving_ttft": "500",
        "serving_tpot": "30",
        "serving_price": "2.5",
        "serving_launch": "graphs",
        "serving_rate": "90",
        "serving_held_at": "p90",
        "serving_output_cv": "0.5",
    }
    page.run()
    assert not page.exception
    best, words = found["best"], html(page)
    copies = best["deployments"]
    assert f"{best['gpus']} GPUs: {copies} deployment{'s' * (copies != 1)} of TP {best['tensor_par']} × PP" in words
    assert f"First token, p90 {format_value(by_name('first_token_p90'), best['first_token_p90'])}" in words
    assert f"Cost per hour {format_value(by_name('cost_per_h'), best['cost_per_h'])}" in words
    curve = next(each for each in figure(page, "serving_load_first")["data"] if each.get("name") == "p99")
    assert len(curve["x"]) == len(found["curve"])
    assert curve["x"] == [row["load"] for row in found["curve"]]
    both = page_alone("serving")
    both.session_state["_url"] = {**page.session_state["_url"], "serving_users": "50"}
    both.run()
    assert f"{best['gpus']} GPUs: {copies} deployment" in html(both)
    none = page_alone("serving")
    none.session_state["_url"] = {**page.session_state["_url"], "serving_tpot": "0.1"}
    none.run()
    assert not none.exception
    assert any("No service holds the limits" in each.value for each in none.warning)


def test_every_door_has_the_same_service_for_users_who_think(shardscape: Callable[..., tuple[int, str, str]]) -> None:
    load = {"request_rate": None, "users": 2000.0, "think_s": 20.0, "mean_first_token_s": 0.15}
    found = answer("size_service", {**QUESTION, **load})
    python = serving.size_service(
        MODEL,
        SYSTEM,
        load=serving.ServiceLoad(users=2000.0, think_s=20.0, output_cv=0.5),
        prompt=1000,
        output=200,
        time_to_first_token=0.5,
        time_per_output_token=0.03,
        level="p90",
        mean_time_to_first_token=0.15,
        limits=QUESTION["limits"],
        price=2.5,
    )
    best = found["best"]
    assert best == python.best
    assert (found["think_s"], found["mean_first_token_limit"]) == (20.0, 0.15)
    assert best["first_token_mean"] <= 0.15
    assert best["served_rate"] * (best["request_mean"] + 20.0) == pytest.approx(2000.0)
    assert best["cost_per_h"] == 2.5 * best["gpus"]
    options = ("--users", 2000, "--think", 20, "--ttft", 0.5, "--tpot", 0.03, "--held-at", "p90", "--mean-ttft", 0.15)
    rest = ("--output-cv", 0.5, "--price", 2.5, "--limit", "launch=graphs")
    code, out, _ = shardscape("service", MODEL, SYSTEM, *LENGTHS, *options, *rest, "--json")
    assert code == 0
    assert {**json.loads(out), "seconds": 0} == {**found, "seconds": 0}
    code, out, _ = shardscape("service", MODEL, SYSTEM, *LENGTHS, *options, *rest)
    assert code == 0
    assert f"users send {best['served_rate']:,.4g} requests per second: 2,000 / (" in out
    page = page_alone("serving")
    page.session_state["_url"] = {
        "serving_model": MODEL,
        "serving_system": SYSTEM,
        "serving_procs": "1",
        "serving_prompt": "1000",
        "serving_output": "200",
        "serving_ttft": "500",
        "serving_tpot": "30",
        "serving_price": "2.5",
        "serving_launch": "graphs",
        "serving_users": "2000",
        "serving_think": "20",
        "serving_mean_ttft": "150",
        "serving_held_at": "p90",
        "serving_output_cv": "0.5",
    }
    page.run()
    assert not page.exception
    words = html(page)
    assert f"Requests per second {format_value(by_name('served_rate'), best['served_rate'])}" in words
    assert f"Cost per hour {format_value(by_name('cost_per_h'), best['cost_per_h'])}" in words
    rate = page_alone("serving")
    rate.session_state["_url"] = {**page.session_state["_url"], "serving_rate": "90"}
    rate.run()
    assert not rate.exception
    assert not rate.error


def test_command_reads_a_trace(shardscape: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("arrival_s,prompt,output\n0,100,10\n1,300,30\n3,200,20\n6,200,20\n", encoding="utf-8")
    code, out, _ = shardscape("service", MODEL, SYSTEM, "--trace", trace, "--tpot", 0.05, "--json")
    document = json.loads(out)
    assert code == 0
    assert (document["prompt"], document["output"], document["request_rate"]) == (200, 20, 0.5)
    code, out, _ = shardscape("service", MODEL, SYSTEM, "--trace", trace, "--users", 3, "--output", 40, "--json")
    document = json.loads(out)
    assert (document["prompt"], document["output"]) == (200, 40)
    assert (document["request_rate"], document["users"]) == (None, 3)
    code, _, err = shardscape("service", MODEL, SYSTEM, "--trace", tmp_path / "none.csv", "--users", 3)
    assert (code, err.count("\n")) == (2, 1)
    assert "There is no file" in err


def test_service_that_cannot_be(shardscape: Callable[..., tuple[int, str, str]]) -> None:
    code, out, _ = shardscape("service", MODEL, SYSTEM, *LENGTHS, "--users", 10, "--tpot", 0.0001)
    assert code == 1
    assert "more than the limit of 0.1 ms" in out
    code, _, err = shardscape("service", MODEL, SYSTEM, *LENGTHS)
    assert (code, err) == (2, "A service needs a load: give either --rate or --users.\n")
    with pytest.raises(QuestionError, match="give either `request_rate` or `users`"):
        answer("size_service", {**QUESTION, "users": 5.0})
    with pytest.raises(QuestionError, match="`think_s` is the pause of users"):
        answer("size_service", {**QUESTION, "think_s": 5.0})
    for wrong in ({"request_rate": 0}, {"held_at": "p95"}, {"arrival_cv": -1.0}, {"most_procs": 0}):
        with pytest.raises(QuestionError, match=next(iter(wrong))):
            answer("size_service", {**QUESTION, **wrong})
    with pytest.raises(ExplorationCancelled):
        answer("size_service", QUESTION, Context(stops=lambda: True))
