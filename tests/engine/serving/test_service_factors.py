"""Factors measured on one's own servers, on the latencies of services: with pools, without, over a day, in commands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from engine import serving
from engine.serving.deployments import deployments_of, frame_of
from engine.serving.evaluation import subject_of
from engine.serving.factors import EngineFactors, LatencyFactors
from engine.serving.pool_latencies import decode_profiles, prefill_profiles
from engine.serving.profiles import replica_profiles
from engine.serving.queueing import loaded_replicas

MODEL, SYSTEM = "llama-3-70B", "h100_80g_sxm"
OWN: Final = EngineFactors("own", SYSTEM, "two results", {"vllm": LatencyFactors(1.5, 1.25)})
ROW: Final[dict[str, Any]] = {"tensor_par": 4, "pipeline_par": 1, "prompt": 1024, "output": 256, "weight_bits": 8}
SIZED: Final[dict[str, Any]] = {
    "prompt": 1024,
    "output": 256,
    "time_to_first_token": 1.0,
    "time_per_output_token": 0.05,
    "limits": {"tensor_par": [2, 4], "pipeline_par": 1, "weight_bits": 8, "launch": "graphs", "engine": "vllm"},
}


def calibration(system: str = SYSTEM) -> dict[str, Any]:
    values = {"time_to_first_token": 1.5, "time_per_output_token": 1.25}
    return {
        "format": "shardscape-calibration/1",
        "name": "own",
        "subject": "serving",
        "system": system,
        "fitted_on": "two results",
        "date": "2026-11-20",
        "parameters": {
            f"factor.vllm.{name}": {"value": value, "kind": "measured", "source": "two results"}
            for name, value in values.items()
        },
    }


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_users_at_once_have_the_adjusted_figures_of_the_deployment(engine: str) -> None:
    row = {**ROW, "batch": 64, "engine": engine}
    subject = subject_of(MODEL, SYSTEM, factors=OWN)
    profile = replica_profiles(subject, deployments_of(frame_of(row)), np.array([256.0]))
    found = loaded_replicas(profile, serving.ServiceLoad(users=64.0), np.array([64.0]), np.ones(1))
    adjusted, plain = (serving.evaluate(MODEL, SYSTEM, row, factors=each).iloc[0] for each in (OWN, None))
    assert found.first_token.mean[0] == pytest.approx(adjusted["time_to_first_token"], rel=1e-12)
    assert found.per_token.mean[0] == pytest.approx(adjusted["time_per_output_token"], rel=1e-12)
    assert found.rate[0] == pytest.approx(adjusted["requests_per_s"], rel=1e-12)
    changed = 1.25 if engine == "vllm" else 1.0
    assert adjusted["time_per_output_token"] == pytest.approx(changed * plain["time_per_output_token"])


def test_pools_have_the_factor_of_what_they_do() -> None:
    d = deployments_of(frame_of({**ROW, "batch": 1, "engine": "vllm"}))
    subjects = [subject_of(MODEL, SYSTEM, factors=each) for each in (OWN, None)]
    own, plain = (prefill_profiles(each, d, np.array([64.0])) for each in subjects)
    for name in ("start", "each", "fixed"):
        assert getattr(own, name)[0] == pytest.approx(1.5 * getattr(plain, name)[0])
    own_steps, steps = (decode_profiles(each, d, np.array([64.0])).times.step for each in subjects)
    assert own_steps == pytest.approx(1.25 * steps)


@pytest.mark.parametrize(
    "load", [serving.ServiceLoad(request_rate=60.0), serving.ServiceLoad(users=900.0, think_s=5.0)]
)
def test_slower_servers_need_more_gpus_and_a_factor_of_one_changes_nothing(load: serving.ServiceLoad) -> None:
    one = EngineFactors("one", SYSTEM, "none", {"vllm": LatencyFactors()})
    for size in (serving.size_service, serving.size_pools):
        plain, same, own = (size(MODEL, SYSTEM, load=load, **SIZED, factors=each) for each in (None, one, OWN))
        found = [each.best if size is serving.size_service else each.best._asdict() for each in (plain, same, own)]
        assert found[1] == found[0]
        gpus = [each["gpus"] if size is serving.size_service else each["figures"]["gpus"] for each in found]
        assert gpus[2] > gpus[0]


def test_a_pool_of_another_system_has_no_factors() -> None:
    load = serving.ServiceLoad(request_rate=60.0)
    sizes = [
        serving.size_pools(MODEL, "h200_141g_sxm", load=load, **SIZED, prefill_system=SYSTEM, factors=each).best
        for each in (None, OWN)
    ]
    assert all(each is not None for each in sizes)
    plain, own = sizes
    assert own.figures["per_token_mean"] < 1.2 * plain.figures["per_token_mean"]
    assert own.prefill["deployments"] >= plain.prefill["deployments"]


def test_commands_and_answers_state_the_factors(shardscape: Any, tmp_path: Path) -> None:
    file = tmp_path / "factors.json"
    file.write_text(json.dumps(calibration()))
    lengths = ("--prompt", 1024, "--output", 256, "--limit", "engine=vllm", "--limit", "weight_bits=8")
    sentence = "Latencies have the measured factors of 'own' (vllm: first token × 1.5, per token × 1.25)"
    words = ("service", MODEL, SYSTEM, "--rate", 20, *lengths)
    code, out, _ = shardscape(*words, "--factors", file, "--json")
    adjusted = json.loads(out)
    assert code == 0
    assert adjusted["factors"].startswith(sentence)
    assert json.loads(shardscape(*words, "--json")[1])["factors"] is None
    assert f"Adjusted. {sentence}" in shardscape(*words, "--factors", file)[1]
    code, out, _ = shardscape("plan", "day", MODEL, SYSTEM, "--peak", 20, *lengths, "--factors", file)
    assert code == 0
    assert f"Adjusted. {sentence}" in out
    file.write_text(json.dumps(calibration("h200_141g_sxm")))
    code, _, err = shardscape(*words, "--factors", file)
    assert code == 2
    assert "was measured on h200_141g_sxm, not on h100_80g_sxm" in err
