"""What is written reads back as what it was written from, for every execution that a framework can express."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import models
from engine import launch
from engine.columns import ALL_FIELDS
from engine.cost_models.registry import named
from engine.launch.conversion import complete
from engine.launch.megatron.parser import flags_by_name
from engine.launch.megatron_bridge.keys import KEYS
from models import datatypes

NARROW = [each.name for each in datatypes.for_products(8, program="megatron")]
"""Datatypes below 16 bits that Megatron has a recipe for."""
NOT_STATED = {"tensor_par_net", "pipeline_par_net", "data_par_net", "fused_activation"}
"""Fields that no framework has a word for."""
LAYOUTS_OF = {
    ("deepseek-v3", 4): ["first_14_last_15", "Et*15|t*15|t*15|t*16L"],
    ("deepseek-v3", 8): ["first_6_last_7", "Et*8|(t*8|)*6t*5L"],
    ("llama-3-70B", 4): ["first_18_last_22", "Et*19|t*20|t*20|t*21L", "first_20_last_20"],
    ("llama-3-70B", 8): ["Et*9|(t*10|)*6t*11L", "first_4_last_16"],
    ("llama-3-70B", 80): ["Et|(t|)*78tL"],
    ("gpt3-175B", 2): ["Et*47|t*49L"],
}
"""Layouts that cut the layers of a model, by model and stages."""
DISPATCHERS = ("all_gather", "all_to_all", "deepep", "hybridep")
"""Dispatchers; combined 1F1B goes with all but the first."""
CONTEXT_EXCHANGES = ("p2p", "all_gather", "a2a", "hierarchical")
MODELS = ("llama-3-70B", "mixtral-8x7B", "deepseek-v3", "gpt3-175B", "gemma-2B")


@st.composite
def executions(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """A model and an execution of it whose fields agree with each other."""
    model = draw(st.sampled_from(MODELS))
    shape = launch.shape_of(models.load(model))
    experts, heads = "experts" in shape, int(shape["kv_heads"])
    tensor = draw(st.sampled_from([size for size in (1, 2, 4, 8) if heads % size == 0 or heads == 1]))
    pipeline = draw(st.sampled_from([1, 2, 4, 8]))
    divisors = [v for v in (1, 2, 4, 5, 10) if pipeline > 1 and int(shape["layers"]) % (pipeline * v) == 0]
    v = draw(st.sampled_from([1, *divisors]))
    context, data = draw(st.sampled_from([1, 2, 4])), draw(st.sampled_from([1, 2, 4, 8, 16]))
    expert = draw(st.sampled_from([1, 2, 4, 8])) if experts else 1
    split = draw(st.sampled_from(sorted({1, tensor}))) if experts else 1
    assume(tensor * context * data % (expert * split) == 0)
    microbatch = draw(st.sampled_from([1, 2]))
    zero = draw(st.sampled_from([0, 1, 1, 3] if data * context > 1 else [0]))
    rs_ag = tensor > 1 and draw(st.booleans())
    kind = draw(st.sampled_from(["none", "full", "attn_only"]))
    layouts = [*LAYOUTS_OF.get((model, pipeline * v), ()), "even", "even"] if pipeline > 1 else ["even"]
    combined = expert > 1 and v > 1 and kind != "full" and draw(st.booleans())
    sets = ["attention", "moe_act+layernorm", "mla_up_proj", "core_attn+mlp", "layernorm+moe+shared_experts"]
    selected = draw(st.sampled_from(sets)) if kind == "attn_only" else "attention"
    graphs = ["graphs", "partial_graphs"] if kind != "full" else ["graphs"]
    launched = draw(st.sampled_from(["fused", *graphs]))
    datatype = draw(st.sampled_from(["bfloat16", "float4", *NARROW]))
    narrow = zero > 0 and datatypes.named(datatype).bits == 8 and draw(st.booleans())
    return model, {
        "num_procs": tensor * pipeline * context * data,
        "tensor_par": tensor,
        "pipeline_par": pipeline,
        "context_par": context,
        "data_par": data,
        "expert_par": expert,
        "expert_tensor_par": split,
        "batch_size": data * microbatch * pipeline * draw(st.sampled_from([1, 2, 8])),
        "microbatch_size": microbatch,
        "datatype": datatype,
        "attention_type": "multiquery" if heads == 1 else "multihead",
        "activation_recompute": kind,
        "selective_recompute": selected,
        "recompute_blocks": draw(st.sampled_from([0, 1, 3])) if kind == "full" else 0,
        "pipeline_interleaving": v,
        "schedule": "combined_1f1b" if combined else "interleaved" if v > 1 else "1f1b",
        "stage_layout": draw(st.sampled_from(layouts)),
        "zero_stage": zero,
        "optimizer_sharding": zero > 0,
        "tensor_par_comm_type": "rs_ag" if rs_ag else "ar",
        "seq_par_ag_redo": rs_ag,
        "tensor_par_overlap": "ring" if rs_ag and draw(st.booleans()) else "none",
        "data_par_overlap": draw(st.booleans()),
        "weight_offload": False,
        "activations_offload": draw(st.booleans()),
        "optimizer_offload": zero > 0 and draw(st.booleans()),
        "training": True,
        "attention_kernel": draw(st.sampled_from(["unfused", "flash2", "native"])),
        "launch": launched,
        "gradient_datatype": draw(st.sampled_from(["float32", "bfloat16"])),
        "optimizer_datatype": draw(st.sampled_from(["float32", "bfloat16"])) if zero else "float32",
        "fp8_param_gather": narrow,
        "expert_overlap": combined or (expert > 1 and pipeline == 1 and kind != "full" and draw(st.booleans())),
        "pipeline_overlap": False,
        "token_dispatcher": draw(st.sampled_from(DISPATCHERS[combined:])) if experts else "all_to_all",
        "dispatch_datatype": "bfloat16",
        "expert_imbalance": 100,
        "context_par_comm": draw(st.sampled_from(CONTEXT_EXCHANGES)) if context > 1 else "p2p",
    }


def stages_of(model: str, execution: dict[str, Any]) -> tuple[int, ...]:
    """Layers of every stage of the model, whichever words of the field `stage_layout` come to them."""
    ranks, chunks = execution["pipeline_par"], execution["pipeline_interleaving"]
    if ranks == 1:
        return ()
    layout = execution.get("stage_layout", "even")
    return named("calibrated").stage_cut(models.load(model), ranks, chunks, layout).blocks


@pytest.mark.parametrize("framework", ["megatron", "megatron-bridge"])
@settings(max_examples=120, deadline=None)
@given(chosen=executions())
def test_what_is_written_reads_back(framework: str, chosen: tuple[str, dict[str, Any]]) -> None:
    model, execution = chosen
    try:
        written = launch.write(execution, model, framework=framework)
    except launch.LaunchError as refused:
        assert str(refused).endswith(".")  # noqa: PT017
        assume(False)
    assert not written.not_expressible
    found = launch.read_text(written.text, written.files[0].name)
    assert found.framework == framework
    assert (found.num_procs, found.unread, found.refused) == (execution["num_procs"], (), "")
    expected = complete(execution)
    implied = {
        "stage_layout": "even",
        "schedule": "interleaved" if found.execution["pipeline_interleaving"] > 1 else "1f1b",
    }
    assert stages_of(model, {**implied, **found.execution}) == stages_of(model, expected)
    told = {column.name for column in ALL_FIELDS} - NOT_STATED - {"stage_layout"}
    back = {name: value for name, value in {**implied, **found.execution}.items() if name != "stage_layout"}
    assert back == {name: expected[name] for name in told}
    by_flags = launch.read_flags(framework, written.flags, gpus=execution["num_procs"])
    assert by_flags.execution == found.execution
    assert found.model == by_flags.model
    assert launch.model_of_shape(found.model).seq_size == models.load(model).seq_size


DATATYPES_OF: dict[str, tuple[str, ...]] = {
    "megatron": ("float8", "float16", "bfloat16", "float32", "float8_block", "mxfp8", "nvfp4"),
    "megatron-bridge": ("float8", "float16", "bfloat16", "float8_block", "mxfp8", "nvfp4"),
    "maxtext": ("float4", "float8", "float16", "bfloat16", "float32", "mxfp8", "nvfp4", "int8"),
    "deepspeed": ("float16", "bfloat16", "float32"),
}
"""Datatypes that each framework trains in: its own parser's words. Those of torchtitan depend on the function."""


