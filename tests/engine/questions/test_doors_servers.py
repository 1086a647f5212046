"""A deployment next to own results and measured servers in library, command and JSON, and factors of results."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from jsonschema import Draft202012Validator

import hardware
import models
from engine import serving
from engine.questions import VERBS, QuestionError, answer
from engine.questions.documents.serving import ServersQuestion
from engine.questions.servers import compare_servers
from engine.validation.serving.nearest_servers import ServerSetting, find_nearest_servers, library_servers
from engine.validation.serving.operations import GPUS
from engine.validation.serving.servers import MODELS

MODEL, SYSTEM = "llama-3.1-70B", "h200_141g_sxm"
FIELDS = {"tensor_par": 4, "engine": "vllm", "weight_bits": 8, "kv_bits": 8}


def result(batch: int = 32, per_token_ms: float = 14.2, first_ms: float = 410.0) -> dict[str, Any]:
    """Return a result of vLLM bench serve by hand: ten requests of 922 + 922 tokens per request in flight."""
    duration = 10 * (first_ms + 921 * per_token_ms) / 1e3
    tokens = 10 * batch * 922
    return {
        "model_id": "meta-llama/Llama-3.1-70B",
        "request_rate": "inf",
        "max_concurrency": batch,
        "duration": duration,
        "completed": 10 * batch,
        "total_input_tokens": tokens,
        "total_output_tokens": tokens,
        "output_throughput": tokens / duration,
        "total_token_throughput": 2 * tokens / duration,
        "mean_ttft_ms": first_ms,
        "mean_tpot_ms": per_token_ms,
    }


def test_every_door_has_the_same_comparison(shardscape: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    path, factors = tmp_path / "result.json", tmp_path / "ours.json"
    path.write_text(json.dumps(result(per_token_ms=40.0)), encoding="utf-8")
    question = {
        "model": MODEL,
        "system": SYSTEM,
        "deployment": FIELDS,
        "results": {str(path): path.read_text(encoding="utf-8")},
        "nearest": 3,
        "name": "ours",
    }
    Draft202012Validator(VERBS["compare_servers"].question_schema()).validate(question)
    found = answer("compare_servers", question)
    Draft202012Validator(VERBS["compare_servers"].answer_schema()).validate(json.loads(json.dumps(found)))
    (own,) = found["results"]
    predicted = serving.evaluate(
        MODEL, SYSTEM, {**FIELDS, "pipeline_par": 1, "batch": [32], "prompt": 922, "output": 922}, requests_per_slot=10
    ).iloc[0]
    assert own["figures"]["time_per_output_token"]["predicted"] == predicted["time_per_output_token"]
    assert own["figures"]["time_per_output_token"]["measured"] == pytest.approx(0.04)
    verdicts = {name: figure["verdict"] for name, figure in own["figures"].items()}
    assert verdicts["time_per_output_token"] == verdicts["tokens_per_s"] == "slower than expected"
    assert verdicts["time_to_first_token"] == "as expected"
    nearest = found["nearest"][0]
    assert (nearest["distance"], nearest["library_model"], nearest["gpu"]) == (0, MODEL, SYSTEM)

    options = [word for name, value in FIELDS.items() for word in ("--set", f"{name}={value}")]
    command = ("servers", MODEL, SYSTEM, path, *options, "--nearest", 3, "--name", "ours", "--out", factors)
    code, out, _ = shardscape(*command, "--json")
    assert code == 0
    assert json.loads(out) == found
    assert json.loads(factors.read_text(encoding="utf-8")) == found["calibration"]
    text = shardscape(*command)[1]
    assert "slower than expected" in text
    assert "Nearest measured servers" in text
    script = tmp_path / "serve.sh"
    script.write_text("vllm serve meta-llama/Llama-3.1-70B --tensor-parallel-size 4 --kv-cache-dtype fp8\n", "utf-8")
    code, out, _ = shardscape(
        "servers", MODEL, SYSTEM, path, "--deployment", script, "--set", "weight_bits=8", "--nearest", 3, "--json"
    )
    assert code == 0
    assert json.loads(out)["results"][0]["figures"] == own["figures"]

    inference = ("inference", MODEL, SYSTEM, "--num-procs", 4, "--prompt", 922, "--output", 922)
    limits = ("--limit", "engine=vllm", "--limit", "tensor_par=4", "--limit", "batch=32", "--requests-per-slot", 10)
    bits = ("--limit", "weight_bits=8", "--limit", "kv_bits=8")
    export = tmp_path / "all.csv"
    code, out, _ = shardscape(*inference, *limits, *bits, "--factors", factors, "--json", "--export", export)
    told = json.loads(out)
    # With the factor of one result, its deployment has its latencies.
    assert told["best"]["time_per_output_token"] == pytest.approx(0.04, rel=1e-4)
    assert told["best"]["time_to_first_token"] == pytest.approx(0.41, rel=1e-4)
    assert told["best"]["tokens_per_s"] == pytest.approx(32 * 922 / (0.41 + 921 * 0.04), rel=1e-4)
    assert "measured factors of 'ours'" in told["factors"]
    assert set(pd.read_csv(export)["factors"]) == {"ours"}
    assert "measured factors of 'ours'" in shardscape(*inference, *limits, *bits, "--factors", factors)[1]


def test_a_factor_is_the_mean_of_the_results_and_no_other_engines() -> None:
    files = {f"{batch}.json": json.dumps(result(batch, slow * 14.0)) for batch, slow in ((16, 1.0), (32, 1.5))}
    question = ServersQuestion(model=MODEL, system=SYSTEM, deployment=FIELDS, results=files, nearest=0)
    found = compare_servers(question)
    assert found.calibration is not None
    each = found.calibration.parameters["factor.vllm.time_per_output_token"]
    ratios = [one.figures["time_per_output_token"].ratio for one in found.compared]
    assert each.value == pytest.approx((ratios[0] * ratios[1]) ** 0.5, rel=1e-4)
    assert (each.low, each.high) == pytest.approx((min(ratios), max(ratios)), rel=1e-4)
    # Left out in turn, one result's factor is the other's ratio.
    error = next(each for each in found.calibration.errors if "per_output_token: each result" in each.described)
    assert error.mean_absolute_percent == pytest.approx(
        50 * (abs(ratios[1] / ratios[0] - 1) + abs(ratios[0] / ratios[1] - 1)), abs=0.01
    )
    document = hardware.calibration_document(found.calibration)
    table = {
        "tensor_par": 4,
        "pipeline_par": 1,
        "batch": 32,
        "prompt": 922,
        "output": 922,
        "engine": ["sglang", "vllm"],
    }
    factors = serving.EngineFactors.of(hardware.load_calibration_document(document), hardware.load(SYSTEM))
    plain, scaled = (serving.evaluate(MODEL, SYSTEM, table, factors=some) for some in (None, factors))
    assert plain.iloc[0].equals(scaled.iloc[0])
    assert scaled["time_per_output_token"][1] == pytest.approx(each.value * plain["time_per_output_token"][1], rel=1e-9)
    # With factors in the predictions, the factors that are measured are the same.
    again = compare_servers(question.model_copy(update={"factors": document}))
    assert again.calibration == found.calibration
    assert again.compared[0].figures != found.compared[0].figures


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"results": {}}, "`deployment` has no batch, prompt, output"),
        (
            {"deployment": {"tensor_par": 4, "engin": "vllm"}},
            "There is no field 'engin' of deployments; did you mean 'engine'",
        ),
        ({"deployment": {"engine": "vllm"}}, "has no column 'tensor_par'"),
        ({"deployment": {**FIELDS, "replicas": 0}}, "replicas is 0; it must be a whole number from 1"),
        ({"deployment": {**FIELDS, "engine": "tgi"}}, ""),
        ({"factors": "global"}, "Calibration 'global' has no factors of engines"),
        ({"factors": "ours", "results": {"a.json": "{}"}}, "'ours'"),
        ({"results": {"a.json": "{}"}}, "a.json is no result of a known benchmark"),
    ],
)
def test_bad_questions_get_one_sentence(changes: dict[str, Any], words: str) -> None:
    question = {"model": MODEL, "system": SYSTEM, "deployment": FIELDS, "results": {"r.json": json.dumps(result())}}
    if not words:  # an unknown engine is a reason of the deployment
        found = answer("compare_servers", {**question, **changes})
        assert "tgi" in found["deployment"]["reason_text"]
        assert found["results"][0]["figures"] == {}
        assert found["calibration"] is None
        return
    with pytest.raises(ValueError, match=r"\w") as problem:
        answer("compare_servers", {**question, **changes})
    assert words in str(problem.value)
    assert "\n" not in str(problem.value)


def test_factors_of_another_system_are_refused() -> None:
    found = answer(
        "compare_servers",
        {"model": MODEL, "system": SYSTEM, "deployment": FIELDS, "results": {"r.json": json.dumps(result())}},
    )
    question = {"model": MODEL, "system": "h100_80g_sxm", "num_procs": 4, "prompt": 922, "output": 922}
    with pytest.raises(ValueError, match="was measured on h200_141g_sxm, not on h100_80g_sxm"):
        answer("find_deployments", {**question, "factors": found["calibration"]})
    with pytest.raises(QuestionError, match="factors"):
        answer("find_deployments", {**question, "factors": 3})


@pytest.mark.parametrize("place", range(0, 1214, 101))
def test_a_measured_server_is_the_nearest_to_itself(place: int) -> None:
    rows = library_servers().rows
    row = {**rows.iloc[place], "pipeline_par": 1}
    setting = ServerSetting.of(models.load(MODELS[row["model"]]), hardware.load(GPUS[row["gpu"]]), row)
    found = find_nearest_servers(setting, 20)
    assert found.distances[0] == 0
    assert list(found.distances) == sorted(found.distances)
    names = ["gpu", "engine", "tensor_par", "batch", "weight_bits", "prompt", "output"]
    assert dict(found.rows[names].iloc[0]) == {name: row[name] for name in names}
    assert found.parts.sum(axis=1).to_numpy() == pytest.approx(found.distances)
