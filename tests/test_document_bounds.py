"""Bounds on text of unknown origin hold at every door: digits of numbers, parts of keys, depth, in linear time."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from starlette.testclient import TestClient
from typer.testing import CliRunner

from engine import questions
from engine.cli.main import app
from engine.columns import FIELDS
from models.documents import DocumentError, check_numbers, check_toml_keys

LONG = "9" * 5_000
MODEL = json.dumps({"format": "shardscape-model/1", "name": "a", "seq_size": 1}).replace("1}", f"{LONG}}}")
FILES = {
    "deepspeed.json": ("import", f'{{"train_batch_size": {LONG}}}'),
    "config.json": ("import", f'{{"model_type": "llama", "hidden_size": {LONG}}}'),
    "train.sh": ("import", f"torchrun pretrain_gpt.py --tensor-model-parallel-size {LONG}\n"),
    "train.toml": ("import", f"[parallelism]\ntensor_parallel_degree = {LONG}\n"),
    "hexadecimal.toml": ("import", f"[parallelism]\ntensor_parallel_degree = 0x{'f' * 5_000}\n"),
    "underscores.toml": ("import", f"[parallelism]\ntensor_parallel_degree = {'1_0' * 2_000}\n"),
    "train.yaml": ("import", f"base_config: base.yml\nper_device_batch_size: {LONG}\n"),
    "recipe.py": ("import", f"recipe.trainer.devices = {LONG}\n"),
    "model.json": ("models show", MODEL),
    "system.json": ("systems show", f'{{"matrix": {LONG}}}'),
    "study.json": ("codesign --count", f'{{"models": {LONG}}}'),
    "scenario.json": ("best --scenario", f'{{"num_procs": {LONG}}}'),
    "rows.json": ("evaluate llama-3-8B h100_80g_sxm", f'[{{"tensor_par": {LONG}}}]'),
    "best.json": ("export --to megatron", f'{{"model": "llama-3-8B", "top": [{{"tensor_par": {LONG}}}]}}'),
}


@pytest.mark.parametrize("name", FILES)
def test_a_number_of_thousands_of_digits_is_one_sentence(name: str, tmp_path: Path) -> None:
    command, text = FILES[name]
    file = tmp_path / name
    file.write_text(text, "utf-8")
    found = CliRunner().invoke(app, [*command.split(), str(file)])
    assert found.exit_code == 2, found.output
    assert "digits" in found.stderr
    assert len(found.output.strip().splitlines()) == 1


def test_cells_of_a_table_make_their_row_invalid(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text(",".join(each.name for each in FIELDS) + "\n" + ",".join(LONG for _ in FIELDS) + "\n", "utf-8")
    found = CliRunner().invoke(app, ["evaluate", "llama-3-8B", "h100_80g_sxm", str(file)])
    assert found.exit_code == 1
    assert "1 are invalid" in found.stderr


@pytest.mark.parametrize("option", ["--procs", "--max-batch", "--limit", "--top"])
def test_options_too(option: str) -> None:
    sizes = {"--procs": "8", "--max-batch": "8", "--datatype": "bfloat16"}
    sizes[option] = f"tensor_par={LONG}" if option == "--limit" else LONG
    words = [word for pair in sizes.items() for word in pair]
    found = CliRunner().invoke(app, ["best", "llama-3-8B", "h100_80g_sxm", *words])
    assert found.exit_code == 2, found.output
    assert LONG not in found.output


def test_a_body_of_the_api_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from starlette.applications import Starlette

    from dashboard.settings import Settings
    from dashboard.shell.json_api import JsonApi, routes

    made = JsonApi(Settings(store=None, api=True))
    try:
        client = TestClient(Starlette(routes=routes(made)), base_url="http://localhost")
        body = f'{{"scenario": {{"num_procs": {LONG}}}}}'
        answer = client.post("/api/best", content=body, headers={"Content-Type": "application/json"})
        assert answer.status_code == 400
        assert "has a number of 5,000 digits" in answer.text
    finally:
        made.answerer.close()


def test_a_question_says_it_too() -> None:
    with pytest.raises(questions.QuestionError, match="num_procs"):
        questions.answer(
            "best",
            {
                "scenario": {
                    "model": "llama-3-8B",
                    "system": "h100_80g_sxm",
                    "num_procs": 10**4_000,
                    "max_batch_size": 8,
                    "datatype": "bfloat16",
                }
            },
        )


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a." * 49 + "a = 1", 0),
        ("a." * 50 + "a = 1", 51),
        ('"a.b" . ' * 60 + "a = 1", 61),
        ("[" + "a." * 20_000 + "a]", 20_001),
        ("x = {" + "a." * 60 + "a = 1}", 61),
        ('x = "' + "a." * 100 + '"', 0),
        ("# " + "a." * 100, 0),
        ("x = [" + "1.5, " * 100 + "1.5]", 0),
        ('x = """\n' + "a." * 100 + '\n"""', 0),
        ('x = {a = """q"""", ' + "b." * 60 + "b = 1}", 61),
        ("x = '''\n\"\"\"'''\n" + "a." * 60 + "a = 1", 61),
        ("x = 'a\\'\n" + "a." * 60 + "a = 1", 61),
    ],
)
def test_dotted_keys_are_counted_as_toml_counts_them(text: str, parts: int) -> None:
    if not parts:
        check_toml_keys(text, "a.toml", DocumentError)
        return
    with pytest.raises(DocumentError, match=f"has a key of {parts:,} parts in line"):
        check_toml_keys(text, "a.toml", DocumentError)


@pytest.mark.parametrize(
    "text",
    [
        "a." * 10**6,
        '"""\\' * 500_000,
        "'''a" * 500_000,
        '"' * 2_000_000,
        "9_" * 400 + "x" * 10**6,
        "12:" * 10**6,
        "0x" * 10**6,
        "x9" * 10**6,
        "_" * 2_000_000,
    ],
    ids=lambda text: text[:5],
)
def test_the_time_is_linear(text: str) -> None:
    started = time.perf_counter()
    for check in (check_toml_keys, check_numbers):
        try:
            check(text, "a.toml", DocumentError)
        except DocumentError:
            continue
    assert time.perf_counter() - started < 10.0
