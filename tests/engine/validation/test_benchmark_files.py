"""Result files of benchmarks of serving engines: one load in the format of every tool, and files that are wrong.

The samples are written by hand with the fields of the versions that `engine.validation.serving.benchmark_files` names.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest

from engine.validation.serving.benchmark_files import BenchmarkFileError, ServingBenchmark, read_benchmarks

# 320 requests of 1,000 + 200 tokens, 32 in flight: a first token after 400 ms, 199 more in 20 ms each.
DURATION = 320 / 32 * (0.4 + 199 * 0.02)
RATE = 320 * 200 / DURATION

VLLM: dict[str, Any] = {
    "date": "20260301-101010",
    "backend": "openai",
    "model_id": "meta-llama/Llama-3.1-70B",
    "num_prompts": 320,
    "request_rate": "inf",
    "burstiness": 1.0,
    "max_concurrency": 32,
    "duration": DURATION,
    "completed": 320,
    "failed": 0,
    "total_input_tokens": 320_000,
    "total_output_tokens": 64_000,
    "output_throughput": RATE,
    "total_token_throughput": 6 * RATE,
    "mean_ttft_ms": 400.0,
    "mean_tpot_ms": 20.0,
    "mean_itl_ms": 20.0,
}
SGLANG: dict[str, Any] = {
    "backend": "sglang",
    "dataset_name": "random",
    "request_rate": float("inf"),
    "max_concurrency": 32,
    "random_input_len": 1000,
    "random_output_len": 200,
    "duration": DURATION,
    "completed": 320,
    "total_input_tokens": 320_000,
    "total_output_tokens": 64_000,
    "total_output_tokens_retokenized": 63_950,
    "output_throughput": RATE,
    "mean_ttft_ms": 400.0,
    "mean_tpot_ms": 20.0,
    "concurrency": 31.9,
    "accept_length": None,
}
AIPERF: dict[str, Any] = {
    "request_count": {"unit": "requests", "avg": 320},
    "time_to_first_token": {"unit": "ms", "avg": 400.0, "p99": 900.0},
    "inter_token_latency": {"unit": "ms", "avg": 20.0},
    "output_token_throughput": {"unit": "tokens/sec", "avg": RATE},
    "output_sequence_length": {"unit": "tokens", "avg": 200.0},
    "input_sequence_length": {"unit": "tokens", "avg": 1000.0},
    "input_config": {"endpoint": {"model_names": ["meta-llama/Llama-3.1-70B"]}, "loadgen": {"concurrency": 32}},
    "was_cancelled": False,
}
GENAI_PERF: dict[str, Any] = {
    **{name: value for name, value in AIPERF.items() if name not in ("was_cancelled", "time_to_first_token")},
    "time_to_first_token": {"unit": "us", "avg": 400_000.0},
    "input_config": {"model_names": ["meta-llama/Llama-3.1-70B"], "perf_analyzer": {"stimulus": {"concurrency": 32}}},
}


def statistic(mean: float) -> dict[str, Any]:
    return {"successful": {"mean": mean, "median": mean, "count": 320}, "errored": {"mean": 0.0}}


GUIDELLM: dict[str, Any] = {
    "metadata": {"version": 2, "guidellm_version": "0.6.0"},
    "benchmarks": [
        {
            "type_": "generative_benchmark",
            "config": {
                "strategy": {"type_": "concurrent", "streams": 32, "max_concurrency": 32},
                "backend": {"model": "meta-llama/Llama-3.1-70B"},
            },
            "metrics": {
                "request_totals": {"successful": 320, "errored": 0, "incomplete": 0, "total": 320},
                "request_concurrency": statistic(31.5),
                "requests_per_second": statistic(RATE / 200),
                "prompt_token_count": statistic(1000.0),
                "output_token_count": statistic(200.0),
                "time_to_first_token_ms": statistic(400.0),
                "time_per_output_token_ms": statistic(21.9),
                "inter_token_latency_ms": statistic(20.0),
                "output_tokens_per_second": statistic(RATE),
            },
        }
    ],
}
FILES = {
    "vLLM bench serve": VLLM,
    "SGLang bench_serving": SGLANG,
    "AIPerf": AIPERF,
    "genai-perf": GENAI_PERF,
    "GuideLLM": GUIDELLM,
}


def read_one(document: Any) -> ServingBenchmark:
    (found,) = read_benchmarks(json.dumps(document), "result.json")
    return found


@pytest.mark.parametrize(("tool", "document"), FILES.items())
def test_the_same_load_is_read_from_every_tool(tool: str, document: dict[str, Any]) -> None:
    found = read_one(document)
    assert found.tool == tool
    assert found.model in ("meta-llama/Llama-3.1-70B", "" if tool.startswith("SGLang") else None)
    assert (found.requests, found.prompt, found.output, found.in_flight) == (320, 1000, 200, 32)
    assert found.requests_per_slot == 10
    assert found.time_to_first_token == pytest.approx(0.4)
    assert found.time_per_output_token == pytest.approx(0.02)
    assert found.tokens_per_s == pytest.approx(RATE)
    assert found.can_calibrate
    assert not found.remarks


def leaves(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every number in a document."""
    children = document.items() if isinstance(document, dict) else enumerate(document)
    for name, value in children:
        if isinstance(value, dict | list):
            yield from leaves(value, (*path, name))
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield (*path, name)


