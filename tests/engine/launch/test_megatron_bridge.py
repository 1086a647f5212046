"""Megatron-Bridge: published recipes, whether as keys, as a command, as Python or as YAML."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine import launch
from engine.columns.stage_layouts import canonical
from tests.engine.launch import fixtures


@pytest.mark.parametrize("fixture", fixtures.of("megatron-bridge"))
def test_published_keys_mean_what_the_framework_makes_of_them(fixture: dict[str, Any]) -> None:
    expected, gpus = fixture["expected"], fixture["gpus"]["count"]
    recipe = {"--recipe": fixture["source"]["symbol"]}
    found = launch.read_flags("megatron-bridge", fixture["flags"] | recipe, gpus=gpus)
    # Since these were written down, executions have a field for layers listed by stage.
    listed = fixture["flags"].get("model.pipeline_model_parallel_layout")
    layout = {} if listed is None else {"stage_layout": canonical(listed)}
    assert found.execution == expected["execution"] | layout
    assert expected["model"].items() <= found.model.items()
    assert (found.num_procs, found.unread, found.refused) == (gpus, (), "")
    # The recipe's name is where the shape stands; the keys alone say the execution all the same.
    alone = launch.read_flags("megatron-bridge", fixture["flags"], gpus=gpus)
    assert alone.execution == expected["execution"] | layout
    assert "the model's shape" in alone.left
    for key in ("pipeline_model_parallel_layout", "moe_shared_expert_overlap", "main_grads_dtype"):
        if any(key in each for each in fixture["flags"]):
            assert any(key in told for told in found.not_modelled)


PYTHON = """
def llama3_70b_pretrain_64gpu_h100_bf16_config():
    cfg = llama3_70b_pretrain_config()
    cfg.mixed_precision = bf16_mixed()
    cfg.mixed_precision.grad_reduce_in_fp32 = False
    cfg.model.tensor_model_parallel_size = 4
    cfg.model.pipeline_model_parallel_size = 4
    cfg.model.context_parallel_size = 2
    cfg.model.virtual_pipeline_model_parallel_size = 5
    cfg.model.sequence_parallel = True
    cfg.train.global_batch_size = 256
    cfg.train.micro_batch_size = 1
    cfg.comm_overlap = CommOverlapConfig(tp_comm_overlap=True, tp_comm_overlap_cfg=userbuffers_h100)
    cfg.ddp.use_distributed_optimizer = True
    cfg.ddp.overlap_grad_reduce = True
    cfg.model.recompute_granularity = None
    return cfg
"""
COMMAND = """srun --ntasks-per-node 8 --nodes 8 python scripts/training/run_recipe.py \\
    --recipe llama3_70b_pretrain_64gpu_h100_bf16_config --mode pretrain --dataset mock -sl 8192 -tp 4 -pp 4 -cp 2 \\
    -vp 5 -gb 256 -mb 1 model.sequence_parallel=true comm_overlap.tp_comm_overlap=true \\
    ddp.use_distributed_optimizer=true ddp.overlap_grad_reduce=true mixed_precision.grad_reduce_in_fp32=false
"""
YAML = """
model:
  tensor_model_parallel_size: 4
  pipeline_model_parallel_size: 4
  context_parallel_size: 2
  virtual_pipeline_model_parallel_size: 5
  sequence_parallel: true
  num_layers: 80
  hidden_size: 8192
  num_attention_heads: 64
  recompute_modules:
  - core_attn
train:
  global_batch_size: 256
  micro_batch_size: 1
ddp:
  use_distributed_optimizer: true
  overlap_grad_reduce: true
comm_overlap:
  tp_comm_overlap: true
mixed_precision:
  bf16: true
  grad_reduce_in_fp32: false
"""


@pytest.mark.parametrize(("name", "text"), [("r.py", PYTHON), ("run.sh", COMMAND), ("config.yaml", YAML)])
def test_recipes_are_read_in_every_form(name: str, text: str, tmp_path: Path) -> None:
    file = tmp_path / name
    file.write_text(text, "utf-8")
    found = launch.read(file)
    fixture = next(each for each in fixtures.ALL if each["id"] == "bridge-llama3-70b-64-h100-bf16")
    expected = dict(fixture["expected"]["execution"])
    if name == "config.yaml":
        assert "num_procs" in found.left
        expected = {key: value for key, value in expected.items() if key not in ("num_procs", "data_par")}
    assert found.framework == "megatron-bridge"
    assert found.execution == expected


def test_a_strategy_of_nemo_2_is_read() -> None:
    text = """import nemo_run as run
strategy = run.Config(MegatronStrategy)
other = nl.MegatronStrategy(tensor_model_parallel_size=4, pipeline_model_parallel_size=8,
    virtual_pipeline_model_parallel_size=5, sequence_parallel=True,
    ddp=DistributedDataParallelConfig(overlap_grad_reduce=True, use_distributed_optimizer=True))
callback = MegatronCommOverlapCallback(tp_comm_overlap=True)
"""
    found = launch.read_text(text, "nemo.py", gpus=64)
    told = {"tensor_par": 4, "pipeline_par": 8, "data_par": 2, "pipeline_interleaving": 5, "tensor_par_overlap": "ring",
            "zero_stage": 1, "data_par_overlap": True}  # fmt: skip
    assert told.items() <= found.execution.items()
    assert {"batch_size", "microbatch_size"} <= set(found.left)
