"""Deployments written and read through Python, the commands, JSON and MCP's schemas: the same everywhere."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from engine import launch, serving
from engine.questions import VERBS, answer

Shell = Callable[..., tuple[int, str, str]]
MODEL, SYSTEM = "llama-3-8B", "h100_80g_sxm"


def ask(verb: str, question: dict[str, Any]) -> dict[str, Any]:
    Draft202012Validator(VERBS[verb].question_schema()).validate(question)
    found = answer(verb, question)
    Draft202012Validator(VERBS[verb].answer_schema()).validate(json.loads(json.dumps(found)))
    return found


def test_the_best_deployment_is_written_alike_and_read_back_with_its_figures(shardscape: Shell, tmp_path: Path) -> None:
    found = answer(
        "find_deployments",
        {"model": MODEL, "system": SYSTEM, "num_procs": 4, "prompt": 1000, "output": 200, "limits": {"kv_bits": [8]}},
    )
    best = found["best"]
    question = {"deployment": best, "model": MODEL, "target": "kubernetes", "settings": {"chunk": 4096}}
    made = ask("export_deployment", question)
    python = launch.write_deployment(best, MODEL, to="kubernetes", settings={"chunk": 4096})
    assert made["files"] == python.texts
    served = tmp_path / "served.json"
    served.write_text(json.dumps(found), "utf-8")
    code, out, _ = shardscape("export", served, "--to", "kubernetes", "--setting", "chunk=4096", "--json")
    assert (code, json.loads(out)) == (0, made)
    assert shardscape("export", served, "--to", "kubernetes", "--setting", "chunk=4096", "--out", tmp_path)[0] == 0
    file = tmp_path / "deployment.yaml"
    assert file.read_text("utf-8") == made["files"]["deployment.yaml"]

    stated = {"prompt": 1000, "output": 200} | {
        name: best[name] for name in made["unsaid"] if name in ("weight_bits", "kv_bits")
    }
    asked = {"text": file.read_text("utf-8"), "name": file.name, "stated": stated, "system": SYSTEM}
    read = ask("import_deployment", asked)
    assert read["deployment"] == {name: best[name] for name in read["deployment"]}
    assert (read["model_name"], read["num_procs"], read["chunk"], read["left"]) == (MODEL, 4, 4096, [])
    figures = read["figures"]["deployment"]
    assert figures["status"] == "ok"
    table = {name: [value] for name, value in read["deployment"].items()}
    (row,) = serving.evaluate(MODEL, SYSTEM, table | _engine_column(read)).to_dict("records")
    assert figures["tokens_per_s"] == row["tokens_per_s"]
    options = [word for name, value in stated.items() for word in ("--set", f"{name}={value}")]
    code, out, _ = shardscape("import", file, "--system", SYSTEM, *options, "--json")
    assert (code, json.loads(out)) == (0, read)
    code, out, told = shardscape("import", file)
    assert code == 0
    assert "Tensor parallel" in out
    assert "Left to other sources" in told


def _engine_column(read: dict[str, Any]) -> dict[str, list[str]]:
    has_engine = any(column.name == "engine" for column in serving.FIELDS)
    return {"engine": [read["engine"]]} if has_engine else {}


def test_a_deployment_of_options_needs_no_file(shardscape: Shell) -> None:
    fields = ("--set", "tensor_par=1", "--set", "expert_par=8", "--set", "replicas=8", "--set", "batch=64")
    code, out, told = shardscape("export", "--to", "sglang", "--model", "deepseek-v3", *fields)
    assert code == 0
    assert "--attn-dp-size 8" in out
    assert "--max-running-requests 512" in out
    assert "SGLang" in told


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("export", "--to", "vllm"), "give it with --model"),
        (("export", "--to", "vlm", "x.json"), "did you mean vllm"),
        (("export", "--to", "megatron"), "Name the file"),
        (("export", "--to", "megatron", "x.json", "--engine", "vllm"), "about deployments"),
        (("export", "--to", "vllm", "--model", MODEL, "--nodes", "2"), "--gpus-per-node"),
        (("export", "--to", "vllm", "--model", MODEL, "--set", "tensor_par=5"), "must divide the 32 query heads"),
        (("export", "--to", "vllm", "--model", MODEL, "--set", "tensor_par=1", "--setting", "chunk=no"), "chunk"),
        (("import", "{file}", "--system", SYSTEM), "State them with --set"),
        (("import", "{file}", "--set", "promt=1"), "did you mean 'prompt'"),
        (("import", "{file}", "--env", "TP=x"), "must be a whole number"),
        (("import", "{file}", "--engine", "vlm"), "did you mean 'vllm'"),
    ],
)
def test_a_wrong_command_is_one_sentence(
    shardscape: Shell, tmp_path: Path, arguments: tuple[str, ...], told: str
) -> None:
    file = tmp_path / "serve.sh"
    file.write_text("vllm serve meta-llama/Meta-Llama-3-8B-Instruct -tp ${TP:-1}\n", "utf-8")
    code, out, error = shardscape(*(each.replace("{file}", str(file)) for each in arguments))
    assert code != 0
    assert told in error.replace("\n", " ")
    assert "Traceback" not in out + error
