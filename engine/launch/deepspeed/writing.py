"""Writer of an execution as DeepSpeed's JSON and launcher, with remarks on the tasks of the training code.

DeepSpeed's automatic tensor parallelism, Ulysses and expert parallelism do not go together, and pipelines are in the
code, so ranks of what cannot be said become replicas, and weights that nothing else divides are sharded (ZeRO 3).
"""

from __future__ import annotations

import json
from typing import Any, Final

from engine.columns import called, choice_label
from engine.launch.contract import LaunchError, LaunchFile, LaunchOrder, Written
from engine.launch.launchers import script_header
from engine.launch.not_expressible import name_expert_load, name_unwritten
from engine.launch.report import LIST_TITLES, Report
from models import datatypes

__all__ = ["TITLE", "VERSION", "write_configuration"]

TITLE: Final = "DeepSpeed"
VERSION: Final = "0.19.8"
_EXPERT_PRESETS: Final = {
    "mixtral": "mixtral",
    "qwen3": "qwen3_moe",
    "deepseek-v2": "deepseek_v2",
    "deepseek-v3": "deepseek_v3",
}
"""Presets of expert parallelism by the beginning of a model's name."""
_PATTERN_PRESETS: Final = {"qwen3.5": "qwen3_5_moe"}
"""The same for models with a pattern of layers."""


def write_configuration(order: LaunchOrder) -> Written:
    """Returns the JSON and the command that trains with it.

    Args:
        order: what shall be written.

    Raises LaunchError where DeepSpeed would refuse it.
    """
    report = Report()
    e = _nearest_execution(order, report)
    _refuse_unsupported(order, e)
    document = _batch_keys(e, order) | _precision_keys(e, report) | {"zero_optimization": _zero_keys(e, report)}
    document |= _degree_keys(e, order)
    if e["activations_offload"]:
        if e["activation_recompute"] == "full":
            document["activation_checkpointing"] = {"cpu_checkpointing": True}
            report.remark("Checkpoints are offloaded where the code uses deepspeed.checkpointing.")
        else:
            report.not_expressible(f"{called('activations_offload')} without full recompute.")
    if e["launch"] == "compiled":
        document["compile"] = {"deepcompile": True}
    _name_the_rest(e, report)
    lists = {title: report.listed(which) for which, title in LIST_TITLES.items()}
    command = (
        f"deepspeed --hostfile hostfile --num_nodes {order.nodes} --num_gpus {order.gpus_per_node} train.py \\\n"
        "  --deepspeed --deepspeed_config ds_config.json"
    )
    about = script_header(f"{TITLE} {VERSION}", order, lists, "Start it on one node; hostfile names them all.")
    start = LaunchFile("launch.sh", f"#!/bin/bash\n{about}\n\n{command}\n")
    config = LaunchFile("ds_config.json", json.dumps(document, indent=2) + "\n", "json")
    return Written("deepspeed", TITLE, VERSION, (config, start), document, *lists.values())


def _nearest_execution(order: LaunchOrder, report: Report) -> dict[str, Any]:
    """Return the execution with the degrees that DeepSpeed supports."""
    e = dict(order.execution)
    if e["pipeline_par"] > 1:
        cut = "" if e["stage_layout"] == "even" else f", {called('stage_layout')}"
        report.not_expressible(
            f"{called('pipeline_par')} {e['pipeline_par']}{cut}: stages are PipelineModule's in the code; its ranks "
            "are replicas here."
        )
        if e["pipeline_interleaving"] > 1:
            report.not_expressible(f"{called('pipeline_interleaving')}: DeepSpeed's schedule is 1F1B.")
        e["data_par"] *= e["pipeline_par"]
        e |= {"pipeline_par": 1, "pipeline_interleaving": 1}
    if e["tensor_par"] > 1 and (e["context_par"] > 1 or e["expert_par"] > 1):
        what = "sequence" if e["context_par"] > 1 else "expert"
        report.not_expressible(
            f"{called('tensor_par')} {e['tensor_par']} beside {what} parallelism; its ranks are replicas here, "
            "and weights are sharded (ZeRO 3)."
        )
        e["data_par"] *= e["tensor_par"]
        e |= {"tensor_par": 1, "zero_stage": 3}
    schedule = order.execution["schedule"]
    if schedule not in ("1f1b", "interleaved"):
        report.not_expressible(f"{called('schedule')} {choice_label('schedule', schedule)}: it is the code's.")
    if e["tensor_par"] > 1 and e["tensor_par_comm_type"] != "ar":
        label = choice_label("tensor_par_comm_type", e["tensor_par_comm_type"])
        report.not_expressible(f"{called('tensor_par_comm_type')} {label}: automatic tensor parallelism all-reduces.")
    if e["context_par"] > 1:
        report.remark("Context parallelism is Ulysses, which exchanges heads rather than keys around a ring.")
    return e


