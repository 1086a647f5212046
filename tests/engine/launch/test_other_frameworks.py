"""torchtitan, DeepSpeed and MaxText: published configurations, worked examples, and what is written reads back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings

from engine import launch
from engine.launch.conversion import complete
from tests.engine.launch import fixtures
from tests.engine.launch.test_round_trip import NOT_STATED, UNSAID, executions, stages_of

FRAMEWORKS = ("torchtitan", "deepspeed", "maxtext")


@pytest.mark.parametrize("fixture", [each for name in FRAMEWORKS for each in fixtures.of(name)])
def test_published_configurations_mean_what_the_framework_makes_of_them(fixture: dict[str, Any]) -> None:
    expected, gpus = fixture["expected"], fixture["gpus"]["count"]
    found = launch.read_flags(fixture["framework"], fixture["flags"], gpus=gpus)
    assert found.execution == expected["execution"]
    assert expected["model"].items() <= found.model.items()
    assert (found.num_procs, found.unread, found.refused) == (gpus, (), "")
    for left in expected.get("left_to_other_sources", ()):
        assert left in found.left
    for told in expected.get("not_modelled", ()):
        assert any(told.split()[0] in each for each in found.not_modelled)
    assert len(found.remarks) >= len(expected.get("warnings", ()))


BASE: dict[str, Any] = {
    "tensor_par_overlap": "none",
    "pipeline_interleaving": 1,
    "activation_recompute": "none",
    "optimizer_sharding": True,
    "data_par_overlap": True,
    "datatype": "bfloat16",
    "launch": "fused",
}
DENSE = BASE | {
    "num_procs": 64,
    "tensor_par": 4,
    "pipeline_par": 4,
    "data_par": 4,
    "batch_size": 256,
    "microbatch_size": 1,
    "pipeline_interleaving": 5,
    "tensor_par_comm_type": "rs_ag",
    "tensor_par_overlap": "ring",
    "seq_par_ag_redo": True,
    "attention_kernel": "flash2",
}
EXPERTS = BASE | {
    "num_procs": 256,
    "tensor_par": 1,
    "pipeline_par": 8,
    "data_par": 32,
    "expert_par": 32,
    "batch_size": 2048,
    "microbatch_size": 1,
    "activation_recompute": "attn_only",
    "selective_recompute": "modules",
    "attention_kernel": "native",
}
SHARDED = BASE | {
    "num_procs": 64,
    "tensor_par": 1,
    "pipeline_par": 1,
    "data_par": 64,
    "batch_size": 128,
    "microbatch_size": 1,
    "activation_recompute": "full",
    "zero_stage": 3,
    "attention_kernel": "flash2",
}
LONG = BASE | {
    "num_procs": 64,
    "tensor_par": 4,
    "context_par": 8,
    "pipeline_par": 2,
    "data_par": 1,
    "batch_size": 64,
    "microbatch_size": 1,
    "tensor_par_comm_type": "rs_ag",
    "seq_par_ag_redo": True,
    "attention_kernel": "native",
}
TITAN: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    (
        "llama-3-70B",
        DENSE,
        {
            "module": "llama3",
            "config": "llama3_70b",
            "parallelism.tensor_parallel_degree": 4,
            "parallelism.pipeline_parallel_degree": 4,
            "parallelism.data_parallel_shard_degree": 4,
            "parallelism.pipeline_parallel_schedule": "Interleaved1F1B",
            "parallelism.pipeline_parallel_layers_per_stage": 4,
            "parallelism.num_pp_microbatches": 64,
            "parallelism.pipeline_parallel_first_stage_less_layers": 0,
            "parallelism.pipeline_parallel_last_stage_less_layers": 0,
            "training.num_tokens_per_microbatch_per_dp_rank": 8192,
            "training.num_tokens_per_train_step": 2_097_152,
            "training.max_context_length": 8192,
            "training.disable_cuda_graphs": True,
            "compile.enable": True,
            "compile.enable_async_tensor_parallel": True,
            "activation_checkpoint": "none",
        },
    ),
    (
        "deepseek-v3",
        EXPERTS,
        {
            "module": "deepseek_v3",
            "config": "deepseek_v3_671b",
            "parallelism.pipeline_parallel_degree": 8,
            "parallelism.pipeline_parallel_schedule": "1F1B",
            "parallelism.data_parallel_shard_degree": 32,
            "parallelism.expert_parallel_degree": 32,
            "parallelism.num_pp_microbatches": 64,
            "training.num_tokens_per_microbatch_per_dp_rank": 4096,
            "training.num_tokens_per_train_step": 8_388_608,
            "training.max_context_length": 4096,
            "activation_checkpoint": "selective",
        },
    ),
    (
        "llama-3-70B",
        SHARDED,
        {
            "parallelism.tensor_parallel_degree": 1,
            "parallelism.data_parallel_shard_degree": 64,
            "training.num_tokens_per_microbatch_per_dp_rank": 8192,
            "training.num_tokens_per_train_step": 1_048_576,
            "training.max_context_length": 8192,
            "training.disable_cuda_graphs": True,
            "activation_checkpoint": "full",
        },
    ),
]
DEEPSPEED: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    (
        "llama-3-70B",
        DENSE,
        {
            "train_micro_batch_size_per_gpu": 1,
            "gradient_accumulation_steps": 16,
            "bf16": {"enabled": True},
            "communication_data_type": "fp32",
            "zero_optimization": {"stage": 1, "overlap_comm": True},
            "tensor_parallel": {"autotp_size": 4, "preset_model": "llama", "tp_overlap_comm": True},
        },
    ),
    (
        "deepseek-v3",
        EXPERTS,
        {
            "train_batch_size": 2048,
            "train_micro_batch_size_per_gpu": 1,
            "gradient_accumulation_steps": 8,
            "bf16": {"enabled": True},
            "communication_data_type": "fp32",
            "zero_optimization": {"stage": 1, "overlap_comm": True},
            "expert_parallel": {"enabled": True, "autoep_size": 32, "preset_model": "deepseek_v3"},
        },
    ),
    (
        "llama-3-70B",
        SHARDED,
        {
            "train_batch_size": 128,
            "train_micro_batch_size_per_gpu": 1,
            "gradient_accumulation_steps": 2,
            "bf16": {"enabled": True},
            "communication_data_type": "fp32",
            "zero_optimization": {"stage": 3, "overlap_comm": True},
        },
    ),
    (
        "llama-3.1-8B",
        LONG,
        {
            "train_batch_size": 64,
            "train_micro_batch_size_per_gpu": 1,
            "gradient_accumulation_steps": 8,
            "sequence_parallel_size": 8,
            "data_parallel_size": 8,
            "bf16": {"enabled": True},
            "communication_data_type": "fp32",
            "zero_optimization": {"stage": 3, "overlap_comm": True},
        },
    ),
]
MAXTEXT: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    (
        "llama-3-70B",
        DENSE,
        {
            "model_name": "llama3-70b",
            "hardware": "gpu",
            "max_target_length": 8192,
            "per_device_batch_size": 4,
            "ici_tensor_sequence_parallelism": 4,
            "ici_data_parallelism": 2,
            "ici_fsdp_parallelism": 1,
            "dcn_data_parallelism": 2,
            "dcn_pipeline_parallelism": 4,
            "num_layers_per_pipeline_stage": 4,
            "num_pipeline_microbatches": 64,
            "shard_optimizer_over_data": True,
            "scan_layers": False,
            "remat_policy": "none",
            "attention": "cudnn_flash_te",
            "max_segments_per_seq": 32,
        },
    ),
    (
        "llama-3-70B",
        SHARDED,
        {
            "per_device_batch_size": 1,
            "gradient_accumulation_steps": 2,
            "ici_fsdp_parallelism": 8,
            "dcn_fsdp_parallelism": 8,
            "dcn_data_parallelism": 1,
            "remat_policy": "full",
        },
    ),
    (
        "llama-3.1-8B",
        LONG,
        {
            "model_name": "llama3.1-8b",
            "per_device_batch_size": 1,
            "ici_tensor_sequence_parallelism": 4,
            "ici_context_parallelism": 2,
            "dcn_context_parallelism": 4,
            "dcn_pipeline_parallelism": 2,
            "ici_fsdp_parallelism": 1,
            "dcn_data_parallelism": 1,
            "num_layers_per_pipeline_stage": 16,
            "num_pipeline_microbatches": 64,
            "context_parallel_strategy": "ring",
            "shard_optimizer_over_data": True,
        },
    ),
]


@pytest.mark.parametrize(
    ("framework", "case"),
    [(name, case) for name, cases in zip(FRAMEWORKS, (TITAN, DEEPSPEED, MAXTEXT), strict=True) for case in cases],
)
def test_worked_examples_are_written_key_by_key(
    framework: str, case: tuple[str, dict[str, Any], dict[str, Any]]
) -> None:
    model, execution, expected = case
    written = launch.write(execution, model, framework=framework, nodes=execution["num_procs"] // 8)
    assert expected.items() <= written.flags.items()
    if framework == "deepspeed":
        assert written.flags == expected
        assert json.loads(written.texts["ds_config.json"]) == expected


BECAUSE = {
    "optimizer_sharding": ("zero_stage", "tensor_par"),
    "seq_par_ag_redo": ("tensor_par_comm_type",),
    "data_par": ("pipeline_par", "tensor_par"),
    "launch": ("launch", "compiled"),
    "zero_stage": ("zero_stage", "tensor_par", "pipeline_par"),
    "tensor_par_comm_type": ("tensor_par_comm_type", "tensor_par"),
    "tensor_par_overlap": ("tensor_par_overlap", "tensor_par"),
    "pipeline_interleaving": ("pipeline_par",),
    "data_par_overlap": ("data_par_overlap", "pipeline_par", "tensor_par"),
    "activation_recompute": ("selective_recompute",),
    "expert_overlap": ("expert_overlap", "schedule"),
}
"""Fields whose change another field's sentence tells."""


