"""An execution as a command line of torchtitan's main branch (commit b5bcd76c of August 2026).

Batches are in tokens there, CUDA graphs are on unless switched off, and shapes come from flavors in the
code. Executions that torchtitan would refuse at its start are refused here for the same reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from engine.columns import called, choice_label
from engine.launch.contract import LaunchError, LaunchFile, LaunchOrder, Written
from engine.launch.launchers import script_header, torchrun_command
from engine.launch.layer_words import words_of_layers
from engine.launch.named_models import named_pattern
from engine.launch.not_expressible import name_expert_load, name_unwritten, without_predictions
from engine.launch.report import LIST_TITLES, Report
from engine.launch.torchtitan.cuts import cut_keys
from engine.launch.torchtitan.flavors import PATTERN_CONFIGS, PATTERN_MODULE, FlavorConfig, config_for

__all__ = ["TITLE", "VERSION", "write_command"]

TITLE: Final = "torchtitan"
VERSION: Final = "main branch of 2026-08-21, commit b5bcd76c"
_SCHEDULES: Final = {"zb_v": "ZBVZeroBubble", "dualpipev": "DualPipeV"}
_PLAIN: Final = ("1f1b", "interleaved")


def write_command(order: LaunchOrder) -> Written:
    """Returns the command that trains with an execution.

    Args:
        order: what shall be written.

    Raises LaunchError where torchtitan would refuse it.
    """
    report, e = Report(), order.execution
    config = config_for(order.shape, str(e["datatype"])) if order.model.layers is None else _pattern_config(order)
    _refuse_unsupported(order)
    if order.model.layers is not None:
        report.remark("The function trains the vision tower of the model, too, which is not in these figures.")
    flags: dict[str, Any] = _start_keys(order, config, report)
    flags |= _degree_keys(e, report) | _pipeline_keys(order, report) | _batch_keys(order)
    flags |= _software_keys(e, config, report) | _recompute_keys(e, report)
    _name_the_rest(order, report)
    lists = {title: report.listed(which) for which, title in LIST_TITLES.items()}
    words = " \\\n  ".join([f"{torchrun_command(order)} -m torchtitan.train", *_flag_words(flags)])
    text = f"#!/bin/bash\n{script_header(f'{TITLE}, {VERSION}', order, lists)}\n\n{words}\n"
    return Written("torchtitan", TITLE, VERSION, (LaunchFile("train.sh", text),), flags, *lists.values())


def _pattern_config(order: LaunchOrder) -> FlavorConfig:
    """Return the function that trains a model with a pattern of layers.

    Raises LaunchError naming the layer that torchtitan cannot run, or its flavors with unlike layers.
    """
    found = named_pattern(order.model, PATTERN_CONFIGS)
    if found is None:
        words_of_layers(order.model, "torchtitan", TITLE)
        raise LaunchError(
            f"{TITLE} takes shapes from flavors in its code and has none of {_model_title(order)}; those with unlike "
            f"layers are {', '.join(PATTERN_CONFIGS)} of the module {PATTERN_MODULE}."
        )
    if order.execution["context_par"] > 1:
        raise LaunchError(f"{TITLE} has no context parallelism for {PATTERN_MODULE}; choose context_par 1.")
    return FlavorConfig(PATTERN_MODULE, found, "")


def _flag_words(flags: Mapping[str, Any]) -> list[str]:
    """Returns flags as words; truths are bare, off as `section.no-key`, and sub-commands stand last."""
    words: list[str] = []
    for key, value in flags.items():
        if key == "activation_checkpoint":
            continue
        section, _, last = key.rpartition(".")
        if value is True:
            words.append(f"--{key}")
        elif value is False:
            words.append(f"--{section}.no-{last}")
        elif isinstance(value, list):
            # A word per stage, its modules with commas between (config/manager.py, `list_str_rule`).
            words.append(f"--{key} {' '.join(','.join(part) for part in value)}")
        else:
            words.append(f"--{key} {value}")
    return [*words, f"activation_checkpoint:{flags['activation_checkpoint']}"]


def _refuse_unsupported(order: LaunchOrder) -> None:
    e, shape = order.execution, order.shape
    if not e["training"]:
        raise LaunchError("torchtitan trains; an execution of forward passes alone cannot be written for it.")
    tensor, context, sequence = e["tensor_par"], e["context_par"], shape["seq"]
    tokens = e["microbatch_size"] * sequence
    ways = (tensor if e["tensor_par_comm_type"] != "ar" else 1) * (2 * context if context > 1 else 1)
    if tokens % ways:
        raise LaunchError(
            f"torchtitan divides the {tokens:,} tokens of a microbatch {ways} ways (tensor x 2 context); choose "
            "degrees that divide them."
        )
    expert, shards = e["expert_par"], e["data_par"] if e["zero_stage"] else 1
    if (shards * context * tensor) % expert:
        sharded = "" if e["zero_stage"] else " (without ZeRO there is 1 shard of data)"
        raise LaunchError(
            f"torchtitan takes expert ranks out of shards of data x context x tensor = {shards * context * tensor}"
            f"{sharded}; expert parallel {expert} does not divide it."
        )
    if "experts" in shape and shape["experts"] % expert:
        raise LaunchError(
            f"torchtitan spreads whole experts; expert parallel {expert} does not divide {shape['experts']}."
        )
    # Latent attention has no key and value heads of its own (torchtitan, `Decoder.Config.update_from_config`).
    kinds = {"heads": shape["heads"], "key and value heads": shape["heads" if "kv_rank" in shape else "kv_heads"]}
    for kind, number in kinds.items():
        if number % tensor:
            raise LaunchError(f"torchtitan gives every tensor rank whole {kind}; {tensor} does not divide {number}.")
    if e["pipeline_par"] > 1:
        _refuse_pipeline(order)


def _refuse_pipeline(order: LaunchOrder) -> None:
    """Refuse a pipeline that torchtitan or torch's schedules refuse (torch.distributed.pipelining, schedules.py)."""
    ranks, passes, name = order.execution["pipeline_par"], order.replica_microbatches, _schedule_name(order.execution)
    if order.shape["tied_embeddings"]:
        raise LaunchError("torchtitan has no pipeline for models that tie the embedding to the head; choose PP 1.")
    least = {"1F1B": ranks, "DualPipeV": 2 * ranks}.get(name, 1)
    if passes < least:
        raise LaunchError(f"{name} of torch needs at least {least} microbatches; a replica has {passes}.")
    rounds = max(1, passes // ranks)
    if name == "Interleaved1F1B" and passes % rounds:
        raise LaunchError(
            f"{name} of torch takes microbatches in {rounds} equal rounds; {rounds} does not divide {passes}."
        )


def _schedule_name(e: Mapping[str, Any]) -> str:
    """The schedule by torch's name; the plain one of as many chunks stands for others."""
    plain = "1F1B" if e["pipeline_interleaving"] == 1 else "Interleaved1F1B"
    return _SCHEDULES.get(str(e["schedule"]), plain)


def _start_keys(order: LaunchOrder, config: FlavorConfig | None, report: Report) -> dict[str, Any]:
    if config is None:
        report.not_expressible(
            f"The model: torchtitan takes shapes from flavors in its code and has none of {_model_title(order)}; "
            "register one and a function MODEL_FLAVOR that configures it."
        )
        return {"module": "MODEL", "config": "MODEL_FLAVOR"}
    return {"module": config.module, "config": config.function}


def _model_title(order: LaunchOrder) -> str:
    return order.model.title or order.model.name


def _degree_keys(e: Mapping[str, Any], report: Report) -> dict[str, Any]:
    stage, replicas, pipelined = e["zero_stage"], e["data_par"], e["pipeline_par"] > 1
    sharded = replicas * e["context_par"] > 1
    shard, policy = replicas, "default"
    if stage == 0:
        shard = 1
        if e["context_par"] > 1:
            report.not_expressible(
                f"{called('zero_stage')} 0: with context parallelism torchtitan shards over its ranks."
            )
    elif stage == 3:
        policy = "always"
    elif stage == 2:
        policy = "never"
    elif not pipelined:
        policy = "never"
        report.not_expressible(
            f"{called('zero_stage')} 1 without a pipeline: FSDP keeps gathered weights (ZeRO 2) instead."
        )
    else:
        report.remark("FSDP under a pipeline stands for ZeRO stage 1: gathered weights stay for the step.")
    if stage == 2 and pipelined:
        report.not_expressible(f"{called('zero_stage')} 2 under a pipeline: gradients are reduced once a step.")
    if stage and not sharded:
        report.not_expressible(f"{called('zero_stage')} {stage} with a single replica.")
    return {
        "parallelism.tensor_parallel_degree": e["tensor_par"],
        "parallelism.enable_sequence_parallel": e["tensor_par_comm_type"] != "ar",
        "parallelism.context_parallel_degree": e["context_par"],
        "parallelism.pipeline_parallel_degree": e["pipeline_par"],
        "parallelism.data_parallel_replicate_degree": replicas if shard == 1 else 1,
        "parallelism.data_parallel_shard_degree": shard,
        "parallelism.fsdp_reshard_after_forward": policy,
        "parallelism.expert_parallel_degree": e["expert_par"],
    }


def _pipeline_keys(order: LaunchOrder, report: Report) -> dict[str, Any]:
    e = order.execution
    pipeline, schedule = e["pipeline_par"], str(e["schedule"])
    if pipeline == 1:
        return {}
    name = _schedule_name(e)
    if schedule not in (*_PLAIN, *_SCHEDULES):
        report.not_expressible(f"{called('schedule')} {choice_label('schedule', schedule)}: {name} stands for it.")
    flags: dict[str, Any] = {"parallelism.pipeline_parallel_schedule": name}
    flags |= cut_keys(order.cut.blocks, pipeline)
    flags["parallelism.num_pp_microbatches"] = order.replica_microbatches
    return flags


def _batch_keys(order: LaunchOrder) -> dict[str, Any]:
    e, sequence = order.execution, order.shape["seq"]
    return {
        "training.max_context_length": sequence,
        "training.num_tokens_per_microbatch_per_dp_rank": e["microbatch_size"] * sequence,
        "training.num_tokens_per_train_step": e["batch_size"] * sequence,
    }


def _software_keys(e: Mapping[str, Any], config: FlavorConfig | None, report: Report) -> dict[str, Any]:
    ring = e["tensor_par_overlap"] != "none" and e["tensor_par"] > 1
    launch, graphs = str(e["launch"]), False
    if launch == "graphs":
        graphs = e["pipeline_par"] == 1 and e["expert_par"] == 1
        if not graphs:
            report.not_expressible(
                f"{called('launch')} CUDA graphs: torchtitan has none with pipelines or with most exchanges of tokens."
            )
    elif launch == "partial_graphs":
        report.not_expressible(f"{called('launch')} partial CUDA graphs: torchtitan has graphs of the full step.")
    elif launch == "fused":
        report.not_expressible(
            f"{called('launch')} fused kernels: kernels are torch's own unless the model is compiled."
        )
    if ring and launch != "compiled":
        report.remark("Overlap of tensor parallel collectives asks for compiled code, so the model is compiled.")
    found = config.datatype if config is not None else "bfloat16"
    if e["datatype"] != found:
        function = config.function if config is not None else "the function"
        report.not_expressible(
            f"{called('datatype')} {choice_label('datatype', e['datatype'])}: converters of the function choose it, "
            f"and {function} trains in {choice_label('datatype', found)}."
        )
    offload = bool(e["weight_offload"] and e["optimizer_offload"])
    if not offload and (e["weight_offload"] or e["optimizer_offload"]):
        report.not_expressible(
            f"{called('weight_offload')} and {called('optimizer_offload')} go together or not at all."
        )
    compiled = launch == "compiled" or ring
    return {
        "training.disable_cuda_graphs": not graphs,
        "training.enable_cpu_offload": offload,
        "compile.enable": compiled,
        "compile.enable_async_tensor_parallel": ring,
    }


def _recompute_keys(e: Mapping[str, Any], report: Report) -> dict[str, Any]:
    kind, selection = str(e["activation_recompute"]), str(e["selective_recompute"])
    if e["recompute_blocks"]:
        report.not_expressible(f"{called('recompute_blocks')}: all blocks are recomputed.")
    if kind != "attn_only":
        return {"activation_checkpoint": kind}
    if selection != "operators":
        report.not_expressible(
            f"{called('selective_recompute')} {choice_label('selective_recompute', selection)}: torchtitan repeats "
            "every second product."
        )
    return {"activation_checkpoint": "selective"}


def _name_the_rest(order: LaunchOrder, report: Report) -> None:
    """Notes which fields torchtitan has no place for."""
    without_predictions(order, report)
    e = order.execution
    if e["expert_par"] > 1 and e["expert_tensor_par"] != 1:
        report.not_expressible(f"{called('expert_tensor_par')}: experts are whole where they are spread over ranks.")
    elif e["expert_par"] == 1 and "experts" in order.shape and e["expert_tensor_par"] != e["tensor_par"]:
        report.not_expressible(
            f"{called('expert_tensor_par')}: experts that are not spread are split as everything else."
        )
    if e["tensor_par_comm_type"] == "p2p_rs_ag":
        report.not_expressible(
            f"{called('tensor_par_comm_type')} p2p RS+AG: sequence parallelism throughout stands for it."
        )
    name_expert_load(e, report)
    name_unwritten(
        e,
        report,
        {"token_dispatcher": "all_to_all", "dispatch_datatype": "bfloat16", "context_par_comm": "p2p"},
        "torchtitan's functions have no setting for it.",
    )
    if e["gradient_datatype"] != "float32":
        report.not_expressible(f"{called('gradient_datatype')} BF16: torchtitan reduces in FP32.")
    if e["fp8_param_gather"]:
        report.not_expressible(f"{called('fp8_param_gather')}: the converter of the function decides it.")
    if e["optimizer_datatype"] != "float32":
        report.not_expressible(f"{called('optimizer_datatype')} BF16: it would take the weights with it.")
    if not e["data_par_overlap"] and e["data_par"] * e["context_par"] > 1:
        report.not_expressible(f"{called('data_par_overlap')} off: torchtitan always overlaps them.")
    if e["activations_offload"]:
        report.not_expressible(f"{called('activations_offload')}.")
    if e["expert_overlap"]:
        report.not_expressible(f"{called('expert_overlap')}: only TOML files of 0.2.2 have it, with DualPipeV.")
    if e["pipeline_overlap"]:
        report.not_expressible(f"{called('pipeline_overlap')}.")
    if e["attention_kernel"] is not None:
        report.not_expressible(f"{called('attention_kernel')}: the backend of the flavor decides.")