def _refuse_unsupported(order: LaunchOrder, e: dict[str, Any]) -> None:
    shape, context, tensor = order.shape, e["context_par"], e["tensor_par"]
    if not e["training"]:
        raise LaunchError("A DeepSpeed configuration trains; an execution of forward passes alone cannot be written.")
    if e["batch_size"] % (e["data_par"] * e["microbatch_size"]):
        raise LaunchError(
            f"DeepSpeed's JSON has no pipeline, and {e['data_par']} replicas cannot share a batch of "
            f"{e['batch_size']} in microbatches of {e['microbatch_size']}; choose a batch that they can."
        )
    pattern = order.model.layers
    scans = [each.title for block in pattern.blocks for each in block.mixers if each.is_scan] if pattern else []
    if scans and tensor * context > 1:
        field = "tensor_par" if tensor > 1 else "context_par"
        raise LaunchError(
            f"DeepSpeed splits heads of attention, and {order.model.title or order.model.name} has {scans[0]} layers; "
            f"choose {field} 1."
        )
    if shape.get("heads", 0) % (context * tensor):
        raise LaunchError(
            f"DeepSpeed gives every rank whole heads; {context * tensor} does not divide {shape['heads']}."
        )
    expert = e["expert_par"]
    if expert > 1 and (shape.get("experts", 1) % expert or order.execution["num_procs"] % expert):
        raise LaunchError(f"DeepSpeed spreads whole experts over GPUs; expert parallel {expert} has to divide both.")
    if expert > 1 and context > 1 and e["zero_stage"] == 3:
        raise LaunchError("DeepSpeed has no expert parallelism beside sequence parallelism at ZeRO stage 3.")


def _batch_keys(e: dict[str, Any], order: LaunchOrder) -> dict[str, Any]:
    steps = e["batch_size"] // (e["data_par"] * e["microbatch_size"])
    # The batch is checked before tensor groups exist, against all ranks; with them only the other two are written.
    total = {} if e["tensor_par"] > 1 else {"train_batch_size": e["batch_size"]}
    return {
        **total,
        "train_micro_batch_size_per_gpu": e["microbatch_size"],
        "gradient_accumulation_steps": steps,
    }


def _precision_keys(e: dict[str, Any], report: Report) -> dict[str, Any]:
    found: dict[str, Any] = {}
    datatype = str(e["datatype"])
    if datatypes.word_for("deepspeed", datatype) is None:
        report.not_expressible(f"{called('datatype')} {choice_label('datatype', datatype)}: BF16 stands for it.")
        datatype = "bfloat16"
    if datatype == "bfloat16":
        found["bf16"] = {"enabled": True}
        if e["optimizer_datatype"] == "bfloat16":
            found["bf16"] |= {"bf16_master_weights_and_grads": True, "bf16_optimizer_states": True}
            report.remark("Moments in BF16 put master weights and gradients in BF16, too.")
    elif datatype == "float16":
        found["fp16"] = {"enabled": True}
    if e["fp8_param_gather"]:
        report.not_expressible(f"{called('fp8_param_gather')}: DeepSpeed gathers the datatype of its parameters.")
    if e["optimizer_datatype"] == "bfloat16" and datatype != "bfloat16":
        report.not_expressible(f"{called('optimizer_datatype')} BF16 without BF16 weights.")
    found["communication_data_type"] = "bf16" if e["gradient_datatype"] == "bfloat16" else "fp32"
    return found


