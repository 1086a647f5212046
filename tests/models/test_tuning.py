"""Adapters, chunks of the loss and packing: hand counts, bounds of packing, and sentences about bad input."""

import functools
import math
import random
from typing import Any

import pytest

import engine
import models
from engine.scenarios.scenario import Scenario
from models.token_flops import token_flops
from models.tuning import products_parameters, targeted_products


def count_adapters(name: str, **tuning: Any) -> int:
    model = models.tuned(models.load(name), tuning)
    assert model.tuning is not None
    pattern = model.pattern_or_assumed()
    found = targeted_products(pattern, model.tuning)
    blocks = [count for _, count in pattern.counted_blocks()]
    return sum(
        count * products_parameters(products, model.tuning.adapter_rank)
        for count, products in zip(blocks, found, strict=True)
    )


@pytest.mark.parametrize(
    ("name", "tuning", "counted"),
    [
        # 32 blocks: r (4096 + 4096) and r (14336 + 4096).
        ("llama-3-8B", {"adapter_targets": "attention_output+feedforward_down"}, 32 * 16 * (8192 + 18432)),
        # As PEFT's `print_trainable_parameters` has it: queries, keys, values, gate and up have adapters of their own.
        ("llama-3-8B", {}, 41_943_040),
        # 48 blocks of 128 experts of width 768 and hidden 2048: each expert has adapters of its own.
        ("qwen3-30B-A3B", {"adapter_targets": "mlp"}, 48 * 128 * 16 * (2 * 2048 + 1536 + 768 + 2048)),
        # 61 blocks of latent attention, 128 heads of 192 and 128 columns, latents of 1536 and 512 + 64.
        (
            "deepseek-v3",
            {"adapter_targets": "query_down+query_up+key_value_down"},
            61 * 16 * (7168 + 1536 + 1536 + 24576 + 7168 + 576),
        ),
    ],
)
def test_adapters_are_counted_from_the_products_of_layers(name: str, tuning: dict[str, Any], counted: int) -> None:
    assert count_adapters(name, adapter_rank=16, **tuning) == counted


def test_packing_fills_between_the_bounds_of_first_fit_decreasing() -> None:
    draw = random.Random(7)
    for _ in range(50):
        size = draw.randint(64, 5_000)
        lengths = [draw.randint(1, size) for _ in range(draw.randint(1, 300))]
        found = models.pack_samples(lengths, size)
        least = max(math.ceil(sum(lengths) / size), sum(2 * length > size for length in lengths))
        assert least <= found.sequences
        # No two sequences of first fit can be merged: at most one is half empty or more.
        assert sum(lengths) > (found.sequences - 1) * size / 2
        assert 0.0 < found.square_share <= found.fill <= 1.0
        assert math.isclose(found.fill, sum(lengths) / found.sequences / size)
    # No two samples of 3,300 tokens fit into 4,096: one each, four fifths full.
    assert models.pack_samples([3_300] * 7, 4_096).fill == pytest.approx(3_300 / 4_096)


def test_without_tuning_a_model_is_itself() -> None:
    model = models.load("llama-3-8B")
    assert models.tuned(model, {"adapter_rank": 0, "loss_chunk": 0}) is model
    lora = models.tuned(model, {"adapter_rank": 16})
    assert models.load_document(models.to_document(lora)) == lora
    assert models.tuned(lora, {"adapter_rank": 0}).tuning is None
    # Four of six products' worth of FLOP, all of attention.
    work, frozen = token_flops(model), token_flops(lora)
    assert frozen.model() == pytest.approx(2.0 * (work.weights + work.head) + 3.0 * work.attention)


@pytest.mark.parametrize(
    ("tuning", "words"),
    [
        ({"adapter_rank": 16, "adapter_targets": "q_proj"}, "has no linear layer 'q_proj'"),
        ({"adapter_rank": 5_000}, "adapter_rank must be at most that"),
        ({"frozen_weight_bits": 4}, "without adapters"),
        ({"adapter_targets": "attention"}, "without adapters"),
        ({"adapter_rank": 16, "frozen_weight_bits": 5}, "frozen_weight_bits"),
        ({"loss_chunk": -1}, "loss_chunk"),
        ({"sample_lengths": [10, 9_000]}, "cut samples"),
        ({"sample_lengths": [0]}, "sample_lengths"),
    ],
)
def test_bad_tuning_is_one_sentence(tuning: dict[str, Any], words: str) -> None:
    with pytest.raises(models.ModelFileError, match=words) as refused:
        models.tuned(models.load("llama-3-8B"), tuning)
    assert "\n" not in str(refused.value)


def test_a_scenario_carries_its_tuning() -> None:
    document = {
        "format": "shardscape-scenario/1",
        "model": "llama-3-8B",
        "system": "h100_80g_sxm",
        "num_procs": 8,
        "max_batch_size": 8,
        "datatype": "bfloat16",
        "limits": {},
        "cost_model": "calibrated",
    }
    plain = Scenario.from_document(document)
    tuned = Scenario.from_document({**document, "adapter_rank": 16, "sample_lengths": [4_000, 1_000]})
    assert Scenario.from_document(tuned.to_document()) == tuned
    assert tuned.key != plain.key
    assert tuned.model.tuning is not None
    assert tuned.model.tokens_per_sample < tuned.model.seq_size
    with pytest.raises(models.ModelFileError, match="choose the cost model calibrated"):
        tuned.model.require_block()


@pytest.mark.parametrize("name", ["llama-3-8B", "gpt3-13B", "qwen3-next-80B-A3B"])
def test_a_model_is_tuned_whatever_was_asked_of_it_before(name: str) -> None:
    """Properties that a model works out once are no part of its document."""
    model = models.load(name)
    fresh = models.tuned(models.load_document(models.to_document(model)), {"adapter_rank": 8})
    for each in dir(type(model)):
        if isinstance(vars(type(model)).get(each), functools.cached_property):
            getattr(model, each)
    assert models.tuned(model, {"adapter_rank": 8}).tuning == fresh.tuning


def test_a_model_of_six_numbers_takes_adapters() -> None:
    six = {"hidden": 4096, "feedforward": 16384, "seq_size": 2048, "attn_heads": 32, "attn_size": 128, "num_blocks": 32}
    model = models.tuned(models.load_document(six, "six"), {"adapter_rank": 4})
    assert models.dimensions(model).num_blocks == 32
    limits = {"tensor_par": 1, "pipeline_par": 1}
    terms = {"num_procs": 8, "max_batch_size": 8, "datatype": "bfloat16", "limits": limits, "cost_model": "calibrated"}
    assert engine.best(model, "h100_80g_sxm", **terms)["weight_grad_space"] < 2**27
