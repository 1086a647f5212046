"""Draft models in serving: tokens per step, their passes and memory, and every door to them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

import models
from engine import launch, serving
from engine.launch import LaunchError
from engine.questions import QuestionError, answer
from engine.serving import Assumptions, WorkloadError

MODEL, SYSTEM, DRAFT = "llama-3.3-70B", "h200_141g_sxm", "llama-3.2-1B"
ROW = {"tensor_par": 4, "pipeline_par": 1, "batch": 1, "prompt": 1024, "output": 256}


def one(drafts: int = 0, rate: float | None = None, draft: str | None = DRAFT, **row: Any) -> pd.Series:
    own = models.load(draft) if draft is not None and drafts else None
    terms = Assumptions(draft_tokens=drafts, acceptance_rate=rate, draft_model=own)
    return serving.evaluate(MODEL, SYSTEM, {**ROW, **row}, assumptions=terms).iloc[0]


def test_prediction_layers_have_the_same_figures_however_their_acceptance_is_stated():
    table = {**ROW, "tensor_par": [2, 4, 8], "batch": 8, "launch": ["graphs", "eager", "graphs"]}
    drafted = [Assumptions(draft_tokens=1, accepted_tokens=0.5), Assumptions(draft_tokens=1, acceptance_rate=0.5)]
    one_way, other = (serving.evaluate(MODEL, SYSTEM, table, assumptions=terms) for terms in drafted)
    pd.testing.assert_frame_equal(one_way, other, check_exact=True)


def test_tokens_per_step_are_those_of_drafts_accepted_one_after_the_other():
    draws = np.random.default_rng(1).random((200_000, 4)) < 0.7
    drawn = 1.0 + np.cumprod(draws, axis=1).sum(axis=1).mean()
    assert Assumptions(draft_tokens=4, acceptance_rate=0.7).tokens_per_step == pytest.approx(drawn, rel=5e-3)
    assert Assumptions(draft_tokens=4, acceptance_rate=0.7).tokens_per_step == pytest.approx((1 - 0.7**5) / 0.3)
    assert Assumptions(draft_tokens=4, acceptance_rate=1.0).tokens_per_step == 5.0
    step = one(4, 0.0)["decode_step_time"]
    assert one(4, 0.7)["time_per_output_token"] == pytest.approx(step / ((1 - 0.7**5) / 0.3))


def test_a_step_waits_for_the_passes_of_the_draft_model():
    alone = serving.evaluate(DRAFT, SYSTEM, ROW).iloc[0]
    added = [one(drafts, 0.5)["decode_step_time"] - one()["decode_step_time"] for drafts in (1, 2, 3)]
    # Each draft is a step of the small model: without the engine's step, which is one for both.
    passes = alone["decode_step_time"] - alone["step_host"]
    for number, seconds in enumerate(added, start=1):
        assert number * passes < seconds < 1.5 * number * alone["decode_step_time"]
    assert one(3, 0.5)["time_to_first_token"] > one()["time_to_first_token"]
    parts = one(3, 0.5, batch=8, pipeline_par=2)
    assert sum(parts[name] for name in serving.STEP_PARTS) == pytest.approx(parts["decode_step_time"])
    gains = [one(3, 0.8, batch=each)["tokens_per_s"] / one(batch=each)["tokens_per_s"] for each in (1, 512)]
    assert gains[0] > 1.5
    assert gains[1] < gains[0]


def test_the_draft_model_has_weights_and_a_cache_of_its_own_on_the_last_stage():
    alone, plain, beside = serving.evaluate(DRAFT, SYSTEM, ROW).iloc[0], one(), one(3, 0.5)
    for name in ("memory_weights", "memory_kv_cache"):
        assert beside[name] - plain[name] == pytest.approx(alone[name], rel=1e-9)
    assert beside["largest_batch"] < plain["largest_batch"]
    narrow = one(3, 0.5, weight_bits=4)["memory_weights"] - one(weight_bits=4)["memory_weights"]
    assert narrow == pytest.approx(alone["memory_weights"], rel=1e-9)


def test_drafts_that_cannot_be_get_a_sentence():
    wide = one(3, 0.5, tensor_par=64)
    assert wide["reason"] == "draft_model"
    assert wide["reason_text"].endswith("run there: The model has 32 attention heads, which TP 64 does not divide.")
    with pytest.raises(WorkloadError, match=r"has 50,257 tokens in its vocabulary; it must have the 128,256 of llama"):
        one(3, 0.5, draft="gpt2-xl")
    for terms, sentence in (
        ({"draft_model": models.load(DRAFT)}, "needs draft_tokens of 1 or more"),
        ({"acceptance_rate": 0.7}, "needs draft_tokens of 1 or more"),
        ({"draft_tokens": 2, "acceptance_rate": 1.5}, "must be a share from 0 to 1"),
        ({"draft_tokens": 2, "acceptance_rate": 0.5, "accepted_tokens": 1}, "not both"),
    ):
        with pytest.raises(ValueError, match=sentence):
            Assumptions(**terms)
    question = {"model": MODEL, "system": SYSTEM, "num_procs": 4, "prompt": 512, "output": 128}
    for more in (
        {"draft_model": DRAFT},
        {"acceptance_rate": 0.7},
        {"draft_tokens": 2, "acceptance_rate": 0.5, "accepted_tokens": 1},
    ):
        with pytest.raises(QuestionError, match=r"1 or more|not both"):
            answer("find_deployments", {**question, **more})
    with pytest.raises(LaunchError, match="go together"):
        launch.write_deployment({"tensor_par": 1}, MODEL, to="vllm", settings={"draft_tokens": 3})


def test_every_door_and_engine_has_the_same_draft_model(shardscape: Callable[..., tuple[int, str, str]]):
    question = {"model": MODEL, "system": SYSTEM, "num_procs": 4, "prompt": 512, "output": 128}
    limits = {"weight_bits": 8, "batch": [4, 8], "launch": "graphs"}
    terms: dict[str, Any] = {"draft_tokens": 3, "acceptance_rate": 0.7}
    found = answer("find_deployments", {**question, "limits": limits, **terms, "draft_model": DRAFT})
    words = ("--num-procs", 4, "--prompt", 512, "--output", 128, "--limit", "weight_bits=8", "--limit", "batch=4,8")
    more = ("--limit", "launch=graphs", "--draft-tokens", 3, "--acceptance", 0.7, "--draft-model", DRAFT, "--json")
    code, out, err = shardscape("inference", MODEL, SYSTEM, *words, *more)
    assert code == 0, err
    assert json.loads(out)["best"] == found["best"]
    own = Assumptions(**terms, draft_model=models.load(DRAFT))
    python = serving.evaluate(MODEL, SYSTEM, pd.DataFrame([found["best"]]), assumptions=own)
    assert python["time_per_output_token"][0] == found["best"]["time_per_output_token"]

    settings, flags = {"draft_checkpoint": "a/draft", "draft_tokens": 3}, {}
    for engine in launch.ENGINES:
        made = launch.write_deployment({"tensor_par": 4}, MODEL, to=engine, settings=settings)
        flags[engine] = made.flags["server"]
        read = launch.read_engine_text(made.files[0].text, made.files[0].name)
        assert read.speculation is not None
        assert read.speculation["draft_tokens"] == 3
        assert not read.unread
    said = {"method": "draft_model", "model": "a/draft", "num_speculative_tokens": 3}
    assert json.loads(flags["vllm"]["--speculative-config"]) == said
    assert flags["sglang"]["--speculative-algorithm"] == "STANDALONE"
    assert flags["trtllm"]["speculative_config"]["max_draft_len"] == 3


def test_bits_of_a_draft_change_its_weights_and_passes_and_nothing_else():
    def drafted(bits: int) -> pd.Series:
        own = models.load(DRAFT)
        terms = Assumptions(draft_tokens=3, acceptance_rate=0.7, draft_model=own, draft_bits=bits)
        return serving.evaluate(MODEL, SYSTEM, ROW, assumptions=terms).iloc[0]

    wide, narrow = drafted(16), drafted(8)
    alone = [serving.evaluate(DRAFT, SYSTEM, {**ROW, "weight_bits": bits}).iloc[0] for bits in (16, 8)]
    assert wide["memory_weights"] - narrow["memory_weights"] == pytest.approx(
        alone[0]["memory_weights"] - alone[1]["memory_weights"], rel=1e-9
    )
    assert wide["memory_kv_cache"] == narrow["memory_kv_cache"]
    assert narrow["decode_step_time"] != wide["decode_step_time"]
    question = {"model": MODEL, "system": SYSTEM, "num_procs": 4, "prompt": 512, "output": 128, "draft_tokens": 3}
    with pytest.raises(QuestionError, match="about a draft model"):
        answer("find_deployments", {**question, "draft_bits": 8})
    with pytest.raises(QuestionError, match="16, 8, 4"):
        answer("find_deployments", {**question, "draft_model": DRAFT, "draft_bits": 5})