@pytest.mark.parametrize("framework", FRAMEWORKS)
@settings(max_examples=60, deadline=None)
@given(chosen=executions())
def test_every_field_reads_back_or_is_named(framework: str, chosen: tuple[str, dict[str, Any]]) -> None:
    model, execution = chosen
    try:
        written = launch.write(execution, model, framework=framework)
    except launch.LaunchError as refused:
        assert str(refused).endswith(".")  # noqa: PT017
        assume(False)
    found = launch.read_text(written.text, written.files[0].name)
    assert found.framework == framework
    assert (found.num_procs, found.unread, found.refused) == (execution["num_procs"], (), "")
    told = " ".join((*written.not_expressible, *written.remarks))
    expected = complete(execution)
    if execution["data_par"] * execution["context_par"] == 1:
        expected["data_par_overlap"] = found.execution["data_par_overlap"]  # there is nothing to overlap
    for name, value in found.execution.items():
        if name in NOT_STATED or name == "schedule" or value == expected[name]:
            continue
        if name == "stage_layout" and stages_of(model, found.execution) == stages_of(model, expected):
            continue
        assert any(f"({word})" in told or word in told for word in (name, *BECAUSE.get(name, ()))), (name, value)
    again = launch.read_flags(framework, written.flags, gpus=execution["num_procs"])
    assert again.execution == found.execution


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("field", sorted(set(UNSAID) - {"networks", "tensor_par_overlap", "weight_offload"}))
def test_what_cannot_be_said_is_named(framework: str, field: str) -> None:
    execution = {
        "tensor_par": 2,
        "pipeline_par": 2,
        "data_par": 2,
        "batch_size": 16,
        "microbatch_size": 1,
        "optimizer_sharding": True,
        "data_par_overlap": True,
        **UNSAID[field],
    }
    expressible = {"torchtitan": {"launch", "selective_recompute"}, "deepspeed": {"launch"}, "maxtext": {"launch"}}[
        framework
    ]
    written = launch.write(execution, "llama-3-70B", framework=framework)
    assert bool([each for each in written.not_expressible if field in each]) == (field not in expressible)