def _zero_keys(e: dict[str, Any], report: Report) -> dict[str, Any]:
    stage = int(e["zero_stage"])
    zero: dict[str, Any] = {"stage": stage}
    if stage:
        zero["overlap_comm"] = bool(e["data_par_overlap"])
    elif not e["data_par_overlap"] and e["data_par"] * e["context_par"] > 1:
        report.not_expressible(f"{called('data_par_overlap')} off: without ZeRO buckets always overlap.")
    if e["optimizer_offload"]:
        if stage:
            zero["offload_optimizer"] = {"device": "cpu"}
        else:
            report.not_expressible(f"{called('optimizer_offload')} without ZeRO.")
    if e["weight_offload"]:
        if stage == 3:
            zero["offload_param"] = {"device": "cpu"}
        else:
            report.not_expressible(f"{called('weight_offload')} below ZeRO stage 3.")
    return zero


def _degree_keys(e: dict[str, Any], order: LaunchOrder) -> dict[str, Any]:
    found: dict[str, Any] = {}
    name = order.model.name.lower()
    if e["context_par"] > 1:
        found |= {"sequence_parallel_size": e["context_par"], "data_parallel_size": e["data_par"]}
    if e["tensor_par"] > 1:
        section: dict[str, Any] = {"autotp_size": e["tensor_par"]}
        if name.startswith("llama"):
            section["preset_model"] = "llama"
        section["tp_overlap_comm"] = e["tensor_par_overlap"] != "none"
        found["tensor_parallel"] = section
    if e["expert_par"] > 1:
        section = {"enabled": True, "autoep_size": e["expert_par"]}
        presets = _EXPERT_PRESETS if order.model.layers is None else _PATTERN_PRESETS
        preset = next((word for start, word in presets.items() if name.startswith(start)), None)
        if preset is not None:
            section["preset_model"] = preset
        found["expert_parallel"] = section
    return found


def _name_the_rest(e: dict[str, Any], report: Report) -> None:
    report.remark("Model and sequence length are the training code's.")
    recompute = str(e["activation_recompute"])
    if e["recompute_blocks"]:
        report.not_expressible(f"{called('recompute_blocks')}: the code decides what is recomputed.")
    if recompute == "full":
        report.not_expressible(
            f"{called('activation_recompute')} full: the code asks for it, as with "
            "model.gradient_checkpointing_enable()."
        )
    elif recompute == "attn_only":
        label = choice_label("selective_recompute", e["selective_recompute"])
        report.not_expressible(f"{called('selective_recompute')} {label}: it would be the code's.")
    if e["launch"] != "compiled":
        report.not_expressible(f"{called('launch')} {choice_label('launch', e['launch'])}: it is the code's.")
    if e["attention_kernel"] is not None:
        report.not_expressible(f"{called('attention_kernel')}: it is the code's.")
    if e["expert_tensor_par"] > 1:
        report.not_expressible(f"{called('expert_tensor_par')}: experts are whole.")
    name_expert_load(e, report)
    sent = {"token_dispatcher": "all_to_all", "dispatch_datatype": "bfloat16"}
    name_unwritten(e, report, sent, "DeepSpeed sends tokens by an all-to-all in 16 bits.")
    if e["context_par"] > 1:
        name_unwritten(e, report, {"context_par_comm": "a2a"}, "its sequence parallelism is an all-to-all of heads.")
    for field in ("expert_overlap", "pipeline_overlap"):
        if e[field]:
            report.not_expressible(f"{called(field)}.")
    if any(e[name] for name in ("tensor_par_net", "pipeline_par_net", "data_par_net")):
        report.remark("Networks follow from the order of ranks.")
