"""Megatron-Bridge: published recipes, whether as keys, as a command, as Python or as YAML."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

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
    found = launch.read(file, takes_defaults=True)
    fixture = next(each for each in fixtures.ALL if each["id"] == "bridge-llama3-70b-64-h100-bf16")
    expected = dict(fixture["expected"]["execution"])
    if name == "config.yaml":
        assert "num_procs" in found.left
        expected = {key: value for key, value in expected.items() if key not in ("num_procs", "data_par")}
    assert found.framework == "megatron-bridge"
    assert found.execution == expected
    # What the recipe that is elsewhere may say is no default: only what is stated here is known.
    known = launch.read(file)
    if name == "config.yaml":
        assert known.execution == expected
    else:
        assert known.execution.items() < expected.items()
        assert {"tensor_par", "pipeline_par", "data_par", "batch_size", "zero_stage"} <= {*known.execution}
        assert {"expert_par", "attention_kernel", "activations_offload"} <= {*known.open_fields}
        assert "default" not in {known.origins[field].kind for field in known.execution}
        assert launch.named_shape(known.model) == "llama-3-70B"


@pytest.mark.parametrize("program", ["pretrain_llama3_8b.py", "examples/recipes/qwen/pretrain.py"])
def test_a_program_without_its_recipe_leaves_open_what_only_that_says(program: str) -> None:
    command = f"torchrun --nproc_per_node 8 {program} model.tensor_model_parallel_size=2 train.global_batch_size=64"
    found = launch.read_text(command, "run.sh")
    assert found.execution.keys() & {"tensor_par", "batch_size", "num_procs"} == {
        "tensor_par",
        "batch_size",
        "num_procs",
    }
    assert {each.kind for each in found.origins.values()} == {"stated", "unknown"}
    assert any("own recipe is not at hand" in each for each in found.remarks)
    assert launch.read_text(command, "run.sh", takes_defaults=True).execution["pipeline_par"] == 1


NEMO_2 = """
def trainer(num_nodes: int = 36, num_gpus_per_node: int = 8):
    tensor = 4 * 2
    strategy = run.Config(nl.MegatronStrategy, tensor_model_parallel_size=tensor, pipeline_model_parallel_size=9,
        virtual_pipeline_model_parallel_size=7, context_parallel_size=2, sequence_parallel=True,
        account_for_embedding_in_pipeline_split=True, account_for_loss_in_pipeline_split=True)
    return run.Config(nl.Trainer, devices=num_gpus_per_node, num_nodes=num_nodes, plugins=bf16_mixed(),
        strategy=strategy)
def pretrain_recipe(performance: bool = False):
    recipe = run.Partial(llm.pretrain, model=run.Config(llm.LlamaModel, config=run.Config(llm.Llama31Config405B)),
        data=run.Config(MockDataModule, seq_length=8192, global_batch_size=252, micro_batch_size=1),
        optim=distributed_fused_adam_with_cosine_annealing(max_lr=3e-4))
    if performance:
        recipe.trainer.strategy.tensor_model_parallel_size = 4
    recipe.trainer.strategy.expert_model_parallel_size = options.experts
    recipe.data.path = glob(root)
    return recipe
"""
NEMO_1 = """
trainer:
  devices: 8
  num_nodes: 4
model:
  micro_batch_size: 2
  global_batch_size: 64
  tensor_model_parallel_size: 4
  activations_checkpoint_granularity: selective
  optim:
    name: distributed_fused_adam