@pytest.mark.parametrize("document", FILES.values(), ids=list(FILES))
def test_every_number_is_read_as_it_is_or_refused_in_one_sentence(document: dict[str, Any]) -> None:
    """A missing, textual or negative number is refused with its name, or has no part in the result."""
    whole, refused = read_one(document), list[str]()
    for path in leaves(document):
        for value in (None, "fast", -1.0, True):
            changed = copy.deepcopy(document)
            inner = changed
            for name in path[:-1]:
                inner = inner[name]
            inner[path[-1]] = value
            try:
                found = read_one(changed)
            except BenchmarkFileError as problem:
                refused.append(str(problem))
                continue
            same = (found.time_to_first_token, found.time_per_output_token, found.tokens_per_s, found.prompt)
            assert same == (whole.time_to_first_token, whole.time_per_output_token, whole.tokens_per_s, whole.prompt)
    assert len(refused) >= 20
    assert all(each.startswith("result.json") and "\n" not in each for each in refused)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("TTFT 400 ms", "neither one JSON document nor one per line"),
        ("[1, 2]", "result 1 is not a JSON object"),
        ('{"loss": 2.1}', "no result of a known benchmark"),
        ('{"benchmarks": []}', "empty list of benchmarks"),
        (json.dumps({**VLLM, "max_concurrency": None}), "states neither a concurrency nor a request rate"),
        (json.dumps({**VLLM, "output_throughput": RATE / 8}), "the file was changed or has another unit"),
        (json.dumps({**VLLM, "completed": 16, "total_output_tokens": 64_000}), "16 requests cannot keep 32 in flight"),
        (json.dumps({**AIPERF, "was_cancelled": True}), "the benchmark was cancelled"),
        (json.dumps({**AIPERF, "time_to_first_token": {"unit": "tokens", "avg": 4}}), "unit is 'tokens'; it must be"),
        (json.dumps({**AIPERF, "inter_token_latency": None}), "has no inter_token_latency; run the benchmark with"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(text: str, words: str) -> None:
    with pytest.raises(BenchmarkFileError) as problem:
        read_benchmarks(text, "result.json")
    assert words in str(problem.value)


def test_a_file_of_lines_has_a_result_per_line() -> None:
    second = {**SGLANG, "max_concurrency": 16, "accept_length": 2.4}
    found = read_benchmarks(f"{json.dumps(SGLANG)}\n\n{json.dumps(second)}\n", "runs.jsonl")
    assert [each.label for each in found] == ["runs.jsonl, result 1", "runs.jsonl, result 2"]
    assert [each.in_flight for each in found] == [32, 16]
    assert [each.can_calibrate for each in found] == [True, False]
    assert "accepted length 2.4" in found[1].remarks[0]


def test_requests_in_flight_with_arrival_times_follow_from_their_number_and_time() -> None:
    rate = 4.0
    open_load = {**VLLM, "request_rate": rate, "max_concurrency": None, "duration": 80.0, "output_throughput": 800.0}
    found = read_one(open_load)
    assert found.in_flight == pytest.approx(rate * (0.4 + 199 * 0.02))
    assert found.requests_per_slot is None
    report = copy.deepcopy(GUIDELLM)
    report["benchmarks"][0]["config"]["strategy"] = {"type_": "poisson", "rate": 5.0, "max_concurrency": 512}
    assert read_one(report).in_flight == pytest.approx(32, rel=1e-6)