TOML = """# NOTE: this toml config is a preset for 128 H100 GPUs.
[model]
name = "llama3"
flavor = "405B"
converters = ["float8"]
[training]
local_batch_size = 2
seq_len = 8192
[parallelism]
tensor_parallel_degree = 8
[activation_checkpoint]
mode = "full"
"""
YAML = """# Copyright
base_config: "base.yml"
model_name: "mixtral-8x7b"   # a model
hardware: "gpu"
per_device_batch_size: 12
max_target_length: 4096
remat_policy: "minimal_with_context"
ici_fsdp_parallelism: 8
dcn_data_parallelism: 2
"""


def test_files_are_known_by_what_stands_in_them(tmp_path: Path) -> None:
    titan = launch.read_text(TOML, "llama3_405b.toml")
    assert (titan.framework, titan.num_procs, titan.execution["data_par"]) == ("torchtitan", 128, 16)
    assert launch.model_of_shape(titan.model).name == "llama-3.1-405B"
    maxtext = launch.read_text(YAML, "mixtral.yml")
    assert (maxtext.framework, maxtext.num_procs, maxtext.execution["batch_size"]) == ("maxtext", 16, 192)
    script = "deepspeed --num_nodes 2 --num_gpus 8 train.py --deepspeed --deepspeed_config ds.json\n"
    config = '{"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 2}, "bf16": {"enabled": true}}'
    (tmp_path / "start.sh").write_text(f"cat > ds.json <<EOF\n{config}\nEOF\n{script}", "utf-8")
    deepspeed = launch.read(tmp_path / "start.sh")
    assert (deepspeed.framework, deepspeed.num_procs, deepspeed.execution["batch_size"]) == ("deepspeed", 16, 32)
    auto = launch.read_text(config.replace('"enabled": true', '"enabled": "auto"').replace("2,", '"auto",'), "hf.json")
    assert {"datatype", "microbatch_size"} <= set(auto.left)
    assert not {"datatype", "microbatch_size"} & set(auto.execution)  # never invented
    wrapped = launch.read_text(
        "CONFIG_FILE=a.toml NGPU=8 ./run_train.sh --parallelism.tensor_parallel_degree 2 --training.seq_len=4096",
        "a.sh",
    )
    assert (wrapped.framework, wrapped.execution["tensor_par"], wrapped.unread) == ("torchtitan", 2, ())
    assert "a.toml" in wrapped.remarks[0]
    malformed = launch.read_text(
        "python3 -m maxtext.trainers.pre_train.train base.yml model_name=llama3.1-405b enable_checkpointing: False "
        "dcn_fsdp_parallelism=128 ici_fsdp_parallelism=8 per_device_batch_size=1.0 max_target_length=8192",
        "128vm.sh",
    )
    assert (malformed.num_procs, malformed.unread) == (1024, ("enable_checkpointing:", "False"))


