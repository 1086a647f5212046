"""Arguments in logs mean what the same arguments mean in launch scripts."""

from __future__ import annotations

from typing import Any

import pytest

from engine.calibrate.logs import read_log
from engine.validation.words import recompute_of
from tests.engine.launch import fixtures

EXPERTS = {"num_experts": 8, "moe_router_topk": 2, "expert_model_parallel_size": 8, "world_size": 16}
CONTEXT = {"context_parallel_size": 4, "world_size": 8}


def logged(**arguments: object) -> dict[str, str]:
    shape = {"num_layers": 16, "hidden_size": 512, "num_attention_heads": 8, "pipeline_model_parallel_size": 2}
    return read_log(
        "\n".join(f"  {name} ........ {value}" for name, value in {**shape, **arguments}.items()), "a"
    ).fields


@pytest.mark.parametrize("fixture", fixtures.of("megatron-lm"))
def test_the_command_line_in_a_log_says_what_the_script_says(fixture: dict[str, Any]) -> None:
    expected = fixture["expected"]["execution"]
    words = [name if value is True else f"{name} {value}" for name, value in fixture["flags"].items()]
    fields = read_log("torchrun pretrain_gpt.py " + " ".join(words), "a").fields
    assert int(fields["tp"]) == expected["tensor_par"]
    assert int(fields["gbs"]) == expected["batch_size"]
    assert int(fields.get("vpp", 1)) == expected["pipeline_interleaving"]
    assert fields.get("seq_parallel", "False") == str(expected["tensor_par_comm_type"] == "rs_ag")
    assert int(fields.get("zero_stage", 0)) == expected["zero_stage"]
    assert fields["dtype"] == {"float8": "fp8", "bfloat16": "bf16", "float16": "fp16"}[expected["datatype"]]
    assert (fields.get("launch") == "graphs") == (expected["launch"] == "graphs")
    assert fields.get("overlap_expert", "False") == str(expected["expert_overlap"])
    kind = {"none": "none", "full": "full", "attn_only": "by_module"}[expected["activation_recompute"]]
    found = recompute_of(fields["recompute"], expected["num_procs"])
    assert found is not None
    assert (found.kind, found.share) == (kind, 1.0)
    if kind == "by_module":
        assert "+".join(found.modules) == expected["selective_recompute"]


@pytest.mark.parametrize(
    ("arguments", "field", "value"),
    [
        ({"use_megatron_fsdp": True, "data_parallel_sharding_strategy": "optim_grads"}, "zero_stage", "2"),
        ({"use_megatron_fsdp": True, "data_parallel_sharding_strategy": "optim_grads_params"}, "fsdp", "True"),
        ({"use_torch_fsdp2": True, "torch_fsdp2_reshard_after_forward": False}, "zero_stage", "2"),
        ({"cuda_graph_impl": "local"}, "launch", "graphs"),
        ({"cuda_graph_impl": "none"}, "launch", None),
        ({"fp4": "e2m1", "bf16": True}, "dtype", "nvfp4"),
        ({"grad_reduce_in_bf16": True}, "gradient_bytes", "2"),
        ({"overlap_p2p_comm": True}, "overlap_pipeline", None),
        (EXPERTS | {"moe_token_dispatcher_type": "alltoall"}, "token_dispatcher", "all_to_all"),
        (
            EXPERTS | {"moe_token_dispatcher_type": "flex", "moe_flex_dispatcher_backend": "hybridep"},
            "token_dispatcher",
            "hybridep",
        ),
        (
            EXPERTS | {"moe_token_dispatcher_type": "flex", "moe_flex_dispatcher_backend": "ncclep"},
            "token_dispatcher",
            None,
        ),
        ({"num_experts": "None", "moe_token_dispatcher_type": "allgather"}, "token_dispatcher", None),
        (CONTEXT | {"cp_comm_type": "['a2a+p2p']"}, "context_par_comm", "hierarchical"),
        (CONTEXT | {"cp_comm_type": "['allgather']"}, "context_par_comm", "all_gather"),
        (CONTEXT | {"cp_comm_type": "['p2p', 'a2a']"}, "context_par_comm", None),
        ({"optimizer_cpu_offload": True}, "notes", "optimizer offload=True"),
        ({"cpu_offloading_num_layers": 3}, "notes", "offloading of 3 layers"),
        ({"recompute_granularity": "selective", "recompute_modules": "['core_attn']"}, "recompute", "selective"),
        (
            {"recompute_granularity": "selective", "recompute_modules": "['layernorm']"},
            "recompute",
            "modules:layernorm",
        ),
        (
            {
                "recompute_granularity": "full",
                "recompute_method": "block",
                "recompute_num_layers": 1,
                "virtual_pipeline_model_parallel_size": 4,
            },
            "recompute",
            "full:8layers",
        ),
    ],
)
def test_what_a_log_prints(arguments: dict[str, object], field: str, value: str | None) -> None:
    assert logged(**arguments).get(field) == value


def test_flags_of_a_log_that_take_several_words_end_before_the_next_command() -> None:
    command = "torchrun pretrain_gpt.py --context-parallel-size 2 --cp-comm-type a2a 2>&1 | tee log"
    assert read_log(command, "a").fields["context_par_comm"] == "a2a"