"""


@pytest.mark.parametrize(
    ("name", "text", "told", "unread"),
    [
        (
            "recipe.py",
            NEMO_2,
            {"num_procs": 288, "tensor_par": 8, "pipeline_par": 9, "data_par": 2, "batch_size": 252, "zero_stage": 1},
            "model.expert_model_parallel_size = options.experts",
        ),
        (
            "c.yaml",
            NEMO_1,
            {
                "num_procs": 32,
                "tensor_par": 4,
                "data_par": 8,
                "batch_size": 64,
                "microbatch_size": 2,
                "activation_recompute": "attn_only",
                "zero_stage": 1,
            },
            "",
        ),
    ],
)
def test_recipes_of_nemo_are_read_with_what_names_stand_for(
    name: str, text: str, told: dict[str, Any], unread: str
) -> None:
    found = launch.read_text(text, name)
    assert told.items() <= found.execution.items()
    assert found.refused == ""
    assert [each.partition(":")[0].replace("trainer.strategy", "model") for each in found.unread] == [unread] * bool(
        unread
    )
    assert not unread or launch.named_shape(found.model) == "llama-3.1-405B"


@pytest.mark.parametrize(
    ("call", "gpus"),
    [
        ("recipe()", 32),
        ("recipe(96)", 768),
        ("recipe(nodes=96)", 768),
        ("run.Partial(recipe, 96, gpus=4)", 384),
        ("recipe(options.nodes)", None),
        ("recipe(**options)", None),
        ("recipe(gpus=4), recipe(gpus=8)", None),
    ],
)
@pytest.mark.parametrize("form", ["{}\n", "def main():\n    many = 96\n    run.run({})\n"])
def test_a_parameter_is_what_the_file_gives_the_recipe(form: str, call: str, gpus: int | None) -> None:
    recipe = (
        "def recipe(nodes: int = 4, gpus: int = 8):\n"
        "    made = llm.llama3_8b.pretrain_recipe(num_nodes=nodes, num_gpus_per_node=gpus)\n"
        "    made.trainer.strategy.tensor_model_parallel_size = 2\n"
        "    made.data.global_batch_size = 768\n"
        "    return made\n"
    )
    call = call.replace("96", "many") if "many" in form and "(96)" in call else call
    found = launch.read_text("import nemo_run as run\n" + recipe + form.format(call), "a.py")
    assert found.num_procs == gpus
    assert ("num_procs" in found.left) is (gpus is None)


def test_a_strategy_of_nemo_2_is_read() -> None:
    text = """import nemo_run as run
strategy = run.Config(MegatronStrategy)
other = nl.MegatronStrategy(tensor_model_parallel_size=4, pipeline_model_parallel_size=8,
    virtual_pipeline_model_parallel_size=5, sequence_parallel=True,
    ddp=DistributedDataParallelConfig(overlap_grad_reduce=True, use_distributed_optimizer=True))
