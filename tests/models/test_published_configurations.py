"""Configurations of published models: every weight, and every byte kept of a sequence, as their own modules count."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import models

ROWS = json.loads((Path(__file__).parent / "data" / "published_configurations.json").read_text())["rows"]
UNREAD = {"mistral-large-4-1T-A52B"}
"""Its modules hold 12,480 weights per layer more than its published description explains."""
MEASURED_OTHERWISE = {"kimi-linear-48B-A3B": {"state_bytes_per_sequence"}}
"""The row counts 4,096 elements of state per layer; 32 heads of 128 x 128 hold 524,288 (Kimi Linear, section 2)."""
FIGURES = (
    "total",
    "active",
    "embedding",
    "lm_head",
    "layer_kinds",
    "cache_bytes_per_token",
    "window_bytes_per_sequence",
    "state_bytes_per_sequence",
)


def read(row: dict[str, Any], tmp_path: Path) -> models.Model:
    path = tmp_path / "published.json"
    path.write_text(json.dumps(row["config"]))
    return models.load(path)


@pytest.mark.parametrize("row", [row for row in ROWS if row["name"] not in UNREAD], ids=lambda row: row["name"])
def test_counts_are_those_of_the_published_modules(row: dict[str, Any], tmp_path: Path) -> None:
    found = models.parameter_counts(read(row, tmp_path))
    expected = {name: row[name] for name in FIGURES if name not in MEASURED_OTHERWISE.get(row["name"], ())}
    assert {name: getattr(found, name) for name in expected} == expected


def test_a_pattern_survives_as_a_document(tmp_path: Path) -> None:
    found = [read(row, tmp_path) for row in ROWS if row["name"] not in UNREAD]
    assert [models.load_document(json.loads(json.dumps(models.to_document(each)))) for each in found] == found


def test_an_unread_family_is_named_with_the_families_that_are_read(tmp_path: Path) -> None:
    for row in ROWS:
        if row["name"] in UNREAD:
            with pytest.raises(models.ModelFileError, match="'mistral_large4_text' is not among the families"):
                read(row, tmp_path)


@pytest.mark.parametrize("name", models.names())
def test_a_library_model_has_the_weights_of_its_pattern(name: str) -> None:
    model = models.load(name)
    if model.architecture is None:
        with pytest.raises(models.ModelFileError, match="block numbers only"):
            models.parameter_counts(model)
        return
    counts = models.parameter_counts(model)
    assert sum(counts.layer_kinds.values()) == model.architecture.layers
    assert counts.products < counts.active <= counts.total


@pytest.mark.parametrize(
    ("name", "key", "value", "words"),
    [
        ("qwen3-next-80B-A3B", "layer_types", ["linear_attention"], "has 1 entries for 48 layers"),
        ("qwen3-next-80B-A3B", "layer_types", ["quantum_attention"] * 48, "'quantum_attention'; it may have"),
        ("nemotron-3-nano-30B-A3B", "hybrid_override_pattern", "MEX", "must be text of M, \\*, - and E"),
        ("nemotron-3-nano-30B-A3B", "hybrid_override_pattern", "ME*", "has 3 layers and 'num_hidden_layers' says 52"),
        ("nemotron-3-nano-30B-A3B", "moe_intermediate_size", None, "key 'moe_intermediate_size' is missing"),
        (
            "kimi-linear-48B-A3B",
            "linear_attn_config",
            {"kda_layers": [1], "full_attn_layers": []},
            "each of the layers",
        ),
        ("bamba-9B", "attn_layer_indices", [99], "from 0 to 31"),
        ("bamba-9B", "mamba_d_head", 65, "are not the 8192 elements"),
        ("jamba-v0.1", "num_hidden_layers", 10**6, "must be from 1 to 10,000"),
        ("step-3.7-flash", "attention_other_setting", None, "'attention_other_setting' is missing"),
        ("deepseek-v4-flash", "compress_ratios", [7] * 43, "must have 0, 4 or 128"),
        ("hunyuan-A13B", "moe_topk", [8] * 31 + [4], "the same one for each of 32 layers"),
        ("exaone-4.0-32B", "layer_types", ["sliding_attention"] * 63 + ["odd"], "only full, sliding and chunked"),
    ],
)
def test_a_wrong_pattern_is_one_sentence_with_key_and_value(
    name: str, key: str, value: Any, words: str, tmp_path: Path
) -> None:
    row = next(each for each in ROWS if each["name"] == name)
    config = dict(row["config"])
    if value is None:
        del config[key]
    else:
        config[key] = value
    with pytest.raises(models.ModelFileError, match=words) as found:
        read({"config": config}, tmp_path)
    assert str(found.value).count("\n") == 0
