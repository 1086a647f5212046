"""The commands `export` and `import`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from engine import launch
from engine.cli.main import app
from tests.engine.launch.test_megatron import DENSE


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


@pytest.mark.parametrize("framework", ["megatron", "megatron-bridge"])
def test_an_exported_execution_is_imported_as_it_was(framework: str, tmp_path: Path) -> None:
    asked = tmp_path / "best.json"
    asked.write_text(json.dumps({"model": "llama-3-70B", "top": [DENSE]}), "utf-8")
    assert run("export", str(asked), "--to", framework, "--out", str(tmp_path / "made")).exit_code == 0
    (made,) = (tmp_path / "made").iterdir()
    assert run("export", str(asked), "--to", framework).stdout.strip() == made.read_text("utf-8").strip()
    again = tmp_path / "execution.json"
    told = json.loads(run("import", str(made), "--json", "--out", str(again)).stdout)
    assert (told["model_name"], told["num_procs"], told["unread"], told["refused"]) == ("llama-3-70B", 64, [], "")
    assert DENSE.items() <= told["execution"].items()
    assert DENSE.items() <= json.loads(again.read_text("utf-8")).items()


def test_of_a_configuration_of_hugging_face_the_model_is_told(tmp_path: Path) -> None:
    config = {
        "model_type": "llama",
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 128256,
        "max_position_embeddings": 8192,
    }
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config), "utf-8")
    told = run("import", str(file)).stdout
    assert "llama-3-8B of the library" in told
    assert f"shardscape best {file} h100_80g_sxm" in told
    assert json.loads(run("import", str(file), "--json").stdout)["model_name"] == "llama-3-8B"
    file.write_text(json.dumps({**config, "model_type": "unheard_of"}), "utf-8")
    assert "'unheard_of' is not among the families" in run("import", str(file)).stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("export", "{e}", "--to", "megatorn", "--model", "llama-3-70B"), "did you mean megatron?"),
        (("export", "{e}", "--to", "megatron"), "give it with --model"),
        (("export", "{e}", "--to", "megatron", "--model", "llama-3-70B", "--nodes", "7"), "give a divisor of 64"),
        (("import", "{e}"), "is no launch configuration that is known here"),
        (("import", "nowhere.sh"), "does not exist"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(arguments: tuple[str, ...], told: str, tmp_path: Path) -> None:
    execution = tmp_path / "execution.json"
    execution.write_text(json.dumps(DENSE), "utf-8")
    found = run(*(each.format(e=execution) for each in arguments))
    assert found.exit_code == 2
    assert told in " ".join(found.stderr.split())
    assert "Traceback" not in found.stderr


@pytest.mark.parametrize("framework", ["megatron", "megatron-bridge", "torchtitan", "deepspeed", "maxtext"])
def test_the_recommended_execution_is_written_unless_another_is_asked_for(framework: str, tmp_path: Path) -> None:
    asked = tmp_path / "best.json"
    rows = [{**DENSE, "batch_size": size} for size in (256, 512, 1024)]
    document = {"model": "llama-3-70B", "top": rows[:2], "recommended": {"execution": rows[2]}}

    def batch(*options: str) -> tuple[int, str]:
        made = run("export", str(asked), "--to", framework, "--nodes", "8", *options)
        assert made.exit_code == 0, made.stderr
        found = (
            launch.read_text(made.stdout, "launch.sh" if framework != "deepspeed" else "ds_config.json")
            if framework not in ("deepspeed", "megatron-bridge")
            else None
        )
        told = json.loads(run("export", str(asked), "--to", framework, "--nodes", "8", "--json", *options).stdout)
        back = launch.read_flags(framework, told["flags"], gpus=64).execution["batch_size"]
        assert found is None or found.execution["batch_size"] == back
        assert told["written"] in made.stderr
        assert told["written"] in made.stdout.replace("\n# ", " ")
        return back, told["written"]

    asked.write_text(json.dumps(document), "utf-8")
    assert batch() == (1024, "The recommended execution is written; --fastest writes the fastest.")
    assert batch("--fastest")[0] == 256
    assert batch("--fastest")[1].startswith("The fastest execution is written")
    assert batch("--row", "1") == (512, "Row 1 of the fastest is written.")
    asked.write_text(json.dumps({**document, "recommended": rows[2]}), "utf-8")  # as the verb answers it
    assert batch()[0] == 1024
    shown = {"figures_of": "recommended", "remark": "", "execution": rows[2]}  # as `best` and `explore` print it
    asked.write_text(json.dumps({"model": "llama-3-70B", "top": rows[:2], "shown": shown}), "utf-8")
    assert batch() == (1024, "The recommended execution is written; --fastest writes the fastest.")
    assert batch("--fastest")[0] == 256
    asked.write_text(json.dumps({"model": "llama-3-70B", "top": rows}), "utf-8")
    assert batch() == (256, "")
    asked.write_text(json.dumps({**document, "recommended": {"execution": None}}), "utf-8")
    refused = run("export", str(asked), "--to", framework)
    assert refused.exit_code == 2
    assert "recommends no execution; --fastest writes the fastest" in " ".join(refused.stderr.split())
    assert batch("--fastest")[0] == 256
