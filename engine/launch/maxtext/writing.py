"""An execution as words KEY=VALUE for MaxText on GPUs.

Degrees are split over both meshes as ranks are placed here: tensor innermost, then context, experts, data, and the
pipeline outermost.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from engine.columns import called, choice_label
from engine.launch.contract import LaunchError, LaunchFile, LaunchOrder, Written
from engine.launch.launchers import script_header
from engine.launch.layer_words import words_of_layers
from engine.launch.maxtext.names import PATTERN_MODELS, model_name, pipelined_layers
from engine.launch.named_models import named_pattern
from engine.launch.not_expressible import name_expert_load, without_predictions
from engine.launch.precision import datatype_for
from engine.launch.report import LIST_TITLES, Report

__all__ = ["TITLE", "VERSION", "write_command"]

TITLE: Final = "MaxText"
VERSION: Final = "0.2.5"
_ENVIRONMENT: Final = (
    'export NNODES={nodes} NODE_RANK="${{NODE_RANK:-0}}"\n'
    'export JAX_COORDINATOR_IP="${{MASTER_ADDR:-localhost}}" JAX_COORDINATOR_PORT="${{MASTER_PORT:-29500}}"'
)
_PROGRAM: Final = "python3 -m maxtext.trainers.pre_train.train src/maxtext/configs/base.yml"


def write_command(order: LaunchOrder) -> Written:
    """Returns the command that trains with an execution.

    Args:
        order: what shall be written.

    Raises LaunchError where MaxText would refuse it.
    """
    report, e = Report(), order.execution
    if not e["training"]:
        raise LaunchError("MaxText's trainer trains; an execution of forward passes alone cannot be written for it.")
    flags = {"run_name": "shardscape", **_model_keys(order, report), "hardware": "gpu"}
    flags |= _degree_keys(order, report) | _batch_keys(order) | _pipeline_keys(order, report)
    flags |= _recompute_keys(e, report) | _software_keys(order, report)
    flags["dataset_type"] = "synthetic"
    _name_the_rest(order, report)
    lists = {title: report.listed(which) for which, title in LIST_TITLES.items()}
    words = " \\\n  ".join([_PROGRAM, *(f"{key}={_format_value(value)}" for key, value in flags.items())])
    environment = _ENVIRONMENT.format(nodes=order.nodes)
    text = f"#!/bin/bash\n{script_header(f'{TITLE} {VERSION}', order, lists)}\n\n{environment}\n{words}\n"
    return Written("maxtext", TITLE, VERSION, (LaunchFile("train.sh", text),), flags, *lists.values())


def _format_value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "'[" + ",".join(f'"{each}"' for each in value) + "]'"
    return str(value)


def _model_keys(order: LaunchOrder, report: Report) -> dict[str, Any]:
    shape = order.shape
    if order.model.layers is not None:
        return _pattern_keys(order)
    named = model_name(shape, order.model.name)
    if named is not None:
        return {"model_name": named, "max_target_length": shape["seq"]}
    flags: dict[str, Any] = {
        "decoder_block": "llama2" if shape["gated_mlp"] else "gpt3",
        "base_num_decoder_layers": shape["layers"],
        "base_emb_dim": shape["hidden"],
        "base_mlp_dim": shape["ffn"],
        "base_num_query_heads": shape["heads"],
        "base_num_kv_heads": shape["kv_heads"],
        "head_dim": shape.get("head_dim", shape["hidden"] // shape["heads"]),
        "vocab_size": shape["vocab"],
        "mlp_activations": ["silu", "linear"] if shape["gated_mlp"] else ["gelu"],
        "logits_via_embedding": shape["tied_embeddings"],
        "max_target_length": shape["seq"],
    }
    if "kv_rank" in shape:
        raise LaunchError(
            "MaxText has this model under no name, and latent attention is written by name only; take DeepSeek's or "
            "Kimi's."
        )
    if "experts" in shape:
        if shape["moe_layer_freq"] != 1:
            raise LaunchError("MaxText has this model under no name, and writes experts in all layers or none.")
        flags |= {
            "decoder_block": "mixtral",
            "num_experts": shape["experts"],
            "num_experts_per_tok": shape["top_k"],
            "base_moe_mlp_dim": shape["expert_ffn"],
            "base_mlp_dim": shape["expert_ffn"],
        }
        if shape.get("shared_ffn"):
            flags["shared_experts"] = shape["shared_ffn"] // shape["expert_ffn"]
    report.remark("MaxText has no name for the model; its decoder_block is the nearest one, with these numbers.")
    return flags


def _pattern_keys(order: LaunchOrder) -> dict[str, Any]:
    """Return the keys of a model with a pattern of layers, which MaxText takes by name only.

    Raises LaunchError naming the layer that MaxText cannot run, or the names of its models with unlike layers.
    """
    named = named_pattern(order.model, PATTERN_MODELS)
    if named is None:
        words_of_layers(order.model, "maxtext", TITLE)
        raise LaunchError(
            f"{TITLE} has models with unlike layers by name only, such as {', '.join(PATTERN_MODELS)}; none has the "
            f"shape of {order.model.title or order.model.name}."
        )
    if order.execution["pipeline_par"] > 1:
        raise LaunchError(f"{TITLE} pipelines equal layers only; those of {named} differ. Choose pipeline_par 1.")
    return {"model_name": named, "max_target_length": order.shape["seq"]}


def _degree_keys(order: LaunchOrder, report: Report) -> dict[str, Any]:
    e = order.execution
    if e["data_par"] % e["expert_par"]:
        raise LaunchError(
            f"MaxText takes expert ranks out of replicas; expert parallel {e['expert_par']} does not divide "
            f"{e['data_par']} replicas."
        )
    rest = e["data_par"] // e["expert_par"]
    stage = e["zero_stage"]
    if stage == 2:
        report.not_expressible(f"{called('zero_stage')} 2: weights are sharded, too (3).")
    elif stage == 3 and rest == 1:
        report.not_expressible(f"{called('zero_stage')} 3: all replicas are on the expert axis.")
    sequence = e["tensor_par_comm_type"] != "ar"
    degrees = {
        "tensor_sequence" if sequence or e["tensor_par"] == 1 else "tensor": e["tensor_par"],
        "context": e["context_par"],
        "expert": e["expert_par"],
        "fsdp" if stage >= 2 else "data": rest,
        "data" if stage >= 2 else "fsdp": 1,
        "pipeline": e["pipeline_par"],
    }
    left, flags, outer = order.gpus_per_node, {}, {}
    for axis, degree in degrees.items():
        inside = math.gcd(left, degree)
        left //= inside
        if inside > 1 or axis == "fsdp":
            flags[f"ici_{axis}_parallelism"] = inside
        if degree // inside > 1 or axis == "data":
            outer[f"dcn_{axis}_parallelism"] = degree // inside
    if left > 1:
        raise LaunchError(
            f"No degrees fill nodes of {order.gpus_per_node} GPUs: {left} would stay idle in each; choose degrees, or "
            "a number of nodes, that do."
        )
    if stage < 2:
        flags["shard_optimizer_over_data"] = stage == 1
    if e["context_par"] > 1:
        outer["context_parallel_strategy"] = "all_gather" if e["context_par_comm"] == "all_gather" else "ring"
    return {**flags, **outer}


def _batch_keys(order: LaunchOrder) -> dict[str, Any]:
    e, steps = order.execution, _accumulation_steps(order)
    each = e["batch_size"] / (e["num_procs"] * steps)
    return {
        "per_device_batch_size": int(each) if each == int(each) else each,
        "gradient_accumulation_steps": steps,
    }


def _accumulation_steps(order: LaunchOrder) -> int:
    """Steps over which gradients are accumulated; in a pipeline microbatches are the pipeline's."""
    return order.replica_microbatches if order.execution["pipeline_par"] == 1 else 1