@pytest.mark.parametrize(
    ("text", "name", "told"),
    [
        ("[parallelism\n", "a.toml", "is not TOML"),
        ("[parallelism]\ntensor_parallel_degree = 2\ntensor_parallel_degree = 4\n", "a.toml", "is not TOML"),
        ("[parallelism]\ntensor_parallel_degree = 'many'\n", "a.toml", "must be a whole number from 1"),
        ("# for 64 GPUs\n[parallelism]\ntensor_parallel_degree = 7\n", "a.toml", "do not divide 64 GPUs"),
        ('{"zero_optimization": {"stage": 2}, "zero_optimization": {"stage": 3}}', "a.json", "stands there twice"),
        ('{"zero_optimization": {"stage": 2}', "a.json", "is not JSON"),
        ('{"zero_optimization": {"stage": 9}}', "a.json", "knows 0, 1, 2 and 3"),
        ('{"zero_optimization": [2]}', "a.json", "must be a table"),
        ("base_config: base.yml\nremat_policy: full\nremat_policy: none\n", "a.yml", "stands there twice"),
        ("base_config: base.yml\nper_device_batch_size: [1]\n", "a.yml", "must be a number"),
        (
            '{"architectures": ["A"], "model_type": "llama", "hidden_size": 8}',
            "config.json",
            "where a model is asked for",
        ),
        ("deepspeed --num_gpus 8 train.py --deepspeed --deepspeed_config ds.json", "a.sh", "give that file"),
    ],
)
def test_bad_files_get_one_sentence(text: str, name: str, told: str) -> None:
    with pytest.raises(launch.LaunchError, match=told):
        launch.read_text(text, name)


