"""Result files of benchmarks of serving engines: the load, the lengths, and the measured latencies and output.

Formats, with the sources that they were read from:

- `vllm bench serve --save-result` (vllm-project/vllm@009e6d4a1c: vllm/benchmarks/serve.py), and benchmark_serving.py
  before it: one JSON object, or one per line with --append-result;
- `sglang.bench_serving` (sgl-project/sglang@0033168f0f: python/sglang/bench_serving.py): one JSON object per line;
- AIPerf (ai-dynamo/aiperf@db4f6397d1, version 0.1.1: aiperf/common/models/export_models.py) and genai-perf
  (triton-inference-server/perf_analyzer@09628cd6d6: genai-perf/genai_perf/export_data/json_exporter.py): a metric is an
  object with its unit and statistics;
- GuideLLM (vllm-project/guidellm@ee7a77457b, format 2: src/guidellm/benchmark/schemas): a list of benchmarks, whose
  metrics have statistics by status of the requests.

Time per output token is (latency - first token) / (output tokens - 1) of a request, the mean over requests: vLLM and
SGLang call it TPOT, AIPerf, genai-perf and GuideLLM inter-token latency.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hardware import Calibration, load_calibration_document
from models.documents import shown

__all__ = ["BenchmarkFileError", "ServingBenchmark", "read_benchmarks", "read_server_file"]

MOST_RESULTS: Final = 1_000
"""Results of a file at most. Source: stated by us."""
SLACK: Final = 0.02
"""Relative deviation allowed between a file's output rate and its output tokens over duration. Source: stated by us;
the rates are rounded to two decimals in some versions."""
SECONDS: Final[Mapping[str, float]] = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0}
"""Seconds of each unit of time in the files."""
TOOLS: Final = (
    "`vllm bench serve --save-result`, `sglang.bench_serving --output-file`, AIPerf or genai-perf "
    "(profile_export_aiperf.json, profile_export_genai_perf.json), or GuideLLM (benchmarks.json)"
)


class BenchmarkFileError(ValueError):
    """A file that is no result of a known benchmark, or a result without a needed value; one sentence."""


@dataclass(frozen=True, slots=True)
class ServingBenchmark:
    """One measured load on a server: means over the completed requests."""

    label: str
    """File, and place in it where it has several results."""
    tool: str
    model: str
    """As the file names it; empty where it does not."""
    requests: float
    """Completed requests."""
    prompt: float
    """Mean prompt [tokens]."""
    output: float
    """Mean output [tokens]."""
    in_flight: float
    """Mean number of requests in flight: the client's limit where it sends without pauses, else by Little's law."""
    requests_per_slot: float | None
    """Requests that the client sent per request in flight, all at once at first; None for a load with arrival times."""
    time_to_first_token: float
    """[s]"""
    time_per_output_token: float
    """After the first token [s]."""
    tokens_per_s: float
    """Output of the server [tokens/s]."""
    remarks: tuple[str, ...]
    """Sentences on what the predictions do not have."""
    can_calibrate: bool
    """False where something in the remarks changes the times, such as speculative decoding."""


def read_benchmarks(content: str | bytes, name: str) -> tuple[ServingBenchmark, ...]:
    """Return the results of a file, in its order.

    Args:
        content: of the file; bytes are UTF-8.
        name: of the file, for messages.

    Raises `BenchmarkFileError` for any other file, and for a result without a needed value.
    """
    try:
        text = content if isinstance(content, str) else content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BenchmarkFileError(f"{name} is not text in UTF-8; it must be a result of {TOOLS}.") from None
    documents = _parse_documents(text, name)
    found: list[ServingBenchmark] = []
    for place, document in enumerate(documents, 1):
        where = name if len(documents) == 1 else f"{name}, result {place}"
        if not isinstance(document, dict):
            raise BenchmarkFileError(f"{where} is not a JSON object; it must be a result of {TOOLS}.")
        if isinstance(document.get("benchmarks"), list):
            found += _read_guidellm(document["benchmarks"], where)
        elif isinstance(document.get("time_to_first_token"), dict) or "input_config" in document:
            found.append(_read_aiperf(_Values(document, where)))
        elif "mean_ttft_ms" in document or "output_throughput" in document:
            found.append(_read_serving_result(_Values(document, where)))
        else:
            raise BenchmarkFileError(f"{where} is no result of a known benchmark; give one of {TOOLS}.")
    if len(found) > MOST_RESULTS:
        raise BenchmarkFileError(f"{name} has {len(found):,} results; at most {MOST_RESULTS:,} are read.")
    return tuple(found)


def read_server_file(content: str | bytes, name: str) -> tuple[ServingBenchmark, ...] | Calibration:
    """Return the results of a file, or the calibration that it is.

    Args:
        content: of the file; bytes are UTF-8.
        name: of the file, for messages.

    Raises `hardware.CalibrationFileError` for a calibration that cannot be used, and as `read_benchmarks` does.
    """
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        document = None
    if isinstance(document, dict) and str(document.get("format", "")).startswith("shardscape-calibration/"):
        return load_calibration_document(document, name)
    return read_benchmarks(content, name)


def _parse_documents(text: str, name: str) -> list[Any]:
    """Return the JSON documents of a text: one, or one per line."""
    if not text.strip():
        raise BenchmarkFileError(f"{name} is empty; it must be a result of {TOOLS}.")
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError):
        pass
    else:
        return whole if isinstance(whole, list) and whole else [whole]
    lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    found = []
    for number, line in lines:
        try:
            found.append(json.loads(line))
        except (ValueError, RecursionError):
            raise BenchmarkFileError(
                f"{name} is neither one JSON document nor one per line (line {number:,}); it must be a result of "
                f"{TOOLS}."
            ) from None
    return found


@dataclass(frozen=True, slots=True)
class _Values:
    """Values of an object by path, each checked."""

    document: Mapping[str, Any]
    where: str

    def find(self, *path: str) -> Any:
        """Return the value at a path, None if it is absent."""
        found: Any = self.document
        for name in path:
            found = found.get(name) if isinstance(found, Mapping) else None
        return found

    def positive(self, *path: str) -> float:
        """Return a number above 0. Raises `BenchmarkFileError` for anything else."""
        found = self.find(*path)
        if found is None:
            raise BenchmarkFileError(f"{self.where} has no {'.'.join(path)}; {self._advice(path)}.")
        if isinstance(found, bool) or not isinstance(found, int | float) or not 0 < found <= 1e15:
            raise BenchmarkFileError(f"{self.where}: {'.'.join(path)} is {shown(found)}; it must be a number above 0.")
        return float(found)

    def positive_or_none(self, *path: str) -> float | None:
        """Return a number above 0, or None where the file has none, such as null, 0, "inf" or Infinity."""
        found = self.find(*path)
        if found in (None, 0, "inf", ""):
            return None
        return None if isinstance(found, float) and math.isinf(found) else self.positive(*path)

    def named(self, *path: str) -> str:
        """Return a text; empty where the file has none."""
        found = self.find(*path)
        return found[:200] if isinstance(found, str) else ""

    def inside(self, name: str) -> _Values:
        """Return the values of a metric of AIPerf, genai-perf or GuideLLM."""
        found = self.find(name)
        return _Values(found if isinstance(found, Mapping) else {}, f"{self.where}, {name}")

    def _advice(self, path: Sequence[str]) -> str:
        streamed = any("ttft" in name or "first_token" in name or "inter_token" in name for name in path)
        return "run the benchmark with streaming" if streamed else f"it must be a result of {TOOLS}"


def _read_serving_result(values: _Values) -> ServingBenchmark:
    """Return a result of vLLM or SGLang, whose names agree."""
    requests, duration = values.positive("completed"), values.positive("duration")
    rate = values.positive("output_throughput")
    tokens = values.positive("total_output_tokens")
    if abs(tokens / duration / rate - 1.0) > SLACK:
        raise BenchmarkFileError(
            f"{values.where}: output_throughput is {rate:g} tokens/s, but total_output_tokens / duration is "
            f"{tokens / duration:g}; the file was changed or has another unit."
        )
    remarks = _remark_on_failures(values.find("failed"))
    accepted = values.positive_or_none("spec_decode_acceptance_length") or values.positive_or_none("accept_length")
    if accepted is not None:
        remarks.append(f"Speculative decoding was on (accepted length {accepted:g}), which predictions do not model.")
    is_vllm = "model_id" in values.document or "total_token_throughput" in values.document
    return _build_benchmark(
        values.where,
        "vLLM bench serve" if is_vllm else "SGLang bench_serving",
        model=values.named("model_id"),
        requests=requests,
        prompt=values.positive("total_input_tokens") / requests,
        output=tokens / requests,
        limit=values.positive_or_none("max_concurrency"),
        arrival_rate=values.positive_or_none("request_rate"),
        first_token=1e-3 * values.positive("mean_ttft_ms"),
        per_token=1e-3 * values.positive("mean_tpot_ms"),
        rate=rate,
        remarks=remarks,
        can_calibrate=accepted is None,
    )


def _read_aiperf(values: _Values) -> ServingBenchmark:
    """Return a result of AIPerf or genai-perf."""

    def metric(name: str, units: Mapping[str, float]) -> float:
        inside = values.inside(name)
        if not inside.document:
            raise BenchmarkFileError(f"{values.where} has no {name}; {inside._advice((name,))}.")
        unit = inside.find("unit")
        if unit not in units:
            raise BenchmarkFileError(
                f"{inside.where}: unit is {shown(unit)}; it must be {' or '.join(repr(each) for each in units)}."
            )
        return units[unit] * inside.positive("avg")

    if values.find("was_cancelled") is True:
        raise BenchmarkFileError(f"{values.where}: the benchmark was cancelled; give one that ran to its end.")
    tokens = {"tokens": 1.0}
    limit = next(filter(None, (values.positive_or_none(*path) for path in _paths("concurrency"))), None)
    arrival_rate = next(filter(None, (values.positive_or_none(*path) for path in _paths("request_rate"))), None)
    rate = metric("output_token_throughput", {"tokens/sec": 1.0, "tokens/s": 1.0})
    output = metric("output_sequence_length", tokens)
    if values.find("request_count") is not None:
        requests = metric("request_count", {"requests": 1.0, "count": 1.0})
    else:  # older versions of genai-perf state the rate of requests, but not their number
        requests = values.positive_or_none("input_config", "request_count") or 0.0
    errors = values.inside("error_request_count").find("avg")
    names = values.find("input_config", "endpoint", "model_names") or values.find("input_config", "model_names")
    named = names[0] if isinstance(names, list) and names and isinstance(names[0], str) else ""
    is_genai_perf = values.find("input_config", "loadgen") is None
    return _build_benchmark(
        values.where,
        "genai-perf" if is_genai_perf else "AIPerf",
        model=named or values.named("input_config", "formatted_model_name"),
        requests=requests,
        prompt=metric("input_sequence_length", tokens),
        output=output,
        limit=limit,
        arrival_rate=arrival_rate,
        first_token=metric("time_to_first_token", SECONDS),
        per_token=metric("inter_token_latency", SECONDS),
        rate=rate,
        remarks=_remark_on_failures(errors),
        can_calibrate=True,
    )


def _paths(name: str) -> tuple[tuple[str, ...], ...]:
    """Return where AIPerf and versions of genai-perf state the load."""
    return (
        ("input_config", "loadgen", name),
        ("input_config", "perf_analyzer", "stimulus", name),
        ("input_config", name),
    )


def _read_guidellm(benchmarks: Sequence[Any], where: str) -> list[ServingBenchmark]:
    """Return the results of a file of GuideLLM."""
    if not benchmarks:
        raise BenchmarkFileError(f"{where} has an empty list of benchmarks; run GuideLLM to its end.")
    found = []
    for place, each in enumerate(benchmarks, 1):
        place_name = where if len(benchmarks) == 1 else f"{where}, benchmark {place}"
        if not isinstance(each, dict) or not isinstance(each.get("metrics"), dict):
            raise BenchmarkFileError(f"{place_name} has no metrics; it must be a JSON report of GuideLLM.")
        found.append(_read_guidellm_benchmark(_Values(each, place_name)))
    return found


def _read_guidellm_benchmark(values: _Values) -> ServingBenchmark:
    def mean(name: str) -> float:
        return values.positive("metrics", name, "successful", "mean")

    strategy = values.find("config", "strategy")
    if not isinstance(strategy, Mapping) or not isinstance(strategy.get("type_"), str):
        raise BenchmarkFileError(
            f"{values.where} has no config.strategy.type_; it must be a JSON report of GuideLLM with format 2."
        )
    kind = strategy["type_"]
    is_open = kind in ("constant", "poisson", "trace")
    limit = None
    if kind == "synchronous":
        limit = 1.0
    elif kind == "concurrent":
        limit = values.positive("config", "strategy", "streams")
    elif not is_open:  # "throughput", whose limit may be none
        limit = values.positive_or_none("config", "strategy", "max_concurrency") or mean("request_concurrency")
    totals = values.inside("metrics").inside("request_totals")
    failed = sum(
        number
        for number in (totals.find("errored"), totals.find("incomplete"))
        if isinstance(number, int) and not isinstance(number, bool)
    )
    return _build_benchmark(
        values.where,
        "GuideLLM",
        model=values.named("config", "backend", "model"),
        requests=totals.positive("successful"),
        prompt=mean("prompt_token_count"),
        output=mean("output_token_count"),
        limit=limit,
        arrival_rate=mean("requests_per_second") if is_open else None,
        first_token=1e-3 * mean("time_to_first_token_ms"),
        per_token=1e-3 * mean("inter_token_latency_ms"),
        rate=mean("output_tokens_per_second"),
        remarks=_remark_on_failures(failed),
        can_calibrate=True,
    )


def _remark_on_failures(failed: Any) -> list[str]:
    if isinstance(failed, bool) or not isinstance(failed, int | float) or failed <= 0:
        return []
    return [f"{failed:,.0f} requests failed or did not end; the means are of the others."]


def _build_benchmark(
    label: str,
    tool: str,
    *,
    model: str,
    requests: float,
    prompt: float,
    output: float,
    limit: float | None,
    arrival_rate: float | None,
    first_token: float,
    per_token: float,
    rate: float,
    remarks: list[str],
    can_calibrate: bool,
) -> ServingBenchmark:
    """Return a result of a client with a limit on requests in flight, arrival times, or both."""
    if output <= 1.0:
        raise BenchmarkFileError(
            f"{label}: the mean output is {output:g} tokens; a time per output token needs more than one."
        )
    if limit is None and arrival_rate is None:
        raise BenchmarkFileError(
            f"{label} states neither a concurrency nor a request rate: all requests were sent at once, and the number "
            "in flight is unknown. Run the benchmark with a limit such as --max-concurrency 64."
        )
    if arrival_rate is None:
        assert limit is not None
        in_flight, burst = limit, max(requests / limit, 1.0) if requests else None
        if requests and requests < limit:
            raise BenchmarkFileError(
                f"{label}: {requests:,.0f} requests cannot keep {limit:,.0f} in flight; send at least as many."
            )
    else:
        # Little's law: requests per second times the mean time of a request [s].
        in_flight, burst = rate / output * (first_token + (output - 1.0) * per_token), None
    return ServingBenchmark(
        label,
        tool,
        model,
        requests,
        prompt,
        output,
        in_flight,
        burst,
        first_token,
        per_token,
        rate,
        tuple(remarks),
        can_calibrate,
    )