def _pipeline_keys(order: LaunchOrder, report: Report) -> dict[str, Any]:
    e = order.execution
    stages = e["pipeline_par"] * e["pipeline_interleaving"]
    if e["pipeline_par"] == 1:
        return {}
    layers = pipelined_layers(order.shape) or order.shape["layers"]
    if layers % stages:
        raise LaunchError(f"MaxText pipelines {layers} layers in equal parts; {stages} stages do not divide them.")
    blocks, before = order.cut.blocks, order.shape["layers"] - layers
    if before:
        report.not_expressible(
            f"{called('stage_layout')} {choice_label('stage_layout', e['stage_layout'])}: the first {before} layers, "
            "which have no experts, run on every stage before the pipeline."
        )
    elif len(set(blocks)) > 1:
        raise LaunchError(
            f"MaxText gives every stage as many layers; stages of this execution have {min(blocks)} to {max(blocks)}. "
            "Choose the stage layout even."
        )
    if order.replica_microbatches % e["pipeline_par"]:
        raise LaunchError(
            f"MaxText wants microbatches in multiples of its {e['pipeline_par']} stages; there are "
            f"{order.replica_microbatches}."
        )
    if e["schedule"] not in ("1f1b", "interleaved"):
        report.not_expressible(
            f"{called('schedule')} {choice_label('schedule', e['schedule'])}: it has one of its own."
        )
    report.remark("MaxText's pipeline runs all forward passes, then all backward passes; here it is 1F1B.")
    return {
        "num_layers_per_pipeline_stage": layers // stages,
        "num_pipeline_microbatches": order.replica_microbatches,
        "scan_layers": False,
    }


