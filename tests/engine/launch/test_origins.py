"""Where every value of a reading comes from: stated, a documented default, or unknown and then left open."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from engine import launch
from engine.cli.main import app
from engine.columns import ALL_FIELDS
from engine.launch import UnknownValue
from engine.launch.shapes import SHAPE_WORDS
from tests.engine.launch import fixtures

FIXTURES = [
    pytest.param({"megatron-lm": "megatron"}.get(each["framework"], each["framework"]), each, id=each["id"])
    for each in fixtures.ALL
]
ROWS = {column.name for column in ALL_FIELDS} | set(SHAPE_WORDS)


def leaves(flags: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The path of every value of flags, which are nested for DeepSpeed."""
    for key, value in flags.items():
        if isinstance(value, Mapping):
            yield from leaves(value, (*path, key))
        else:
            yield (*path, key)


def replaced(flags: Mapping[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any]:
    first, *rest = path
    return {**flags, first: replaced(flags[first], tuple(rest), value) if rest else value}


def values_of(reading: launch.LaunchReading) -> dict[str, Any]:
    return {**reading.model, **reading.execution}


@pytest.mark.parametrize(("framework", "fixture"), FIXTURES)
def test_every_value_has_an_origin_and_what_is_unknown_opens_what_depends_on_it(
    framework: str, fixture: dict[str, Any]
) -> None:
    flags, gpus = fixture["flags"], fixture["gpus"]["count"]
    whole = launch.read_flags(framework, flags, gpus=gpus)
    values = values_of(whole)
    assert set(values) <= set(whole.origins) <= ROWS
    assert {whole.origins[name].kind for name in values} <= {"stated", "default"}
    assert all(whole.origins[name].kind == "unknown" for name in set(whole.origins) - set(values))
    named = " ".join(each.words for each in whole.origins.values() if each.kind == "stated")
    for path in leaves(flags):
        unknown = UnknownValue("$ELSEWHERE", 7, "run.sh")
        found = launch.read_flags(framework, replaced(flags, path, unknown), gpus=gpus)
        rest = values_of(found)
        # Nothing is filled in: a value that stays is the one it was, and what is open says why.
        for name, value in rest.items():
            if name in values:
                assert value == values[name] or found.origins[name] == whole.origins[name], (path, name)
        lost = set(values) - set(rest)
        assert lost <= set(found.open_fields) | {"schedule"}, path
        for name in lost & set(found.open_fields):
            assert "$ELSEWHERE" in found.open_fields[name].words, (path, name)
            assert (found.open_fields[name].line, found.open_fields[name].file) == (7, "run.sh")
        # What a flag alone states is open without it.
        alone = {name for name, each in whole.origins.items() if each.kind == "stated" and each.words == ".".join(path)}
        assert alone & set(values) <= lost | {name for name in rest if rest[name] == values.get(name)}, path
        told = lost or ".".join(path) not in named
        assert told or found.remarks != whole.remarks or found.refused != whole.refused or rest == values, path


@pytest.mark.parametrize(("framework", "fixture"), FIXTURES)
def test_a_missing_degree_or_batch_is_asked_for_and_stating_it_gives_the_same(
    framework: str, fixture: dict[str, Any]
) -> None:
    flags, gpus = fixture["flags"], fixture["gpus"]["count"]
    whole = launch.read_flags(framework, flags, gpus=gpus)
    for name in ("tensor_par", "pipeline_par", "expert_par", "microbatch_size"):
        origin = whole.origins.get(name)
        if origin is None or origin.kind != "stated" or origin.words not in flags:
            continue
        unknown = {**flags, origin.words: UnknownValue("$X")}
        found = launch.read_flags(framework, unknown, gpus=gpus)
        assert name not in found.execution
        with pytest.raises(launch.OpenFieldsError) as asked:
            launch.evaluable(found)
        values = {each: whole.execution[each] for each in asked.value.fields}
        stated = launch.read_flags(framework, unknown, gpus=gpus, stated=values)
        assert stated.execution == whole.execution
        assert {stated.origins[each].words for each in values} == {"--set"}


def test_flags_are_named_only_where_they_are_stated_with_their_line(tmp_path: Path) -> None:
    script = (
        "GPUS=8\ntorchrun --nproc_per_node $GPUS --nnodes 1 pretrain_gpt.py \\\n  --tensor-model-parallel-size 2 \\\n"
        "  --num-layers 8 --hidden-size 64 --num-attention-heads 4 --seq-length 128 --micro-batch-size 1 \\\n"
        "  --global-batch-size 8 --bf16\n"
    )
    file = tmp_path / "run.sh"
    file.write_text(script, "utf-8")
    found = launch.read(file)
    assert found.origins["tensor_par"].words == "--tensor-model-parallel-size"
    assert found.origins["pipeline_par"] == launch.Origin("default", "default of Megatron-LM")
    told = CliRunner().invoke(app, ["import", str(file)]).stdout
    assert "--pipeline-model-parallel-size" not in told
    assert "default of Megatron-LM" in told
    origins = json.loads(CliRunner().invoke(app, ["import", str(file), "--json"]).stdout)["origins"]
    assert origins["pipeline_par"]["kind"] == "default"
    assert origins["datatype"]["kind"] == "stated"


UNKNOWN: list[tuple[str, str, str]] = [
    (
        "nemo.yaml",
        "trainer: {devices: 8, num_nodes: 1}\nmodel: {tensor_model_parallel_size: '${oc.env:TP}', "
        "micro_batch_size: 1, global_batch_size: 8, num_layers: 8}\n",
        "tensor_par",
    ),
    (
        "nemo.yaml",
        "trainer: {devices: 8, num_nodes: !ENV N}\nmodel: {tensor_model_parallel_size: 2, num_layers: 8}\n",
        "num_procs",
    ),
    (
        "test.yml",
        "MODEL_ARGS:\n  --num-layers: 8\n  --hidden-size: 64\n  --tensor-model-parallel-size: {{ tp }}\n"
        "  --micro-batch-size: 1\n",
        "tensor_par",
    ),
    (
        "mt.yml",
        "base_config: base.yml\nremat_policy: '{{ policy }}'\nici_fsdp_parallelism: 8\n"
        "per_device_batch_size: 1\ndcn_data_parallelism: 1\n",
        "activation_recompute",
    ),
    (
        "titan.toml",
        "[model]\nname = 'llama3'\nflavor = '8B'\n[training]\nseq_len = 4096\n[parallelism]\n"
        "tensor_parallel_degree = '${TP}'\n",
        "tensor_par",
    ),
    ("ds.json", '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": "auto"}}', "zero_stage"),
    (
        "r.py",
        "cfg.model.tensor_model_parallel_size = int(os.environ['TP'])\ncfg.train.micro_batch_size = 1\n",
        "tensor_par",
    ),
    (
        "r.py",
        "cfg.model.tensor_model_parallel_size = 2\ncfg.model.recompute_granularity = f'{kind}'\n",
        "activation_recompute",
    ),
    (
        "r.py",
        "cfg.model.tensor_model_parallel_size = 2\nif fast:\n    cfg.model.tensor_model_parallel_size = 4\n",
        "tensor_par",
    ),
    ("r.py", "cfg.model.tensor_model_parallel_size = 2\ncfg.mixed_precision = precision_of(args)\n", "datatype"),
]


@pytest.mark.parametrize(("name", "text", "field"), UNKNOWN, ids=[f"{name}-{field}" for name, _, field in UNKNOWN])
def test_expressions_of_other_programs_are_unknown_not_defaults(name: str, text: str, field: str) -> None:
    found = launch.read_text(text, name)
    assert field not in found.execution
    assert field in found.open_fields
    assert field in found.left


def test_words_that_are_not_at_hand_leave_open_what_they_may_say() -> None:
    flags = {
        "--tensor-model-parallel-size": "1",
        "--expert-model-parallel-size": "8",
        "--micro-batch-size": "1",
        "--global-batch-size": "64",
        "--bf16": True,
    }
    model = launch.read_flags("megatron", {**flags, "${MODEL_ARGS[@]}": UnknownValue("${MODEL_ARGS[@]}", 3)}, gpus=32)
    assert (model.execution["expert_par"], model.execution["zero_stage"]) == (8, 0)
    assert not set(model.model)  # nothing of it is the parser's default
    assert any("${MODEL_ARGS[@]}" in each for each in model.remarks)
    named = launch.read_flags("megatron", model.flags, gpus=32, model="mixtral-8x7B")
    assert launch.evaluable(named)["expert_par"] == 8
    anything = launch.read_flags("megatron", {**flags, "$ARGS": UnknownValue("$ARGS", 3)}, gpus=32)
    assert {"pipeline_par", "zero_stage", "activation_recompute", "data_par"} <= set(anything.open_fields)
    with pytest.raises(launch.OpenFieldsError, match="Pipeline parallel"):
        launch.evaluable(anything)
    taken = launch.read_flags("megatron", anything.flags, gpus=32, takes_defaults=True)
    assert taken.execution["pipeline_par"] == 1


def test_the_command_asks_for_what_is_open_and_writes_nothing(tmp_path: Path) -> None:
    file, out = tmp_path / "titan.toml", tmp_path / "out.json"
    file.write_text(UNKNOWN[4][1], "utf-8")
    found = CliRunner().invoke(app, ["import", str(file), "--procs", "8", "--out", str(out)])
    assert found.exit_code == 2
    assert "--set tensor_par=VALUE" in found.stderr
    assert not out.exists()
    again = CliRunner().invoke(app, ["import", str(file), "--procs", "8", "--set", "tensor_par=2", "--out", str(out)])
    assert again.exit_code == 0, again.stderr
    written = json.loads(out.read_text("utf-8"))
    assert (written["tensor_par"], written["data_par"]) == (2, 4)
    assert "Assumed, as nothing says it: Attention kernel" in again.stdout
    wrong = CliRunner().invoke(app, ["import", str(file), "--set", "tensor_pra=2"])
    assert "did you mean tensor_par?" in wrong.stderr


@pytest.mark.parametrize(
    "launcher", ["torchrun --nnodes $N --nproc_per_node 8", "deepspeed --num_nodes=$N --num_gpus 8"]
)
def test_a_number_of_gpus_from_outside_is_open_and_says_why(launcher: str) -> None:
    found = launch.read_text(
        f"{launcher} pretrain_gpt.py --num-layers 8 --hidden-size 64 --seq-length 64 "
        "--num-attention-heads 4 --micro-batch-size 1 --global-batch-size 8",
        "a.sh",
    )
    assert found.num_procs is None
    assert "$N" in found.origins["num_procs"].words
    assert found.origins["data_par"] == found.origins["num_procs"]
