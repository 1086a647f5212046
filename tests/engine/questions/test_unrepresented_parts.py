"""What of a model no figure stands for is said, in the same words, wherever figures of it are given."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import models
from engine import questions
from engine.cli.main import app
from engine.cost_models.registry import named
from engine.planners.intra_operator.library import library_layers
from engine.serving import not_represented
from models import unrepresented

SIZES = ("h100_80g_sxm", "--procs", "64", "--max-batch", "64", "--datatype", "bfloat16", "--limit", "tensor_par=8")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def test_which_models_have_such_parts() -> None:
    names = {name for name in models.names() if unrepresented(models.load(name))}
    sparse = {
        name
        for name in models.names()
        if (a := models.load(name).architecture) is not None and a.sparse_attention is not None
    }
    assert {"deepseek-v3.2", "glm-5", "glm-5.2"} <= sparse
    assert {*sparse, "deepseek-v3", "llama-4-scout", "gemma-3-27B", "qwen3-vl-8B"} <= names
    assert not names & {"llama-3-70B", "gpt3-175B", "mixtral-8x7B", "kimi-k2", "qwen3-235B-A22B"}


@pytest.mark.parametrize("name", ["deepseek-v3.2", "glm-5", "deepseek-v3", "llama-4-scout", "llama-3-8B"])
def test_every_account_of_a_model_has_them(name: str) -> None:
    model = models.load(name)
    for account in (
        named("calibrated").words.neglected(model),
        not_represented(model),
        library_layers(model, batch=1, layers=1)[2],
    ):
        assert set(unrepresented(model)) <= set(account)


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, models.Model]:
    """A small model of one's own with everything that figures leave out."""
    model = models.edited(
        models.load("deepseek-v3.2"),
        {
            "architecture.layers": 8,
            "architecture.experts.routed": 16,
            "architecture.experts.groups": 1,
            "architecture.experts.groups_per_token": 1,
            "architecture.vocab": 4096,
            "architecture.vocab_padded": 4096,
        },
        name="mine",
    ).model_copy(update={"left_out": ("The vision tower is left out.",)})
    file = tmp_path_factory.mktemp("own") / "mine.json"
    file.write_text(json.dumps(models.to_document(model)), "utf-8")
    return file, models.load(file)


def test_every_command_says_them(own: tuple[Path, models.Model], tmp_path: Path) -> None:
    file, model = own
    parts = unrepresented(model)
    assert len(parts) == 2

    found = run("best", str(file), *SIZES, "--json")
    document = json.loads(found.stdout)
    assert document["not_represented"] == list(parts)
    executions = tmp_path / "best.json"
    executions.write_text(found.stdout, "utf-8")
    row = tmp_path / "row.json"
    row.write_text(json.dumps(document["top"][0]), "utf-8")
    assert json.loads(run("explore", str(file), *SIZES, "--json").stdout)["not_represented"] == list(parts)
    exported = json.loads(run("export", str(executions), "--to", "torchtitan", "--json").stdout)
    assert all(any(part in remark for remark in exported["remarks"]) for part in parts)
    for arguments in (
        ("best", str(file), *SIZES),
        ("explore", str(file), *SIZES),
        ("evaluate", str(file), "h100_80g_sxm", str(row)),
        ("layers", str(file), "h100_80g_sxm", str(row)),
        ("models", "show", str(file)),
        ("inference", str(file), "h100_80g_sxm", "--procs", "8", "--prompt", "1000", "--output", "100"),
    ):
        said = run(*arguments)
        assert all(part in said.output for part in parts), (arguments, said.output)


def test_a_configuration_that_is_imported_says_them(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    config = {
        "model_type": "mistral3",
        "vision_config": {"hidden_size": 1024},
        "text_config": {
            "model_type": "mistral",
            "hidden_size": 4096,
            "intermediate_size": 14336,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "vocab_size": 32768,
            "max_position_embeddings": 32768,
            "sliding_window": None,
        },
    }
    file.write_text(json.dumps(config), "utf-8")
    sentence = (
        "Only the language model is counted: what reads images or sound is left out "
        "(key 'vision_config.num_attention_heads' is missing)."
    )
    assert sentence in run("import", str(file)).stdout
    assert json.loads(run("import", str(file), "--json").stdout)["not_represented"] == [sentence]


@pytest.mark.parametrize("verb", ["best", "explore", "recommend", "list_parameters"])
def test_every_verb_about_a_scenario_answers_with_them(own: tuple[Path, models.Model], verb: str) -> None:
    scenario: dict[str, Any] = {
        "model": models.to_document(own[1]),
        "system": "h100_80g_sxm",
        "num_procs": 64,
        "max_batch_size": 64,
        "datatype": "bfloat16",
        "limits": {"tensor_par": 8, "pipeline_par": 1},
    }
    answer = questions.answer(verb, {"scenario": scenario})
    assert answer["not_represented"] == list(unrepresented(own[1]))
    assert models.load_document(answer["model_document"], "again") == own[1]
    answer = questions.answer(verb, {"scenario": {**scenario, "model": "llama-3-8B"}})
    assert (answer["not_represented"], answer["model_document"]) == ([], None)


def test_what_best_prints_of_a_model_of_ones_own_is_exported_without_naming_it(
    own: tuple[Path, models.Model], tmp_path: Path
) -> None:
    made = tmp_path / "best.json"
    made.write_text(run("best", str(own[0]), *SIZES, "--json").stdout, "utf-8")
    written = run("export", str(made), "--to", "torchtitan", "--json")
    assert written.exit_code == 0, written.output
    beside = run("export", str(made), "--to", "torchtitan", "--json", "--model", str(own[0]))
    assert json.loads(written.stdout) == json.loads(beside.stdout)
    document = json.loads(made.read_text("utf-8"))
    made.write_text(json.dumps({**document, "model_document": {"hidden": 1}}), "utf-8")
    assert "model_document" in run("export", str(made), "--to", "torchtitan").stderr
