"""An execution as a Python program for Megatron-Bridge."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from engine.launch.contract import LaunchError, LaunchFile, LaunchOrder, RefusedExecutionError, Written
from engine.launch.launchers import script_header, torchrun_command
from engine.launch.megatron.constraints import check_arguments
from engine.launch.megatron.framework import environment_of
from engine.launch.megatron.parser import flags_by_name
from engine.launch.megatron.writing import Groups, describe_refusal, groups_of
from engine.launch.megatron_bridge.arguments import arguments_of
from engine.launch.megatron_bridge.keys import KEYS, PRECISIONS
from engine.launch.report import LIST_TITLES, Report
from models import datatypes

__all__ = ["NAME", "TITLE", "VERSION", "write_program"]

NAME: Final = "megatron-bridge"
TITLE: Final = "Megatron-Bridge"
VERSION: Final = "0.7.0 (dev), 2026-08-22"
_RUN: Final[Mapping[str, Any]] = {"train.train_iters": 50}
_TO_REPLACE: Final = (
    "train.train_iters, tokenizer and mock data of the recipe vanilla_gpt_pretrain_config: to be replaced by your own"
)


def write_program(order: LaunchOrder) -> Written:
    """Returns a Python program for torchrun. Raises `LaunchError` where the framework would refuse the execution.

    Args:
        order: what shall be written.
    """
    report = Report()
    if order.model.layers is not None:
        raise LaunchError(
            f"{TITLE} builds models with unlike layers, as {order.model.title or order.model.name} has "
            f"({order.model.layers.describe()}), from recipes of their own: take the model from its recipe and the "
            "degrees from here, or export to Megatron-LM."
        )
    groups = groups_of(order, report)
    keys = _configuration_keys(groups, order)
    reason = check_arguments(arguments_of(keys, Report()), order.nodes * order.gpus_per_node)
    if reason:
        raise RefusedExecutionError(describe_refusal(TITLE, reason.replace("--", ""), order))
    lists = {
        which: tuple(map(_said_by_keys, report.listed(which)))
        for which in ("not_expressible", "not_modelled", "remarks")
    }
    if order.execution["weight_offload"]:
        lists["not_expressible"] = tuple(each for each in lists["not_expressible"] if "weight_offload" not in each)
        if not keys.get("model.cpu_offloading_weights"):
            lists["not_expressible"] += ("weight_offload: only with offloaded activations of whole layers",)
    lists["not_modelled"] = (*lists["not_modelled"], _TO_REPLACE)
    text = _program_text(order, keys, lists)
    return Written(
        NAME,
        TITLE,
        VERSION,
        (LaunchFile("pretrain_megatron_bridge.py", text, "python"),),
        keys,
        *lists.values(),
    )


def _configuration_keys(groups: Groups, order: LaunchOrder) -> dict[str, Any]:
    """Keys of the configuration from arguments of Megatron-Core."""
    a = {name: value for group in groups.values() for name, value in group.items()}
    keys: dict[str, Any] = {}
    gated = a.pop("swiglu")
    a["gated_linear_unit"] = gated
    a["share_embeddings_and_output_weights"] = not a.pop("untie_embeddings_and_output_weights")
    a["virtual_pipeline_model_parallel_size"] = a.pop("num_virtual_stages_per_pipeline_rank", None)
    if not a.pop("group_query_attention", False):
        a["num_query_groups"] = a["num_attention_heads"]
    for name in ("recompute_granularity", "recompute_method", "recompute_num_layers"):
        a.setdefault(name, None)
    if a.get("cpu_offloading_num_layers"):
        weights = bool(order.execution["weight_offload"])
        a |= {"cpu_offloading": True, "cpu_offloading_activations": True, "cpu_offloading_weights": weights}
    if a["attention_backend"] == "auto":
        del a["attention_backend"]
    if a.pop("check_for_nan_in_loss_and_grad", True) is False:
        keys["ddp.check_for_nan_in_grad"] = False
        keys["rerun_state_machine.check_for_nan_in_loss"] = False
    for name in ("cp_comm_type",):
        if name in a:
            a[name] = a[name][0]
    if "moe_aux_loss_coeff" in a:
        a["moe_aux_loss_coeff"] = a["moe_aux_loss_coeff"][0]
        a["moe_router_load_balancing_type"] = a["moe_router_load_balancing_type"][0]
    if str(a.get("moe_layer_freq", "")).startswith("("):
        a["moe_layer_freq"] = order.shape["moe_layer_freq"]
    if not a.get("overlap_moe_expert_parallel_comm") and "num_experts" in a:
        a["overlap_moe_expert_parallel_comm"] = False
    for name, key in KEYS.items():
        if name in a:
            keys[key] = a[name]
    keys["dataset.seq_length"] = a["seq_length"]
    keys["mixed_precision"] = _precision_name(a)
    keys["mixed_precision.grad_reduce_in_fp32"] = not a.get("grad_reduce_in_bf16", False) and (
        a.get("accumulate_allreduce_grads_in_fp32", False)
    )
    keys["ddp.grad_reduce_in_fp32"] = keys["mixed_precision.grad_reduce_in_fp32"]
    if a.get("fp8"):
        keys["mixed_precision.fp8_param_gather"] = bool(a.get("fp8_param_gather", False))
    for name in ("overlap_grad_reduce", "overlap_param_gather"):
        keys[f"comm_overlap.{name}"] = a[name]
    return {**keys, **_RUN}


def _precision_name(a: Mapping[str, Any]) -> str:
    wanted = {name: a[name] for name in ("bf16", "fp16", "fp8", "fp8_recipe", "fp4", "fp4_recipe") if a.get(name)}
    for name, precision in PRECISIONS.items():
        if precision == wanted:
            return name
    there = ", ".join(each.name for each in datatypes.for_products(program="megatron_bridge"))
    raise LaunchError(f"Megatron-Bridge trains in {there}; choose one of these datatypes.")


def _said_by_keys(sentence: str) -> str:
    """A remark about flags, with the keys of this framework."""

    def key(found: re.Match[str]) -> str:
        flag = flags_by_name().get(found[0])
        return KEYS.get(flag.destination, found[0]) if flag is not None else found[0]

    return re.sub(r"--[a-z0-9-]+", key, sentence)


_DTYPES: Final = {"bf16": "torch.bfloat16", "fp32": "torch.float32"}
_FUNCTIONS: Final = {True: "torch.nn.functional.silu", False: "torch.nn.functional.gelu"}


def _program_text(order: LaunchOrder, keys: Mapping[str, Any], lists: Mapping[str, Any]) -> str:
    """The program: a bare recipe, every key assigned, and the call that trains."""
    told = script_header(
        f"{TITLE} ({VERSION})",
        order,
        {LIST_TITLES[which]: sentences for which, sentences in lists.items()},
    )
    latent = "model.multi_latent_attention" in keys
    precision = keys["mixed_precision"]
    lines = [
        told,
        "#",
        "# On every node:",
        f"#   {torchrun_command(order)} pretrain_megatron_bridge.py",
        "",
        "import os",
        "",
        "import torch",
        *(["from megatron.bridge.models.mla_provider import MLAModelProvider"] if latent else []),
        "from megatron.bridge.recipes.gpt.vanilla_gpt import vanilla_gpt_pretrain_config",
        "from megatron.bridge.training.comm_overlap import CommOverlapConfig",
        "from megatron.bridge.training.gpt_step import forward_step",
        f"from megatron.bridge.training.mixed_precision import {precision}",
        "from megatron.bridge.training.pretrain import pretrain",
        "from megatron.core.transformer.enums import AttnBackend",
        "",
        *(f'os.environ.setdefault("{name}", "{value}")' for name, value in environment_of(order).items()),
        "",
        "cfg = vanilla_gpt_pretrain_config()",
        *(["cfg.model = MLAModelProvider()"] if latent else []),
        f"cfg.mixed_precision = {precision}()",
        f"cfg.comm_overlap = CommOverlapConfig(tp_comm_overlap={keys['comm_overlap.tp_comm_overlap']})",
        f"cfg.model.activation_func = {_FUNCTIONS[bool(keys['model.gated_linear_unit'])]}",
        f"cfg.tokenizer.vocab_size = {keys['model.vocab_size']}",
    ]
    for key, value in keys.items():
        if key in ("mixed_precision", "comm_overlap.tp_comm_overlap"):
            continue
        shown = repr(value)
        if key == "model.attention_backend":
            shown = f"AttnBackend.{value}"
        elif key.endswith("_dtype") and key.startswith("optimizer."):
            shown = _DTYPES[value]
        elif isinstance(value, list) and len(value) > 12 and set(value) <= {0, 1}:
            first = value.index(1)
            if all(value[first:]):
                shown = f"[0] * {first} + [1] * {len(value) - first}"
        lines.append(f"cfg.{key} = {shown}")
    lines += ["", 'if __name__ == "__main__":', "    pretrain(config=cfg, forward_step_func=forward_step)"]
    return "\n".join(lines) + "\n"
