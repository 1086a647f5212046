"""The shipped models: each loads, round-trips, and says what the published figures say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import models
from models.represent import attention_weights, embedding_weights, mlp_weights, parameters

CALCULON = Path(__file__).parent / "calculon"
CALCULON_NAMES = sorted(file.stem for file in CALCULON.glob("*.json"))
PUBLISHED = [name for name in models.names() if models.load(name).architecture is not None]

# Falcon's published counts hold the tied embedding twice, as the released files do
EMBEDDING_TWICE = {"falcon-7B", "falcon-40B", "falcon-180B"}


def test_library_holds_calculons_models_and_at_least_forty_published_ones() -> None:
    assert len(CALCULON_NAMES) == 13
    assert set(CALCULON_NAMES) <= set(models.names())
    assert len(PUBLISHED) >= 40


def test_names_are_sorted_and_differ_by_more_than_case() -> None:
    names = models.names()
    assert names == sorted(names, key=str.lower)
    assert len({name.lower() for name in names}) == len(names)


@pytest.mark.parametrize("name", CALCULON_NAMES)
def test_calculons_values_are_unchanged(name: str) -> None:
    reference = json.loads((CALCULON / f"{name}.json").read_text())
    assert models.to_calculon(models.load(name)) == reference
    assert models.to_calculon(models.load(CALCULON / f"{name}.json")) == reference


@pytest.mark.parametrize("name", models.names())
def test_every_model_is_named_after_its_file_and_has_a_source(name: str) -> None:
    model = models.load(name)
    assert model.name == name
    assert model.title
    assert model.family
    assert model.source
    assert model.not_represented
    if model.architecture is not None:
        assert model.seq_size_basis


@pytest.mark.parametrize("name", models.names())
def test_every_model_round_trips(name: str) -> None:
    model = models.load(name)
    document = json.loads(json.dumps(models.to_document(model)))
    assert models.load_document(document) == model
    assert models.to_document(models.load_document(document)) == document


@pytest.mark.parametrize("name", [n for n in PUBLISHED if models.load(n).architecture.params_published_b])  # type: ignore[union-attr]
def test_recorded_shape_has_the_published_number_of_parameters(name: str) -> None:
    architecture = models.load(name).architecture
    assert architecture is not None
    counted = parameters(architecture) + (embedding_weights(architecture) if name in EMBEDDING_TWICE else 0)
    # 0.3 %: published figures carry two to four digits
    assert counted / 1e9 == pytest.approx(architecture.params_published_b, rel=0.003)


@pytest.mark.parametrize("name", PUBLISHED)
def test_block_weights_are_the_published_ones_but_for_key_value_heads(name: str) -> None:
    model = models.load(name)
    architecture = model.architecture
    assert architecture is not None
    represented = 4 * model.hidden * model.attn_heads * model.attn_size + 2 * model.hidden * model.feedforward
    published = attention_weights(architecture) + mlp_weights(architecture)
    extra_heads = architecture.heads - architecture.kv_heads
    rounding = model.hidden if architecture.gated_mlp and architecture.ffn % 2 else 0
    assert represented - published == 2 * model.hidden * architecture.head_dim * extra_heads + rounding


@pytest.mark.parametrize(
    ("name", "billions"),
    # sums of tensor sizes that the authors or Hugging Face print for the released weights
    [("qwen2.5-7B", 7.616), ("qwen3-8B", 8.191), ("gemma-2-9B", 9.242), ("mistral-7B-v0.1", 7.242), ("phi-4", 14.66)],
)
def test_parameters_of_released_weights(name: str, billions: float) -> None:
    architecture = models.load(name).architecture
    assert architecture is not None
    assert parameters(architecture) / 1e9 == pytest.approx(billions, rel=0.001)


def test_llama_405b_in_full() -> None:
    model = models.load("llama-3.1-405B")
    assert models.to_calculon(model) == {
        "hidden": 16384,
        "feedforward": 79872,
        "seq_size": 8192,
        "attn_heads": 128,
        "attn_size": 128,
        "num_blocks": 126,
    }
    assert model.architecture is not None
    assert embedding_weights(model.architecture) == 2 * 16384 * 128256