@pytest.mark.parametrize("framework", DATATYPES_OF)
@pytest.mark.parametrize("datatype", [each.name for each in datatypes.for_products()])
def test_a_datatype_is_written_and_read_back_or_refused(framework: str, datatype: str) -> None:
    asked = {
        "num_procs": 64,
        "tensor_par": 8,
        "pipeline_par": 1,
        "data_par": 8,
        "batch_size": 64,
        "microbatch_size": 1,
        "datatype": datatype,
    }
    try:
        written = launch.write(asked, "llama-3-8B", framework=framework)
    except launch.LaunchError as refused:
        assert datatype not in DATATYPES_OF[framework]
        assert all(name in str(refused) for name in DATATYPES_OF[framework])  # noqa: PT017
        return
    if datatype not in DATATYPES_OF[framework]:
        assert any(datatypes.label_of(datatype) in each for each in written.not_expressible)
        return
    found = launch.read_text(written.text, written.files[0].name)
    assert (found.execution["datatype"], found.framework) == (datatype, framework)


@pytest.mark.parametrize(
    ("framework", "flags", "words"),
    [
        ("megatron", {"--bf16": True, "--fp8-format": "e4m3", "--fp8-recipe": "custom"}, "--fp8-recipe custom"),
        ("maxtext", {"quantization": "intmp"}, "quantization intmp"),
    ],
)
def test_an_unknown_datatype_is_left_open_and_said(framework: str, flags: dict[str, Any], words: str) -> None:
    found = launch.read_flags(framework, flags, gpus=8)
    assert "datatype" not in found.execution
    assert any(each.startswith(f"{words} is no datatype known here") for each in found.remarks)


