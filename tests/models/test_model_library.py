"""The shipped models: each loads, round-trips, and says what the published figures say."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

import models
from models.parameters import (
    active_parameters,
    attention_weights,
    embedding_weights,
    mlp_weights,
    parameters,
    prediction_parameters,
)

CALCULON = Path(__file__).parent / "calculon"
CALCULON_NAMES = sorted(file.stem for file in CALCULON.glob("*.json"))
DENSE = [name for name in models.names() if models.load(name).block is not None]
PATTERNS = [name for name in models.names() if models.load(name).layers is not None]
SPARSE = [name for name in models.names() if name not in {*DENSE, *PATTERNS}]

NOT_COMPARABLE = {
    "falcon-7B": "holds the tied embedding twice, as the released file does",
    "falcon-40B": "holds the tied embedding twice, as the released file does",
    "llama-4-scout": "includes the image encoder",
    "megatron-core-0.8-32B": "is a name; the printed widths give 31.5 B",
    "nemotron-8B": "is a name",
    "nemotron-22B": "is a name",
}
"""Models whose published count is of something else, and what."""

CUT_OFF = {"deepseek-v2-lite", "glm-5", "qwen3-30B-A3B"}
"""Models whose authors print the first digits of the active count rather than round it."""


def architecture_of(name: str) -> models.Architecture:
    architecture = models.load(name).architecture
    assert architecture is not None
    return architecture


def agrees(counted: float, published: float) -> bool:
    """Within 1 %, or the same once rounded to the digits that are printed: authors print 1.3 B for 1.316 B."""
    digits = len(f"{published:g}".replace(".", "").strip("0")) or 1
    digits = max(digits, 2 if published >= 10 else 1)
    return abs(counted / published - 1) <= 0.01 or float(f"{counted:.{digits}g}") == published


def test_library_holds_calculons_models_and_the_published_ones() -> None:
    assert len(CALCULON_NAMES) == 13
    assert set(CALCULON_NAMES) <= set(models.names())
    assert {"qwen3-next-80B-A3B", "nemotron-3-super-120B-A12B", "kimi-k3"} <= set(PATTERNS)
    assert all(models.load(name).architecture for name in (*DENSE, *SPARSE))


def test_names_are_sorted_and_differ_by_more_than_case() -> None:
    names = models.names()
    assert names == sorted(names, key=str.lower)
    assert len({name.lower() for name in names}) == len(names)


@pytest.mark.parametrize("name", CALCULON_NAMES)
def test_calculons_values_are_unchanged(name: str) -> None:
    reference = json.loads((CALCULON / f"{name}.json").read_text())
    assert models.to_calculon(models.load(name)) == reference
    assert models.to_calculon(models.load(CALCULON / f"{name}.json")) == reference


def test_every_model_is_named_after_its_file_and_has_a_source() -> None:
    for name in models.names():
        model = models.load(name)
        assert model.name == name
        assert model.title, name
        assert model.family, name
        assert model.source, name
        assert model.not_represented, name
        assert model.calculon or model.seq_size_basis, name


def test_every_model_round_trips() -> None:
    for name in models.names():
        model = models.load(name)
        document = json.loads(json.dumps(models.to_document(model)))
        assert models.load_document(document) == model
        assert models.to_document(models.load_document(document)) == document


def test_recorded_shapes_have_the_published_number_of_parameters() -> None:
    published = {name: count for name in (*DENSE, *SPARSE) if (count := architecture_of(name).params_published_b)}
    assert len(published) >= 99
    differ = {name for name, count in published.items() if not agrees(parameters(architecture_of(name)) / 1e9, count)}
    assert differ == set(NOT_COMPARABLE)


@pytest.mark.parametrize("name", ["falcon-7B", "falcon-40B", "falcon-180B"])
def test_falcons_published_counts_hold_the_embedding_twice(name: str) -> None:
    architecture = architecture_of(name)
    counted = parameters(architecture) + embedding_weights(architecture)
    assert counted / 1e9 == pytest.approx(architecture.params_published_b, rel=0.003)


@pytest.mark.parametrize("name", [name for name in SPARSE if architecture_of(name).params_active_published_b])
def test_recorded_shape_has_the_published_number_of_active_parameters(name: str) -> None:
    architecture = architecture_of(name)
    published = architecture.params_active_published_b
    assert published is not None
    counted = active_parameters(architecture) / 1e9
    # authors count the embedding whole, or not at all, since a token reads one row of it
    without = counted - architecture.hidden * architecture.vocab_padded / 1e9
    if name in CUT_OFF:
        step = 0.1 if published < 10 else 10
        assert any(math.floor(each / step + 1e-9) * step == pytest.approx(published) for each in (counted, without))
    else:
        assert agrees(counted, published) or agrees(without, published)


@pytest.mark.parametrize(
    ("name", "exact"),
    # sizes of all tensors of the released weights, as their model cards or files print them
    [
        ("gpt2-small", 124_439_808),
        ("gpt2-xl", 1_557_611_200),
        ("pythia-12B", 11_846_072_320),
        ("llama-2-7B", 6_738_415_616),
        ("llama-3.1-8B", 8_030_261_248),
        ("qwen2.5-7B", 7_615_616_512),
        ("mistral-7B-v0.1", 7_241_732_096),
        ("mixtral-8x7B", 46_702_792_704),
        ("qwen3-30B-A3B", 30_532_122_624),
    ],
)
def test_parameters_to_the_last_one(name: str, exact: int) -> None:
    assert parameters(architecture_of(name)) == exact


def test_multi_token_prediction_of_deepseek_v3() -> None:
    # 11.5 B beside shared embedding and head: deepseek-ai/DeepSeek-V3, README_WEIGHTS.md
    assert prediction_parameters(architecture_of("deepseek-v3")) / 1e9 == pytest.approx(11.5, rel=0.01)
    assert prediction_parameters(architecture_of("kimi-k2")) == 0


def test_layer_patterns() -> None:
    maverick, gemma, oss = (architecture_of(name) for name in ("llama-4-maverick", "gemma-3-27B", "gpt-oss-120B"))
    assert maverick.expert_layers[:4] == (False, True, False, True)
    assert maverick.windows[:5] == (8192, 8192, 8192, None, 8192)
    assert gemma.windows.count(None) == 62 // 6
    assert oss.windows[:2] == (128, None)
    assert architecture_of("deepseek-v3").expert_layers == (False,) * 3 + (True,) * 58
    assert architecture_of("llama-3.1-8B").windows == (None,) * 32
    assert architecture_of("mistral-7B-v0.1").windows == (4096,) * 32


def test_block_weights_are_the_published_ones_but_for_key_value_heads() -> None:
    for name in [name for name in DENSE if models.load(name).calculon is None]:
        model = models.load(name)
        architecture = architecture_of(name)
        represented = 4 * model.hidden * model.attn_heads * model.attn_size + 2 * model.hidden * model.feedforward
        published = attention_weights(architecture) + mlp_weights(architecture)
        extra_heads = architecture.heads - architecture.kv_heads
        rounding = model.hidden if architecture.gated_mlp and architecture.ffn % 2 else 0
        assert represented - published == 2 * model.hidden * architecture.head_dim * extra_heads + rounding, name


@pytest.mark.parametrize("name", ["palm-540B", "lamda"])
def test_where_calculons_numbers_differ_from_the_published_shape_it_is_said(name: str) -> None:
    assert any("33.33 % fewer weights" in each for each in models.load(name).not_represented)


@pytest.mark.parametrize(
    ("name", "billions"),
    # sums of tensor sizes that the authors or Hugging Face print for the released weights
    [("qwen2.5-7B", 7.616), ("qwen3-8B", 8.191), ("gemma-2-9B", 9.242), ("mistral-7B-v0.1", 7.242), ("phi-4", 14.66)],
)
def test_parameters_of_released_weights(name: str, billions: float) -> None:
    assert parameters(architecture_of(name)) / 1e9 == pytest.approx(billions, rel=0.001)


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
