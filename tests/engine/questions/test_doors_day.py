"""A day of a service through Python, the command, JSON and the page: the same figures, and limits that hold all day."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from jsonschema import Draft202012Validator

from dashboard.link.text_encoding import folded
from dashboard.words.numbers import plain
from engine.questions import VERBS, answer
from engine.questions.days import ENERGY_BASIS
from engine.questions.documents.days import LONGEST_DEMAND
from engine.serving.days import read_demand
from tests.dashboard.page_runs import figure, html, page_alone

MODEL, SYSTEM = "llama-3-8B", "h100_80g_sxm"
TABLE = "time,requests_per_second\n0,20\n8:30,160\n19,70\n"
QUESTION: dict[str, Any] = {
    "model": MODEL,
    "system": SYSTEM,
    "prompt": 1024,
    "output": 256,
    "time_to_first_token_s": 1.0,
    "time_per_output_token_s": 0.05,
    "demand": TABLE,
    "reserved_usd_per_h": 1.5,
    "price_usd_per_h": 3.0,
    "start_up_s": 600.0,
}


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    Draft202012Validator(VERBS["plan_day"].question_schema()).validate(QUESTION)
    found = json.loads(json.dumps(answer("plan_day", QUESTION)))
    Draft202012Validator(VERBS["plan_day"].answer_schema()).validate(found)
    return dict(found)


def test_the_peak_is_sized_as_a_service_and_the_limits_hold_all_day(found: dict[str, Any]) -> None:
    best = found["best"]
    shared = {name: value for name, value in QUESTION.items() if name in VERBS["size_service"].asks.model_fields}
    limits = {"tensor_par": best["tensor_par"], "pipeline_par": best["pipeline_par"], "weight_bits": 8, "kv_bits": 8}
    service = answer("size_service", {**shared, "request_rate": 160.0, "limits": limits})["best"]
    assert service["gpus"] == best["gpus_at_peak"]
    assert service["most_load"] / service["deployments"] == pytest.approx(best["capacity"])
    assert service["first_token_p99"] == pytest.approx(max(row["first_token_p99"] for row in found["hours"]), rel=1e-6)
    assert all(row["first_token_p99"] <= 1.0 for row in found["hours"])
    assert all(row["per_token_p99"] <= 0.05 for row in found["hours"])
    assert best["usd"] == min(row["usd"] for row in found["top"])
    assert best["usd_per_million_tokens"] == pytest.approx(best["usd"] / best["output_tokens"] * 1e6)
    # Design power 700 W, servers 1.5, PUE 1.1.
    assert best["energy_kwh"] == pytest.approx(best["gpu_hours"] * 0.7 * 1.5 * 1.1)


def test_limits_on_means_hold_besides_those_on_percentiles(found: dict[str, Any]) -> None:
    highest = max(row["per_token_mean"] for row in found["hours"])
    both = answer("plan_day", {**QUESTION, "mean_per_token_s": 0.7 * highest})
    assert max(row["per_token_mean"] for row in both["hours"]) <= 0.7 * highest * (1 + 1e-9)
    assert both["best"]["usd"] >= found["best"]["usd"]
    mean = answer("plan_day", {**QUESTION, "held_at": "mean", "time_per_output_token_s": 0.7 * highest})
    assert mean["best"]["usd"] <= both["best"]["usd"] + 1e-9


def test_every_door_has_the_same_day(
    found: dict[str, Any], shardscape: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    file = tmp_path / "day.csv"
    file.write_text(TABLE)
    lengths = ("--prompt", 1024, "--output", 256, "--ttft", 1, "--tpot", 0.05, "--start-up", 600)
    options = ("--demand", str(file), *lengths, "--reserved", 1.5, "--price", 3)
    code, out, _ = shardscape("plan", "day", MODEL, SYSTEM, *map(str, options), "--json")
    assert code == 0
    assert json.loads(out) == found
    link = {
        "day_model": MODEL,
        "day_system": SYSTEM,
        "day_source": "file",
        "day_table": folded(TABLE),
        "day_reserved": "1.5",
        "day_price": "3",
        "day_start_up_s": "600",
    }
    app = page_alone("day")
    app.session_state["_url"] = link
    app.run()
    assert not app.exception
    assert not app.error
    best = found["best"]
    text = " ".join(re.sub(r"<[^>]+>", " ", html(app)).split())
    assert f"GPUs at the peak {best['gpus_at_peak']:,} " in text
    assert f"Cost per million tokens {plain(best['usd_per_million_tokens'])} USD" in text
    assert f"Replicas to reserve {best['reserved_replicas']:,} " in text
    assert figure(app, "day_gpus")["data"]


def test_the_day_as_csv_is_a_demand_again(shardscape: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    file = tmp_path / "day.csv"
    file.write_text(TABLE)
    options = ("--prompt", "1024", "--output", "256", "--ttft", "1")
    _, out, _ = shardscape("plan", "day", MODEL, SYSTEM, "--demand", str(file), *options, "--csv")
    again, first = read_demand(out), read_demand(TABLE)
    assert again.requests == pytest.approx(first.requests, rel=1e-6)
    assert again.peak == first.peak
    file.write_text(out)
    code, second, _ = shardscape("plan", "day", MODEL, SYSTEM, "--demand", str(file), *options, "--csv")
    assert code == 0
    rows = [pd.read_csv(io.StringIO(text)) for text in (out, second)]
    assert rows[0]["replicas"].max() == rows[1]["replicas"].max()


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"demand": None}, "either `peak_rate` or `demand`"),
        ({"peak_rate": 3.0}, "either `peak_rate` or `demand`"),
        ({"demand": "time\n1\n"}, "no column requests_per_second"),
        ({"most_replicas": 1, "least_replicas": 2}, "At least 2 and at most 1 replicas contradict"),
        ({"trough_share": 1.5}, "trough_share"),
        ({"peak_hour": -1.0}, "peak_hour"),
        ({"system": "b200_180g_sxm", "price_usd_per_h": None}, "give a price on demand"),
        ({"limits": {"replicas": [2]}}, "replicas follows from the load"),
    ],
)
def test_a_question_that_cannot_be_is_one_sentence(more: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)) as problem:
        answer("plan_day", {**QUESTION, **more})
    assert str(problem.value).endswith(".")
    assert "\n" not in str(problem.value)


def test_a_day_that_nothing_serves_says_why(shardscape: Callable[..., tuple[int, str, str]]) -> None:
    slow = answer("plan_day", {**QUESTION, "time_to_first_token_s": 1e-5})
    assert slow["best"] is None
    assert "raise a limit" in slow["obstacle"]
    few = answer("plan_day", {**QUESTION, "most_procs": 1, "least_replicas": 3})
    assert "needs 3 GPUs for 3 replicas, but at most 1 may be used." in few["obstacle"]
    short = answer("plan_day", {**QUESTION, "most_procs": 2})["best"]
    assert short["gpus_at_peak"] <= 2
    assert short["unserved_requests"] + short["served_requests"] == pytest.approx(short["requests"])
    assert short["unserved_requests"] > 0
    options = ("--peak", "5", "--prompt", "1024", "--output", "256", "--ttft", "0.00001")
    code, _, _ = shardscape("plan", "day", MODEL, SYSTEM, *options)
    assert code == 1


def test_zeros_are_numbers_of_links_and_fields() -> None:
    zeros = {"day_trough": "0", "day_hour": "0", "day_start_up_s": "0", "day_down": "0", "day_least": "0"}
    app = page_alone("day")
    app.session_state["_url"] = {"day_model": MODEL, "day_system": SYSTEM, **zeros}
    app.run()
    assert not app.exception
    assert not app.error
    assert not app.warning
    shown = {each.label: each.value for each in app.number_input}
    assert shown["Trough over peak"] == shown["Hour of the peak, h"] == shown["Start-up, s"] == 0.0
    field = next(each for each in app.number_input if each.label == "Hour of the peak, h")
    field.set_value(14.0).run()
    assert "day_hour" not in app.session_state["_url"]
    next(each for each in app.number_input if each.label == "Hour of the peak, h").set_value(0.0).run()
    assert app.session_state["_url"]["day_hour"] == "0"


@pytest.mark.parametrize("sign", ["1", "é"])
def test_a_long_file_is_named_and_not_printed(
    sign: str, shardscape: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    file = tmp_path / "long.csv"
    file.write_text(TABLE + sign * LONGEST_DEMAND, encoding="utf-8")
    options = ("--demand", str(file), "--prompt", "1024", "--output", "256")
    code, out, err = shardscape("plan", "day", MODEL, SYSTEM, *options)
    assert code not in (0, 1)
    words = " ".join((out + err).split())
    assert f"must be a CSV table of 1 to {LONGEST_DEMAND:,} characters." in words
    assert "long.csv" in words
    assert sign * 5 not in words


def test_energy_and_the_order_are_explained_where_they_are_printed(
    found: dict[str, Any], shardscape: Callable[..., tuple[int, str, str]]
) -> None:
    options = ("--peak", "160", "--prompt", "1024", "--output", "256", "--ttft", "1")
    code, out, _ = shardscape("plan", "day", MODEL, SYSTEM, *options)
    assert code == 0
    assert ENERGY_BASIS in out
    assert "sorted by requests not served, then cost" in out
    described = VERBS["plan_day"].answer_schema()["properties"]
    assert all(ENERGY_BASIS in described[name]["description"] for name in ("best", "top"))
    keys = [(row["unserved_requests"], row["usd"]) for row in found["top"]]
    assert keys == sorted(keys)


def test_a_command_without_a_price_says_so(shardscape: Callable[..., tuple[int, str, str]]) -> None:
    options = ("--peak", "4", "--prompt", "1024", "--output", "256")
    code, out, _ = shardscape("plan", "day", MODEL, "h200_141g_sxm", *options, "--price", "0", "--reserved", "1")
    assert code == 0
    assert "Reserve no replica: on demand is cheaper." in out
    code, out, _ = shardscape("plan", "day", MODEL, "b200_180g_sxm", *options)
    assert code == 0
    assert "nan" not in out
    assert "give --price" in out