UNSAID: dict[str, dict[str, Any]] = {
    "tensor_par_comm_type": {"tensor_par_comm_type": "p2p_rs_ag"},
    "launch": {"launch": "compiled"},
    "selective_recompute": {"activation_recompute": "attn_only", "selective_recompute": "operators"},
    "attention_kernel": {"attention_kernel": "flash1"},
    "pipeline_overlap": {"pipeline_overlap": True},
    "weight_offload": {"weight_offload": True},
    "schedule": {"schedule": "zb_h1"},
    "tensor_par_overlap": {"tensor_par_overlap": "ring"},
    "networks": {"tensor_par_net": 1},
}


@pytest.mark.parametrize("framework", ["megatron", "megatron-bridge"])
@pytest.mark.parametrize("field", UNSAID)
def test_what_cannot_be_said_is_named(framework: str, field: str) -> None:
    execution = {
        "tensor_par": 2,
        "pipeline_par": 2,
        "data_par": 2,
        "batch_size": 16,
        "microbatch_size": 1,
        "optimizer_sharding": True,
        **UNSAID[field],
    }
    written = launch.write(execution, "llama-3-70B", framework=framework)
    assert [each for each in written.not_expressible if field in each]


@pytest.mark.parametrize("framework", launch.FRAMEWORKS)
def test_terms_name_fields_that_there_are(framework: str) -> None:
    terms = launch.FRAMEWORKS[framework].terms
    assert set(terms) <= {column.name for column in ALL_FIELDS}
    assert {"tensor_par", "batch_size", "microbatch_size", "datatype", "zero_stage"} <= set(terms)
    if framework == "megatron":
        said = " ".join(text for name, text in terms.items() if name != "num_procs")
        named = set(re.findall(r"--[a-z0-9-]+", said))
        assert named <= set(flags_by_name())
    if framework == "megatron-bridge":
        known = {
            *KEYS.values(),
            "mixed_precision",
            "mixed_precision.grad_reduce_in_fp32",
            "comm_overlap.overlap_grad_reduce",
        }
        assert {key for text in terms.values() for key in re.findall(r"\b[a-z_]+\.[a-z_]+\b", text)} <= known
