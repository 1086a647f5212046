"""Adapters of low rank in serving: counted weights, bounds of their time, and every door to them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import launch, serving
from engine.launch import LaunchError
from engine.questions import answer
from engine.serving import Assumptions

ROW = {"tensor_par": 1, "pipeline_par": 1, "batch": 16, "prompt": 1024, "output": 256}
PUBLISHED = 41_943_040
"""Parameters of an adapter of rank 16 on all products of Llama 3 8B, as PEFT's `print_trainable_parameters` has it."""


def one(model: str = "llama-3-8B", number: int = 0, rank: int = 16, **fields: Any) -> pd.Series:
    terms = Assumptions(lora_adapters=number, lora_rank=rank)
    return serving.evaluate(model, "h200_141g_sxm", {**ROW, **fields}, assumptions=terms).iloc[0]


def test_without_adapters_no_figure_changes_by_a_bit():
    table = {**ROW, "tensor_par": [1, 2, 4, 8, 4], "launch": ["graphs", "eager", "compiled", "graphs", "graphs"]}
    for model in ("llama-3-8B", "gpt-oss-120B", "bamba-9B"):
        usual = serving.evaluate(model, "h200_141g_sxm", table)
        told = serving.evaluate(model, "h200_141g_sxm", table, assumptions=Assumptions(lora_rank=1024))
        pd.testing.assert_frame_equal(usual, told, check_exact=True)


def test_adapters_have_as_many_weights_as_published():
    more = one(number=8)["memory_weights"] - one()["memory_weights"]
    assert more == pytest.approx(8 * 2 * PUBLISHED, rel=1e-9)
    # Llama 3 8B on two ranks: inputs of products that are split by columns, and outputs of others, are on both.
    columns = (3 * 4096 + 6144 / 2) + (2 * 4096 + 2 * 14336 / 2)
    rows = (4096 / 2 + 4096) + (14336 / 2 + 4096)
    split = one(number=1, tensor_par=2)["memory_weights"] - one(tensor_par=2)["memory_weights"]
    assert split == pytest.approx(2 * 32 * 16 * (columns + rows), rel=1e-9)


@given(
    model=st.sampled_from(("llama-3-8B", "gpt-oss-120B", "bamba-9B")),
    number=st.integers(1, 64),
    rank=st.sampled_from((1, 16, 64)),
    launch_mode=st.sampled_from(("graphs", "eager")),
)
def test_adapters_cost_time_and_memory_and_more_of_them_never_less(
    model: str, number: int, rank: int, launch_mode: str
):
    how = {"tensor_par": 8, "launch": launch_mode}
    none, some, more, wider = (
        one(model, *each, **how) for each in ((0, rank), (number, rank), (number + 1, rank), (number, 2 * rank))
    )
    for name in ("memory_weights", "decode_step_time", "prefill_time", "time_to_first_token", "time_per_output_token"):
        assert none[name] < some[name] <= min(more[name], wider[name]), name
    assert more["largest_batch"] <= some["largest_batch"] <= none["largest_batch"]
    assert sum(some[name] for name in serving.STEP_PARTS) == pytest.approx(some["decode_step_time"])


def test_a_request_reads_its_own_adapter_only_and_many_read_all():
    assert one(number=1, batch=1)["decode_step_time"] == one(number=64, batch=1)["decode_step_time"]
    # Two requests of two adapters have the same one half of the time: one and a half are read.
    added = [one(number=each, batch=2)["decode_step_time"] for each in (1, 2, 1000)]
    assert (added[1] - added[0]) / (added[2] - added[0]) == pytest.approx(0.5, rel=2e-3)


def test_every_door_has_the_same_adapters(shardscape: Callable[..., tuple[int, str, str]]):
    question = {"model": "llama-3-8B", "system": "h100_80g_sxm", "num_procs": 1, "prompt": 512, "output": 128}
    limits = {"weight_bits": 8, "batch": [8, 64], "launch": "graphs"}
    found = answer("find_deployments", {**question, "limits": limits, "lora_adapters": 4, "lora_rank": 64})
    words = ("--num-procs", 1, "--prompt", 512, "--output", 128, "--limit", "weight_bits=8", "--limit", "batch=8,64")
    more = ("--limit", "launch=graphs", "--lora-adapters", 4, "--lora-rank", 64, "--json")
    code, out, _ = shardscape("inference", "llama-3-8B", "h100_80g_sxm", *words, *more)
    assert code == 0
    assert json.loads(out)["best"] == found["best"]
    terms = Assumptions(lora_adapters=4, lora_rank=64)
    python = serving.evaluate("llama-3-8B", "h100_80g_sxm", pd.DataFrame([found["best"]]), assumptions=terms)
    assert python["time_per_output_token"][0] == found["best"]["time_per_output_token"]
    code, _, err = shardscape("inference", "llama-3-8B", "h100_80g_sxm", *words, "--lora-rank", 2000)
    assert code == 2
    assert "1024" in err.replace(",", "")
    for terms, sentence in (({"lora_adapters": -1}, "from 0 to 4,096"), ({"lora_rank": 2.5}, "from 1 to 1,024")):
        with pytest.raises(ValueError, match=sentence):
            Assumptions(**terms)


def test_engines_say_adapters_in_their_own_words_and_figures_follow():
    settings = {"lora_adapters": 4, "lora_rank": 32}
    flags = {}
    for engine in launch.ENGINES:
        made = launch.write_deployment(
            {"tensor_par": 2, "batch": 16}, "llama-3-8B", to=engine, settings=settings, checkpoint="a/b"
        )
        flags[engine] = made.flags["server"]
        found = launch.read_engine_text(made.files[0].text, made.files[0].name)
        assert (found.lora_adapters, found.lora_rank, found.not_modelled) == (4, 32, [])
    assert {"--enable-lora": True, "--max-loras": 4, "--max-lora-rank": 32}.items() <= flags["vllm"].items()
    assert {"--max-loras-per-batch": 4, "--max-lora-rank": 32}.items() <= flags["sglang"].items()
    assert flags["trtllm"]["lora_config"]["max_loras"] == 4
    text = "vllm serve a/b --tensor-parallel-size 2 --enable-lora --max-num-seqs 16"
    asked = {"text": text, "model": "llama-3-8B", "system": "h200_141g_sxm"}
    stated = {"prompt": 1024, "output": 256, "weight_bits": 16, "kv_bits": 16}
    read = answer("import_deployment", {**asked, "stated": stated})
    assert (read["lora_adapters"], read["lora_rank"]) == (1, 16)
    assert read["figures"]["deployment"]["memory_weights"] == one(number=1, tensor_par=2)["memory_weights"]
    # vLLM has few ranks.
    made = launch.write_deployment({"tensor_par": 1}, "llama-3-8B", to="vllm", settings={**settings, "lora_rank": 20})
    assert made.flags["server"]["--max-lora-rank"] == 32
    assert any("pads adapters of rank 20 to 32" in each for each in made.remarks)
    with pytest.raises(LaunchError, match="up to rank 512"):
        launch.write_deployment({"tensor_par": 1}, "llama-3-8B", to="vllm", settings={**settings, "lora_rank": 600})
