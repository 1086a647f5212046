"""What a configuration of torchtitan says of an execution.

Three dialects go by one name: files in TOML (0.2.2 and before), command lines of 0.3.0, which count batches in
sequences, and those of the main branch of August 2026, which count in tokens. Keys are told apart by what only one of
them has. Read from torchtitan/config of the wheels 0.2.2 and 0.3.0 and of the commit b5bcd76c (BSD-3-Clause).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from engine.launch.contract import LaunchError, Reading
from engine.launch.named_models import library_shape
from engine.launch.report import Report
from engine.launch.settings import Settings
from engine.launch.torchtitan.cuts import read_cut
from engine.launch.torchtitan.flavors import CONFIGS, library_model

__all__ = ["read"]

_TOKENS: Final = "training.num_tokens_per_microbatch_per_dp_rank"
_STEP_TOKENS: Final = "training.num_tokens_per_train_step"
_SHARD: Final = "parallelism.data_parallel_shard_degree"
_HEAD_ONLY: Final = frozenset({_TOKENS, _STEP_TOKENS, "training.max_context_length", "parallelism.num_pp_microbatches"})
_OLD_ONLY: Final = ("model.", "activation_checkpoint.", "quantize.", "job.")
_IGNORED: Final = (
    "job.", "profiling.", "profiler.", "metrics.", "optimizer.", "lr_scheduler.", "dataloader.", "checkpoint.", "comm.",
    "memory_estimation.", "fault_tolerance.", "experimental.", "validation.", "validator.", "debug.", "loss.",
    "training.dataset", "training.dataloader.", "training.steps", "training.max_norm", "training.gc_",
    "model.hf_assets_path", "model.tokenizer_path", "model.print_after_conversion", "hf_assets_path", "dump_folder",
    "activation_checkpoint.per_op_sac", "activation_checkpoint.early_stop", "activation_checkpoint.preserve_rng",
    "activation_checkpoint.determinism", "activation_checkpoint.debug", "activation_checkpoint.visualize",
    "compile.backend", "parallelism.disable_loss_parallel", "parallelism.spmd_backend",
    "parallelism.context_parallel_load_balancer", "parallelism.context_parallel_ptrr_mask_key",
    "training.mixed_precision_reduce",
)  # fmt: skip
"""Keys about data, logging and the like, of which no execution says anything."""
_SINGLE: Final = frozenset({"1f1b", "gpipe", "pipelineschedulesingle"})
_V_SHAPED: Final = {"zbvzerobubble": "zb_v", "dualpipev": "dualpipev"}
_FLOAT8: Final = ("float8", "mxfp8", "mx")


def dialect_of(settings: Settings) -> str:
    """Returns "0.2.2", "0.3.0" or "main", the dialect in which a configuration is written.

    Args:
        settings: keys and values of the configuration.
    """
    if _HEAD_ONLY & set(settings.given):
        return "main"
    if any(name.startswith(_OLD_ONLY) for name in settings.given):
        return "0.2.2"
    return "0.3.0" if {"module", "config"} & set(settings.given) else "0.2.2"


def read(flags: Mapping[str, Any], gpus: int | None = None) -> Reading:
    """Returns what a configuration of torchtitan says.

    Args:
        flags: values by key, such as "parallelism.tensor_parallel_degree"; of functions also "module" and "config".
        gpus: number of GPUs it is started on; torchtitan's files do not say it.

    Raises LaunchError where a value is of no use, or degrees do not multiply to the GPUs.
    """
    settings, report = Settings(flags), Report()
    dialect = dialect_of(settings)
    _read_model(settings, report, dialect)
    gpus = _read_degrees(settings, report, dialect, gpus)
    _read_batch(settings, report, dialect)
    _read_pipeline(settings, report)
    read_cut(settings, report)
    _read_recompute(settings, report, dialect)
    _read_software(settings, report, dialect)
    _read_overlap(settings, report, dialect)
    report.execution["training"] = True
    _list_rest(settings, report)
    return report.reading("torchtitan", dialect, flags, gpus)


def _read_model(settings: Settings, report: Report, dialect: str) -> None:
    family, flavor = settings.word("model.name"), settings.word("model.flavor")
    module, function = settings.word("module"), settings.word("config")
    found = None
    if flavor:
        found = library_model(family, flavor)
    elif function:
        found = next((each.model for each in CONFIGS if each.function == function), None)
    if found is not None:
        report.model = library_shape(found)
    else:
        report.leave("model shape")
        named = f"{family or module} {flavor or function}".strip()
        if named:
            report.remark(f"torchtitan's flavor {named} is not known here; give the model beside it.")
    sequence = settings.whole("training.max_context_length" if dialect == "main" else "training.seq_len")
    if sequence is None and dialect == "0.2.2":
        sequence = 2048
    if sequence is None:
        report.leave("sequence length")
    else:
        report.model["seq"] = sequence
    if "kv_heads" in report.model:
        report.execution["attention_type"] = "multiquery" if report.model["kv_heads"] == 1 else "multihead"


def _read_degrees(settings: Settings, report: Report, dialect: str, gpus: int | None) -> int | None:
    tensor = settings.whole("parallelism.tensor_parallel_degree", 1) or 1
    pipeline = settings.whole("parallelism.pipeline_parallel_degree", 1) or 1
    context = settings.whole("parallelism.context_parallel_degree", 1) or 1
    copies = settings.whole("parallelism.data_parallel_replicate_degree", 1) or 1
    shard = settings.whole(_SHARD, -1, least=-1)
    others = tensor * pipeline * context * copies
    shard = _shard_of(shard or -1, others, gpus)
    report.execution.update(tensor_par=tensor, pipeline_par=pipeline, context_par=context)
    if shard is None:
        report.leave("num_procs", "data_par", "zero_stage")
    else:
        gpus = others * shard
        report.execution.update(data_par=copies * shard, num_procs=gpus)
        _read_sharding(settings, report, copies, shard * context)
    if context > 1 and dialect == "0.2.2":
        method = settings.word("parallelism.context_parallel_rotate_method", "allgather")
        report.remark(f"Keys and values travel by {method}; here they go round a ring.")
    settings.has("parallelism.context_parallel_rotate_method")
    _read_experts(settings, report, dialect, tensor)
    return gpus


def _shard_of(shard: int, others: int, gpus: int | None) -> int | None:
    """Returns the ranks over which weights are sharded; -1 takes what the other degrees leave of the GPUs."""
    if shard > 0:
        if gpus is not None and shard * others != gpus:
            raise LaunchError(
                f"The degrees multiply to {shard * others:,} GPUs, not to {gpus:,}; torchtitan asks for exactly their "
                "product."
            )
        return shard
    if gpus is None:
        return None
    if gpus % others:
        raise LaunchError(
            f"Degrees of {others:,} do not divide {gpus:,} GPUs, so none are left to shard the weights over; give "
            "another number of GPUs."
        )
    return gpus // others


def _read_sharding(settings: Settings, report: Report, copies: int, shared: int) -> None:
    policy = settings.word("parallelism.fsdp_reshard_after_forward", "default").lower()
    if policy not in ("default", "always", "never"):
        raise LaunchError(f"fsdp_reshard_after_forward is {policy!r}; torchtitan knows default, always and never.")
    pipelined = report.execution["pipeline_par"] > 1
    if shared == 1:
        stage = 0
    elif policy == "always" or (policy == "default" and not pipelined):
        stage = 3
    else:
        stage = 1 if pipelined else 2
    if stage == 1:
        report.remark("FSDP under a pipeline keeps gathered weights for the step; read as ZeRO 1.")
    if copies > 1 and shared > 1:
        report.remark(f"Weights are sharded within {copies} groups of replicas; read as sharded over all.")
    report.execution.update(zero_stage=stage, optimizer_sharding=stage >= 1)


def _read_experts(settings: Settings, report: Report, dialect: str, tensor: int) -> None:
    expert = settings.whole("parallelism.expert_parallel_degree", 1) or 1
    given = settings.whole("parallelism.expert_tensor_parallel_degree", 1) or 1
    report.execution.update(expert_par=expert)
    if report.model.get("experts", 0 if "layers" in report.model else None) is None and expert == 1:
        if tensor > 1:
            report.leave("expert_tensor_par")
        else:
            report.execution.update(expert_tensor_par=1)
    elif not report.model.get("experts") and expert == 1:
        report.execution.update(expert_tensor_par=1)
    elif expert == 1:
        # Without expert parallelism experts are split as everything is, whatever the key says.
        report.execution.update(expert_tensor_par=tensor)
    else:
        report.execution.update(expert_tensor_par=given if dialect == "0.2.2" else 1)
    if settings.word("parallelism.expert_parallel_comm_backend", "standard") != "standard":
        report.not_modelled("parallelism.expert_parallel_comm_backend")


def _read_batch(settings: Settings, report: Report, dialect: str) -> None:
    pipelined, replicas = report.execution["pipeline_par"] > 1, report.execution.get("data_par")
    if dialect == "main":
        micro, batch = _batch_of_tokens(settings, report, replicas)
    else:
        default = 8 if dialect == "0.2.2" else None
        local = settings.whole("training.local_batch_size", default)
        small = settings.whole("parallelism.pipeline_parallel_microbatch_size", 1)
        micro = small if pipelined else local
        batch = settings.whole("training.global_batch_size", -1, least=-1)
        if batch is None or batch < 1:
            batch = None if local is None or replicas is None else local * replicas
    for name, found in (("microbatch_size", micro), ("batch_size", batch)):
        if found is None:
            report.leave(name)
        else:
            report.execution[name] = found


def _batch_of_tokens(settings: Settings, report: Report, replicas: int | None) -> tuple[int | None, int | None]:
    sequence, tokens = report.model.get("seq"), settings.whole(_TOKENS)
    step = settings.whole(_STEP_TOKENS, -1, least=-1)
    microbatches = settings.whole("parallelism.num_pp_microbatches", 1) or 1
    if sequence is None or tokens is None:
        return None, None
    if tokens % sequence:
        raise LaunchError(
            f"{_TOKENS} is {tokens:,}, no whole number of sequences of {sequence:,} tokens; sequences are not cut here."
        )
    micro = tokens // sequence
    if step is None or step < 1:
        if replicas is None:
            return micro, None
        passes = microbatches if report.execution["pipeline_par"] > 1 else 1
        return micro, micro * passes * replicas
    if step % sequence:
        raise LaunchError(f"{_STEP_TOKENS} is {step:,}, no whole number of sequences of {sequence:,} tokens.")
    return micro, step // sequence


def _read_pipeline(settings: Settings, report: Report) -> None:
    schedule = settings.word("parallelism.pipeline_parallel_schedule", "1F1B")
    layers = settings.whole("parallelism.pipeline_parallel_layers_per_stage")
    first = settings.whole("parallelism.pipeline_parallel_first_stage_less_layers", 1, least=0) or 0
    last = settings.whole("parallelism.pipeline_parallel_last_stage_less_layers", 1, least=0) or 0
    parts = settings.given.get("parallelism.module_fqns_per_model_part")
    settings.has("parallelism.module_fqns_per_model_part")
    pipeline, kind = report.execution["pipeline_par"], schedule.lower()
    report.execution.update(pipeline_overlap=False)
    if settings.has("parallelism.pipeline_parallel_schedule_csv"):
        report.not_modelled("parallelism.pipeline_parallel_schedule_csv")
    if pipeline == 1 or kind in _SINGLE:
        report.execution.update(pipeline_interleaving=1)
        if pipeline > 1 and kind != "1f1b":
            report.not_modelled(f"parallelism.pipeline_parallel_schedule {schedule}; read as 1F1B")
        return
    chunks: int | None = 2
    if isinstance(parts, list) and parts:
        chunks = _chunks(len(parts), pipeline, report)
    elif layers is not None:
        blocks = report.model.get("layers")
        chunks = None if blocks is None else _chunks(math.ceil((blocks + first + last) / layers), pipeline, report)
    if chunks is None:
        report.leave("pipeline_interleaving")
    else:
        report.execution.update(pipeline_interleaving=chunks)
    if kind in _V_SHAPED:
        report.execution.update(schedule=_V_SHAPED[kind])
    elif kind != "interleaved1f1b":
        report.not_modelled(f"parallelism.pipeline_parallel_schedule {schedule}; read as interleaved 1F1B")


def _chunks(stages: int, pipeline: int, report: Report) -> int | None:
    if stages % pipeline:
        report.remark(f"{stages} stages on {pipeline} pipeline ranks: torchtitan refuses this.")
        return None
    return stages // pipeline


def _read_recompute(settings: Settings, report: Report, dialect: str) -> None:
    report.execution.update(selective_recompute="attention")
    if dialect == "0.2.2":
        kind = settings.word("activation_checkpoint.mode", "selective").lower()
        option = settings.word("activation_checkpoint.selective_ac_option", "2").lower()
        settings.has("activation_checkpoint.memory_budget")
    else:
        kind = settings.word("activation_checkpoint").lower().removesuffix("ac").replace("-", "_")
        option = "op"
    if kind in ("none", "full"):
        report.execution.update(activation_recompute=kind)
    elif kind == "selective":
        report.execution.update(
            activation_recompute="attn_only", selective_recompute="operators" if option == "op" else "half"
        )
        if option not in ("op", "2"):
            report.remark(f"Every {option}th block is recomputed; the nearest here is every second one.")
    elif kind in ("memory_budget", "memorybudget"):
        report.not_modelled("activation_checkpoint memory budget")
        report.leave("activation_recompute")
        del report.execution["selective_recompute"]
    elif not kind and dialect != "0.2.2":
        given = settings.given.get("activation_checkpoint", "")
        if isinstance(given, str) and given.strip().lower() == "none":
            report.execution.update(activation_recompute="none")
            return
        report.leave("activation_recompute")
        del report.execution["selective_recompute"]
    else:
        raise LaunchError(f"activation_checkpoint is {kind!r}; torchtitan knows none, selective, full, memory_budget.")


def _read_software(settings: Settings, report: Report, dialect: str) -> None:
    function = settings.word("config")
    kinds = [each.lower() for each in settings.words("model.converters")]
    if any("nvfp4" in each for each in kinds) or "nvfp4" in function:
        datatype = "float4"
    elif any(kind in each for each in kinds for kind in _FLOAT8):
        datatype = "float8"
    elif function:
        datatype = next((each.datatype for each in CONFIGS if each.function == function), "bfloat16")
    else:
        datatype = settings.word("training.mixed_precision_param", "bfloat16")
    settings.has("training.mixed_precision_param")
    report.execution.update(datatype=datatype, gradient_datatype="float32", optimizer_datatype="float32")
    if settings.word("training.dtype", "float32") != "float32":
        report.not_modelled("training.dtype bfloat16 (no copy of the weights in FP32)")
    compiled = settings.truth("compile.enable") and "model" in settings.words("compile.components", ("model", "loss"))
    settings.has("compile.components")
    launch = "compiled" if compiled else "eager"
    if dialect != "0.2.2":
        graphs = not settings.truth("training.disable_cuda_graphs")
        possible = report.execution["pipeline_par"] == 1 and report.execution["expert_par"] == 1
        launch = "graphs" if graphs and possible else launch
    report.execution.update(launch=launch)
    report.leave("attention_kernel")
    offload = settings.truth("training.enable_cpu_offload")
    report.execution.update(weight_offload=offload, optimizer_offload=offload, activations_offload=False)
    if settings.truth("parallelism.enable_fsdp_symm_mem"):
        report.not_modelled("parallelism.enable_fsdp_symm_mem")


def _read_overlap(settings: Settings, report: Report, dialect: str) -> None:
    tensor = report.execution["tensor_par"]
    sequence = settings.truth("parallelism.enable_sequence_parallel", True)
    gathered = tensor > 1 and (sequence or dialect == "0.2.2")
    # The switch of 0.2.2 and of later versions; it does nothing unless the model is compiled.
    asked = [settings.truth(f"{room}.enable_async_tensor_parallel") for room in ("parallelism", "compile")]
    ring = any(asked) and tensor > 1 and "model" in settings.words("compile.components", ("model", "loss"))
    ring = ring and settings.truth("compile.enable")
    report.execution.update(
        tensor_par_comm_type="rs_ag" if gathered else "ar",
        seq_par_ag_redo=gathered,
        tensor_par_overlap="ring" if ring else "none",
        data_par_overlap=report.execution.get("data_par", 2) * report.execution["context_par"] > 1,
    )
    overlap = settings.truth("parallelism.pipeline_parallel_expert_parallel_overlap", True)
    report.execution.update(
        expert_overlap=bool(
            overlap
            and report.execution.get("schedule") == "dualpipev"
            and report.execution["expert_par"] > 1
            and report.execution.get("activation_recompute") == "none"
        )
    )


def _list_rest(settings: Settings, report: Report) -> None:
    for name in settings.rest():
        value = settings.given[name]
        if name.startswith("quantize."):
            if value not in (False, "", None, []):
                report.not_modelled(name)
        elif not name.startswith(_IGNORED):
            report.unread(name)
