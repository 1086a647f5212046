"""FLOP per token of published models, from what each kind of layer says, against counts of their own modules."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import models
from models import LayerPattern
from models.patterns import pattern_of
from models.token_flops import pattern_flops, token_flops

DATA = Path(__file__).parent / "data"
FLOPS = json.loads((DATA / "published_flops.json").read_text())
CONFIGURATIONS = {
    row["name"]: row["config"] for row in json.loads((DATA / "published_configurations.json").read_text())["rows"]
}
LIBRARY = {"gpt-oss-120b": "gpt-oss-120B"}
"""Rows whose configuration is the library's."""
UNREAD = {"mistral-large-4-1T-A52B"}
PROJECTIONS_LEFT_OUT = {"lfm2-1.2B": 10 * 4 * 2048**2}
"""Weights of the products around short convolutions, which the count of the modules took for convolutions: three h x h
before and one after each of 10."""
WORDS: dict[str, dict[str, dict[str, int]]] = {
    "gpt-oss-120b": {"window_attention": {"window": 18}, "attention": {"full": 18}},
    "deepseek-v3.2": {"dsa_full": {"mla on top 2048, expanded": 61, "indexer scores": 61}},
    "glm-5.2": {
        "dsa_full": {"mla on top 2048, expanded": 21, "indexer scores (21 layers)": 21},
        "dsa_shared": {"mla on top 2048, expanded": 57},
    },
    "deepseek-v4-flash": {
        "v4_window": {"window of 128": 2},
        "csa": {"window of 128": 21, "csa, top 512 of s/4": 21, "indexer over s/4": 21},
        "hca": {"window of 128": 20, "hca, s/128": 20},
    },
}
"""By kind of layer, the parts of the row's attention and in how many layers it has them."""


def read(name: str) -> models.Model:
    return models.load(LIBRARY[name]) if name in LIBRARY else models.from_hugging_face(CONFIGURATIONS[name])


def pattern(model: models.Model) -> LayerPattern:
    return model.layers or pattern_of(model.architecture_or_assumed())


def mixing_by_word(found: LayerPattern, tokens: int, causal: bool) -> Counter[str]:
    sums: Counter[str] = Counter()
    for block, count in found.counted_blocks():
        for each in block.mixers:
            sums[each.word] += count * each.count_mixing_flops(found.hidden, tokens, causal=causal)
    return sums


@pytest.mark.parametrize("row", FLOPS["rows"], ids=lambda row: row["name"])
def test_flops_per_token_are_those_counted_on_the_modules(row: dict[str, Any]) -> None:
    model = read(row["name"])
    for length, expected in row["lengths"].items():
        found = pattern_flops(pattern(model), int(length))
        assert (found.weights, found.head) == (row["products"], row["head"])
        assert (found.attention, found.causal_attention) == (expected["full"], expected["causal"])
        assert (found.forward("full"), found.forward("causal")) == (
            expected["forward_full"],
            expected["forward_causal"],
        )
        assert found.scan == sum(each["chunked"] for each in row["scan"].values())
        own = token_flops(model.model_copy(update={"seq_size": int(length)}))
        assert own == found


@pytest.mark.parametrize("row", FLOPS["rows"], ids=lambda row: row["name"])
def test_each_kind_has_its_parts_of_attention_and_its_scan(row: dict[str, Any]) -> None:
    found = pattern(read(row["name"]))
    for length, expected in row["lengths"].items():
        for place, causal in ((1, False), (2, True)):
            sums = mixing_by_word(found, int(length), causal)
            for word, parts in WORDS.get(row["name"], {}).items():
                each = (
                    layers * expected["parts"][part][place] / expected["parts"][part][0]
                    for part, layers in parts.items()
                )
                assert sums[word] == pytest.approx(sum(each), rel=1e-12)
            for word, scan in row["scan"].items():
                assert sums[word] == scan["chunked"]
    for word, scan in row["scan"].items():
        steps = sum(
            count * each.decoding(found.hidden, 100_000).matrix
            for block, count in found.counted_blocks()
            for each in block.mixers
            if each.word == word
        )
        assert steps == scan["recurrent"]


@pytest.mark.parametrize("name", [name for name in FLOPS["products_per_token"] if name not in UNREAD])
def test_products_sum_to_the_matrix_weights_that_a_token_passes(name: str) -> None:
    expected = FLOPS["products_per_token"][name] + PROJECTIONS_LEFT_OUT.get(name, 0)
    assert models.parameter_counts(read(name)).products == expected


def test_parameter_count_of_a_pattern_is_that_of_its_layers() -> None:
    from models.token_flops import parameter_count

    assert parameter_count(read("qwen3-next-80B-A3B")) == models.parameter_counts(read("qwen3-next-80B-A3B")).total


def test_a_trained_prediction_layer_scores_the_context_with_its_own_indexer() -> None:
    plain = models.load("deepseek-v3.2")
    trained = models.edited(plain, {"architecture.trained_prediction_layers": 1})
    pair = 2 * 128 * (192 + 128) * min(2048, plain.seq_size) + 2 * 64 * 128 * plain.seq_size
    assert token_flops(trained).attention - token_flops(plain).attention == pair