def _recompute_keys(e: Mapping[str, Any], report: Report) -> dict[str, Any]:
    kind, selection = str(e["activation_recompute"]), str(e["selective_recompute"])
    if e["recompute_blocks"]:
        report.not_expressible(f"{called('recompute_blocks')}: all blocks are recomputed.")
    policy = {"none": "none", "full": "full"}.get(kind)
    if policy is None:
        exact = {"save_dots": "minimal", "save_projections": "save_dot_except_mlp"}
        nearest = {"attention": "minimal_with_context", "modules": "minimal_with_context"}
        policy = exact.get(selection) or nearest.get(selection, "full")
        if selection not in exact:
            label = choice_label("selective_recompute", selection)
            report.not_expressible(f"{called('selective_recompute')} {label}: {policy} stands for it.")
    if e["activations_offload"]:
        if policy == "minimal":
            policy = "minimal_offloaded"
        else:
            report.not_expressible(f"{called('activations_offload')} with remat_policy {policy}.")
    return {"remat_policy": policy}


def _software_keys(order: LaunchOrder, report: Report) -> dict[str, Any]:
    e = order.execution
    datatype = str(e["datatype"])
    entry = datatype_for("maxtext", "MaxText", datatype)
    flags: dict[str, Any] = {"dtype": datatype if entry.bits >= 16 else "bfloat16"}
    if entry.bits < 16:
        word, *others = entry.words["maxtext"]
        # The recipe fp8 keeps a history of maxima, which MaxText does not accumulate gradients with (configs/types.py).
        flags["quantization"] = others[0] if word == "fp8" and _accumulation_steps(order) > 1 else word
    flags |= {
        "grad_dtype": e["gradient_datatype"],
        "optimizer_memory_host_offload": bool(e["optimizer_offload"]),
        "parameter_memory_host_offload": bool(e["weight_offload"]),
    }
    kernel = e["attention_kernel"]
    if kernel == "unfused":
        flags["attention"] = "dot_product"
    elif kernel is not None:
        flags |= {"attention": "cudnn_flash_te", "max_segments_per_seq": 32}
        if kernel != "native":
            label = choice_label("attention_kernel", kernel)
            report.not_expressible(f"{called('attention_kernel')} {label}: cuDNN's kernel stands for it.")
    if e["token_dispatcher"] == "all_gather" and "experts" in order.shape:
        flags["use_ring_of_experts"] = True
    if e["expert_overlap"]:
        flags["use_batch_split_schedule"] = True
    return flags


def _name_the_rest(order: LaunchOrder, report: Report) -> None:
    """Notes which fields MaxText has no place for."""
    without_predictions(order, report)
    e = order.execution

    def unsaid(field: str, why: str) -> None:
        report.not_expressible(f"{called(field)} {choice_label(field, e[field])}: {why}")

    if e["launch"] != "compiled":
        unsaid("launch", "JAX compiles always; CUDA graphs are a flag of XLA's.")
    if e["tensor_par"] > 1 and e["tensor_par_comm_type"] == "ar":
        unsaid("tensor_par_comm_type", "the tensor axis shards the width of activations, which is the nearest.")
    if e["tensor_par"] > 1 and e["tensor_par_comm_type"] == "p2p_rs_ag":
        unsaid("tensor_par_comm_type", "sequence parallelism throughout stands for it.")
    if e["tensor_par_overlap"] != "none" and e["tensor_par"] > 1:
        unsaid("tensor_par_overlap", "XLA decides what overlaps.")
    if not e["data_par_overlap"] and e["data_par"] * e["context_par"] > 1:
        unsaid("data_par_overlap", "XLA decides what overlaps.")
    if e["pipeline_overlap"]:
        unsaid("pipeline_overlap", "XLA decides what overlaps.")
    if e["fp8_param_gather"]:
        unsaid("fp8_param_gather", "parameters have the datatype of weight_dtype.")
    if e["context_par"] > 1 and e["context_par_comm"] not in ("p2p", "all_gather"):
        unsaid("context_par_comm", "keys and values travel by a ring or an all-gather; the ring is written.")
    if e["token_dispatcher"] in ("deepep", "hybridep"):
        unsaid("token_dispatcher", "XLA's all-to-all sends tokens.")
    if e["dispatch_datatype"] != "bfloat16":
        unsaid("dispatch_datatype", "tokens are sent as they are.")
    name_expert_load(e, report)
    if e["optimizer_datatype"] != "float32":
        unsaid("optimizer_datatype", "only the first moment can be.")
    if "experts" in order.shape and e["expert_tensor_par"] != e["tensor_par"]:
        unsaid("expert_tensor_par", "experts are split by the tensor axes.")
    if any(e[name] for name in ("tensor_par_net", "pipeline_par_net", "data_par_net")):
        report.remark("Networks follow from the split of degrees over ici (a node) and dcn (across nodes).")