def test_hostile_files_are_refused_or_named_quickly() -> None:
    bomb = "a: &a [lol]\n" + "".join(f"k{i}: *a\n" for i in range(2_000))
    with pytest.raises(launch.LaunchError, match=r"an anchor \(line 3\)"):
        launch.read_text("base_config: base.yml\nremat_policy: full\n" + bomb, "a.yml")
    with pytest.raises(launch.LaunchError, match="nested more than"):
        launch.read_text("base_config: base.yml\nremat_policy: full\na: " + "[" * 5_000, "a.yml")
    deep = '{"zero_optimization": ' + '{"a":' * 50_000 + "1" + "}" * 50_001
    with pytest.raises(launch.LaunchError, match="not JSON"):
        launch.read_text(deep, "a.json")
    with pytest.raises(launch.LaunchError, match="not TOML"):
        launch.read_text("[parallelism]\na = " + "[" * 50_000, "a.toml")


def test_what_is_written_is_known_to_the_parsers() -> None:
    folder = Path(launch.__file__).parent
    keys = {row[0]: row for row in json.loads((folder / "maxtext" / "parser_keys.json").read_text("utf-8"))["keys"]}
    titan = json.loads((folder / "torchtitan" / "parser_keys.json").read_text("utf-8"))["keys"]
    newer = {row[0] for row in titan if row[-1] != "0.2.2"} | {"module", "config"}
    for model, execution in (("llama-3-70B", DENSE), ("llama-3-70B", SHARDED), ("llama-3.1-8B", LONG)):
        assert set(launch.write(execution, model, framework="maxtext").flags) <= set(keys)
        assert set(launch.write(execution, model, framework="torchtitan").flags) <= newer
    assert keys["per_device_batch_size"][1:] == ["float", [], 12.0]
    assert keys["ici_fsdp_parallelism"][3] == -1


@pytest.mark.parametrize(
    ("model", "pipeline", "chunks"), [("llama-4-maverick", 4, 3), ("kimi-k2", 4, 3), ("qwen2-57B-A14B", 2, 7)]
)
def test_maxtext_pipelines_every_layer_but_leading_dense_ones(model: str, pipeline: int, chunks: int) -> None:
    execution = BASE | {
        "tensor_par": 1,
        "pipeline_par": pipeline,
        "pipeline_interleaving": chunks,
        "data_par": 8,
        "batch_size": 64,
        "microbatch_size": 1,
    }
    written = launch.write(execution, model, framework="maxtext")
    found = launch.read_text(written.text, written.files[0].name)
    assert (found.execution["pipeline_interleaving"], found.refused) == (chunks, "")
    assert launch.named_shape(found.model) == model


@pytest.mark.parametrize(
    ("mode", "told"),
    [("mode = 'none'", ("none", "attention")), ("", ("attn_only", "half")), ("mode = 'full'", ("full", "attention"))],
)
def test_no_recomputation_is_a_word_of_torchtitan_not_an_empty_one(mode: str, told: tuple[str, str]) -> None:
    text = f"[model]\nname = 'llama3'\nflavor = '8B'\n[training]\nseq_len = 4096\n[activation_checkpoint]\n{mode}\n"
    found = launch.read_text(text, "a.toml").execution
    assert (found["activation_recompute"], found["selective_recompute"]) == told


@pytest.mark.parametrize(
    ("name", "text", "stated", "left"),
    [
        (
            "a.sh",
            "CONFIG_FILE=mine.toml NGPU=8 ./run_train.sh --parallelism.tensor_parallel_degree 2",
            {"tensor_par": 2},
            {"pipeline_par", "zero_stage", "activation_recompute"},
        ),
        (
            "b.sh",
            "python3 -m maxtext.train mine.yml ici_tensor_parallelism=2 per_device_batch_size=1 run_name=x",
            {"tensor_par": 2},
            {"pipeline_par", "zero_stage", "activation_recompute"},
        ),
    ],
)
def test_a_configuration_that_the_command_reads_too_is_open(
    name: str, text: str, stated: dict[str, Any], left: set[str]
) -> None:
    found = launch.read_text(text, name)
    assert left <= set(found.open_fields)
    assert "mine." in found.remarks[0]
    if name == "a.sh":
        assert stated.items() <= found.execution.items()
