"""Serving asked through Python, the command, JSON, MCP's schema and the page: the same figures to the last digit."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from engine import ExplorationCancelled, serving
from engine.questions import VERBS, Bounds, Context, QuestionError, answer
from tests.dashboard.page_runs import figure, html, page_alone, plainly

MODEL, SYSTEM = "llama-3-8B", "h100_80g_sxm"
QUESTION: dict[str, Any] = {
    "model": MODEL,
    "system": SYSTEM,
    "num_procs": 4,
    "prompt": 1000,
    "output": 200,
    "time_to_first_token_s": 0.2,
    "time_per_output_token_s": 0.0305,
    "limits": {"weight_bits": [16, 8, 4], "launch": ["graphs"]},
    "price_usd_per_h": 2.5,
}


def test_every_door_has_the_same_deployments(shardscape: Callable[..., tuple[int, str, str]]) -> None:
    question = {**QUESTION, "by": "time_to_first_token", "top": 3}
    Draft202012Validator(VERBS["find_deployments"].question_schema()).validate(question)
    found = answer("find_deployments", question)
    Draft202012Validator(VERBS["find_deployments"].answer_schema()).validate(json.loads(json.dumps(found)))
    python = serving.explore(
        MODEL,
        SYSTEM,
        num_procs=4,
        prompt=1000,
        output=200,
        time_to_first_token=0.2,
        time_per_output_token=0.0305,
        limits=QUESTION["limits"],
        price=2.5,
    )
    assert (found["total"], found["feasible"]) == (python.total, python.feasible)
    assert 0 < python.feasible < python.total
    assert found["rejected_by_reason"] == python.rejected
    assert [row["time_to_first_token"] for row in found["top"]] == python.top(3, "time_to_first_token")[
        "time_to_first_token"
    ].tolist()
    assert python.best is not None
    assert found["best"]["cost_per_million_tokens"] == python.best["cost_per_million_tokens"]

    options = ("--num-procs", 4, "--prompt", 1000, "--output", 200, "--ttft", 0.2, "--tpot", 0.0305, "--price", 2.5)
    limits = ("--limit", "weight_bits=16,8,4", "--limit", "launch=graphs")
    ordered = ("--by", "time_to_first_token", "--top", 3)
    code, out, _ = shardscape("inference", MODEL, SYSTEM, *options, *limits, *ordered, "--json")
    printed = json.loads(out)
    assert code == 0
    assert {**printed, "seconds": 0, "frontier": None} == {**found, "seconds": 0}

    front = answer("find_deployments", {**QUESTION, "frontier": True})["frontier"]
    page = page_alone("serving")
    page.session_state["_url"] = {
        "serving_model": MODEL,
        "serving_system": SYSTEM,
        "serving_procs": "4",
        "serving_prompt": "1000",
        "serving_output": "200",
        "serving_ttft": "200",
        "serving_tpot": "30.5",
        "serving_price": "2.5",
        "serving_weight_bits": "16,8,4",
        "serving_launch": "graphs",
    }
    page.run()
    assert not page.exception
    assert f"Deployments that run {python.feasible:,}, of {python.total:,}" in html(page)
    marks = {
        point[0]: (x, y)
        for trace in figure(page, "serving_plot")["data"]
        if trace["name"].startswith("TP")
        for point, x, y in zip(trace["customdata"], trace["x"], trace["y"], strict=True)
    }
    for row in front:
        assert marks[row["id"]] == (row["tokens_per_s_per_user"], row["tokens_per_s_per_processor"])


def test_the_page_counts_adapters_host_cache_and_a_draft_model() -> None:
    limits = {"weight_bits": [8], "kv_bits": [8], "launch": ["graphs"]}
    terms = {"draft_tokens": 3, "acceptance_rate": 0.7, "lora_adapters": 4, "lora_rank": 32}
    host = {"prefix_hit_rate": 0.5, "host_hit_share": 0.4, "host_cache_gib": 64.0}
    question = {"model": "llama-3.1-8B", "system": SYSTEM, "num_procs": 2, "prompt": 1000, "output": 200}
    found = answer(
        "find_deployments",
        {**question, "limits": limits, **terms, **host, "draft_model": "llama-3.2-1B", "frontier": True},
    )
    page = page_alone("serving")
    words = {"model": "llama-3.1-8B", "system": SYSTEM, "procs": "2", "prompt": "1000", "output": "200"}
    own = {"drafts": "3", "acceptance": "0.7", "draft": "llama-3.2-1B", "loras": "4", "rank": "32", "hits": "0.5"}
    words |= own | {"host_hits": "0.4", "host_gib": "64", "weight_bits": "8", "kv_bits": "8", "launch": "graphs"}
    page.session_state["_url"] = {f"serving_{name}": value for name, value in words.items()}
    page.run()
    assert not page.exception
    marks = {
        point[0]: (x, y)
        for trace in figure(page, "serving_plot")["data"]
        if trace["name"].startswith("TP")
        for point, x, y in zip(trace["customdata"], trace["x"], trace["y"], strict=True)
    }
    for row in found["frontier"]:
        assert marks[row["id"]] == (row["tokens_per_s_per_user"], row["tokens_per_s_per_processor"])
    # A step gives several tokens: the parts of a request are no longer than it.
    best = found["recommended"]
    assert sum(figure(page, "serving_request")["data"][0]["x"]) == pytest.approx(best["request_latency"], rel=0.01)
    files = " ".join(each.value for each in page.code)
    for flag in ("--enable-lora", "--max-lora-rank 32", "--kv-offloading-size", "draft_model"):
        assert flag in files


def test_recommendation_changes_and_comparison_are_the_same_at_every_door(
    shardscape: Callable[..., tuple[int, str, str]],
) -> None:
    question = {
        **{name: QUESTION[name] for name in ("model", "system", "num_procs", "prompt", "output")},
        "time_per_output_token_s": None,
        "cache_room": 0.5,
        "changes": True,
        "other_system": "h200_141g_sxm",
    }
    found = answer("find_deployments", question)
    python = serving.explore(MODEL, SYSTEM, num_procs=4, prompt=1000, output=200, time_to_first_token=1.0)
    advice = serving.recommend_deployment(python, 0.5)
    assert advice.row is not None
    assert found["time_per_output_token_limit"] is None
    assert (found["recommended"]["id"], found["reason"]) == (advice.row["id"], advice.reason)
    assert [each["verdict"] for each in found["changes"]] == [
        each.verdict for each in serving.try_changes(python, advice)
    ]
    assert found["comparison"]["one"] == found["recommended"]
    options = ("--num-procs", 4, "--prompt", 1000, "--output", 200, "--tpot", "none", "--cache-room", 0.5, "--changes")
    code, out, _ = shardscape("inference", MODEL, SYSTEM, *options, "--other-system", "h200_141g_sxm", "--json")
    assert code == 0
    assert {**json.loads(out), "seconds": 0, "frontier": None, "top": 0} == {**found, "seconds": 0, "top": 0}
    code, out, _ = shardscape("inference", MODEL, SYSTEM, *options, "--other-system", "h200_141g_sxm")
    assert code == 0
    assert advice.reason in out
    assert found["comparison"]["sentence"] in out
    assert all(each["verdict"] in out for each in found["changes"])

    page = page_alone("serving")
    page.session_state["_url"] = {
        "serving_model": MODEL,
        "serving_system": SYSTEM,
        "serving_procs": "4",
        "serving_prompt": "1000",
        "serving_output": "200",
        "serving_tpot": "none",
        "serving_room": "0.5",
        "serving_other_system": "h200_141g_sxm",
    }
    page.run()
    assert not page.exception
    assert advice.reason in html(page)
    shown = plainly(" ".join(each.value for each in page.markdown)).replace("\\", "")
    assert found["comparison"]["sentence"].replace("The second", "B") in shown
    (table,) = [each.value for each in page.dataframe if "Effect" in each.value]
    assert table["Effect"].tolist()[1:] == [each["verdict"] for each in found["changes"]]

    chosen = answer("find_deployments", {**question, "chosen": 0, "beside": 1, "other_system": None, "changes": False})
    assert (chosen["chosen"]["id"], chosen["comparison"]["other"]["id"]) == (0, 1)
    for wrong, words in (({"chosen": 10**9}, "does not exist"), ({"cache_room": -1}, "a number from 0 to 10")):
        with pytest.raises(QuestionError, match=words):
            answer("find_deployments", {**question, **wrong})


def test_bounds_hold_and_a_question_can_be_stopped() -> None:
    with pytest.raises(ValueError, match="more than the 10 that are evaluated"):
        answer("find_deployments", QUESTION, Context(Bounds(largest_space=10)))
    shares: list[float] = []
    answer("find_deployments", QUESTION, Context(tell=lambda share, doing: shares.append(share)))
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    with pytest.raises(ExplorationCancelled):
        answer("find_deployments", QUESTION, Context(stops=lambda: True))
    for wrong, words in (
        ({"by": "speed"}, "'by' is 'speed'; it must be one of tokens_per_s"),
        ({"limits": {"tp": 1}}, "no limit on 'tp'"),
        ({"time_to_first_token_s": 0}, "a number from 1e-06"),
        ({"model": "/etc/passwd"}, "a path"),
    ):
        with pytest.raises(ValueError, match=words) as problem:
            answer("find_deployments", {**QUESTION, **wrong})
        assert "\n" not in str(problem.value)
    with pytest.raises(QuestionError, match="prompt"):
        answer("find_deployments", {name: value for name, value in QUESTION.items() if name != "prompt"})


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--chosen", 10**9), "does not exist"),
        (("--beside", 10**9), "does not exist"),
        (("--other-system", "v100_32g_sxm", "--ttft", 0.12), "runs no deployment within the limits"),
    ],
)
def test_an_error_comes_without_an_answer(
    more: tuple[object, ...], words: str, shardscape: Callable[..., tuple[int, str, str]]
):
    options = ("--num-procs", 1, "--prompt", 512, "--output", 128)
    code, out, err = shardscape("inference", MODEL, SYSTEM, *options, *more)
    assert (code, out) == (2, "")
    assert words in err


def test_questions_without_limits_have_the_service_level_and_say_so(shardscape: Callable[..., tuple[int, str, str]]):
    lengths = ("--num-procs", 4, "--prompt", 512, "--output", 128)
    for command, more in (("inference", ()), ("service", ("--rate", 1))):
        code, out, _ = shardscape(command, MODEL, SYSTEM, *lengths, *more)
        assert code == 0
        assert "Limits: 1,000 ms to the first token, 50 ms per token\n" in out
        code, out, _ = shardscape(command, MODEL, SYSTEM, *lengths, *more, "--ttft", "none", "--tpot", "none")
        assert code == 0
        assert "Limits: none\n" in out