callback = MegatronCommOverlapCallback(tp_comm_overlap=True)
"""
    found = launch.read_text(text, "nemo.py", gpus=64)
    told = {
        "tensor_par": 4,
        "pipeline_par": 8,
        "data_par": 2,
        "pipeline_interleaving": 5,
        "tensor_par_overlap": "ring",
        "zero_stage": 1,
        "data_par_overlap": True,
    }
    assert told.items() <= found.execution.items()
    assert {"batch_size", "microbatch_size"} <= set(found.left)


@pytest.mark.parametrize("value", ["1 if x else " * 2_000 + "2", "not " * 2_000 + "x", "x" + ".y" * 5_000])
def test_python_nested_without_end_is_refused(value: str) -> None:
    text = f"cfg.model.tensor_model_parallel_size = 2\ncfg.model.num_layers = {value}\n"
    with pytest.raises(launch.LaunchError, match="no launch configuration"):
        launch.read_text(text, "recipe.py")


NEMO_KEYS = {
    "trainer.devices": 4,
    "trainer.num_nodes": 3,
    "trainer.precision": "bf16",
    "model.encoder_seq_length": 2048,
    "model.num_layers": 24,
    "model.hidden_size": 1024,
    "model.ffn_hidden_size": 2816,
    "model.num_attention_heads": 16,
    "model.micro_batch_size": 2,
    "model.global_batch_size": 48,
    "model.tensor_model_parallel_size": 2,
    "model.sequence_parallel": True,
    "model.activation": "fast-swiglu",
    "model.bias": False,
    "model.normalization": "rmsnorm",
    "model.optim.name": "distributed_fused_adam",
}


def nemo(form: str, keys: dict[str, Any]) -> launch.LaunchReading:
    """Keys of NeMo 1 as words of a command, as YAML in blocks, or as YAML in braces."""
    if form == "command":
        words = " ".join(
            f"{mark}{key}={value}" for (key, value), mark in zip(keys.items(), ("", "+", "++") * 20, strict=False)
        )
        return launch.read_text(f"python megatron_gpt_pretraining.py {words} ~model.data", "run.sh")
    tables: dict[str, Any] = {}
    for key, value in keys.items():
        *rooms, last = key.split(".")
        table = tables
        for room in rooms:
            table = table.setdefault(room, {})
        table[last] = value
    return launch.read_text(yaml.safe_dump(tables, default_flow_style=form == "braces"), "conf.yaml")


@pytest.mark.parametrize("form", ["command", "blocks", "braces"])
def test_keys_of_nemo_1_mean_the_same_in_every_form(form: str) -> None:
    found = nemo(form, NEMO_KEYS)
    told = {
        "num_procs": 12,
        "tensor_par": 2,
        "data_par": 6,
        "batch_size": 48,
        "microbatch_size": 2,
        "zero_stage": 1,
        "tensor_par_comm_type": "rs_ag",
        "datatype": "bfloat16",
    }
    assert told.items() <= found.execution.items()
    shape = {"layers": 24, "gated_mlp": True, "linear_bias": False, "norm": "RMSNorm", "seq": 2048}
    assert shape.items() <= found.model.items()
    assert (found.unread, found.not_modelled) == ((), ())
    assert found.origins["gated_mlp"].words in ("model.gated_linear_unit", "model.activation")


@pytest.mark.parametrize("form", ["command", "blocks"])
@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("model.activation", "gelu", {"gated_mlp": False}),
        ("model.activation", "geglu", {"gated_mlp": True}),
        ("model.activation", "reglu", {"gated_mlp": True}),
        ("model.activation", "squared-relu", {"gated_mlp": False}),
        ("model.activation", "new-word", {"gated_mlp": None}),
        ("model.bias", True, {"linear_bias": True}),
        ("trainer.precision", 32, {"datatype": "float32"}),
        ("trainer.precision", "32-true", {"datatype": "float32"}),
        ("trainer.precision", "16-mixed", {"datatype": "float16"}),
        ("trainer.precision", 16, {"datatype": "float16"}),
        ("trainer.precision", "bf16-mixed", {"datatype": "bfloat16"}),
        ("trainer.precision", "odd", {"datatype": None}),
        ("model.optim.name", "fused_adam", {"zero_stage": 0}),
        ("model.activations_checkpoint_granularity", "full", {"activation_recompute": "full"}),
    ],
)
def test_words_of_nemo_1_are_read_or_open(form: str, key: str, value: Any, told: dict[str, Any]) -> None:
    found = nemo(form, NEMO_KEYS | {key: value})
    for name, expected in told.items():
        assert {**found.model, **found.execution}.get(name) == expected
        assert (name in found.open_fields) == (expected is None)


def test_a_named_configuration_of_nemo_that_is_not_at_hand_leaves_open_what_it_says() -> None:
    found = launch.read_text(
        "python megatron_gpt_pretraining.py --config-name=mine trainer.devices=8 "
        "model.tensor_model_parallel_size=2 model.micro_batch_size=1",
        "run.sh",
    )
    assert (found.execution["tensor_par"], found.execution["num_procs"]) == (2, 8)
    assert {"pipeline_par", "zero_stage", "datatype"} <= set(found.open_fields)


RECIPES = """
def tiny_sft_config():
    cfg.model.tensor_model_parallel_size = 4
def _common():
    cfg.train.micro_batch_size = 2
def tiny_pretrain_config(nodes=2):
    cfg = _common()
    cfg.model.tensor_model_parallel_size = nodes
def tiny_lora_config():
    cfg.model.tensor_model_parallel_size = 8
"""


@pytest.mark.parametrize(
    ("recipe", "tensor", "micro"),
    [(None, 2, 2), ("tiny_pretrain_config", 2, 2), ("tiny_sft_config", 4, None), ("tiny_lora_config", 8, None)],
)
def test_one_of_several_recipes_is_chosen(recipe: str | None, tensor: int, micro: int | None) -> None:
    found = launch.read_text(RECIPES, "recipes.py", recipe=recipe)
    assert found.execution["tensor_par"] == tensor
    assert found.execution.get("microbatch_size") == micro
    assert found.recipes == ("tiny_sft_config", "tiny_pretrain_config", "tiny_lora_config")
    assert "3 recipes" in found.remarks[0]
    with pytest.raises(launch.LaunchError, match="has no recipe 'other'; it has tiny_sft_config"):
        launch.read_text(RECIPES, "recipes.py", recipe="other")


def test_the_recipe_for_pretraining_counts_in_nemo_2() -> None:
    more = """
def finetune_recipe():
    recipe.trainer.strategy.tensor_model_parallel_size = 1
    recipe.data.global_batch_size = 16
"""
    found = launch.read_text(NEMO_2 + more, "recipe.py")
    assert (found.execution["tensor_par"], found.execution["batch_size"]) == (8, 252)
    tuned = launch.read_text(NEMO_2 + more, "recipe.py", recipe="finetune_recipe")
    assert (tuned.execution["tensor_par"], tuned.execution["batch_size"]) == (1, 16)
