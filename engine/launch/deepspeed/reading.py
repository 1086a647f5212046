"""What DeepSpeed's JSON says of an execution: batch, sharding, offload, precision; the rest stands in the code.

Defaults and rules are those of DeepSpeed 0.19.8 (runtime/config.py, runtime/zero/config.py; Apache-2.0).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from engine.launch.contract import LaunchError, Reading
from engine.launch.deepspeed.keys import KNOWN, ZERO_KEYS
from engine.launch.report import Report
from engine.launch.settings import Settings
from models.documents import shown

__all__ = ["read"]

_LEFT: Final = ("model shape", "sequence length", "activation_recompute", "attention_kernel", "launch")
_NOT_MODELLED: Final = (
    "sub_group_size", "zero_quantized_weights", "zero_quantized_nontrainable_weights", "zero_quantized_gradients",
    "zeropp_loco_param", "zenflow", "super_offload", "mics_hierarchical_params_gather",
)  # fmt: skip
_DEPRECATED_OFFLOAD: Final = {"offload_optimizer": "cpu_offload", "offload_param": "cpu_offload_param"}
_COMMUNICATION: Final = {
    "fp32": "float32", "torch.float32": "float32", "float32": "float32", "float": "float32",
    "bf16": "bfloat16", "bfp16": "bfloat16", "bfloat16": "bfloat16", "torch.bfloat16": "bfloat16",
    "fp16": "bfloat16", "float16": "bfloat16", "torch.float16": "bfloat16", "half": "bfloat16",
}  # fmt: skip
_AUTO: Final = "auto"


def read(flags: Mapping[str, Any], gpus: int | None = None) -> Reading:
    """Returns what DeepSpeed's JSON says.

    Args:
        flags: the document, nested as it is.
        gpus: number of GPUs it is started on; the file does not say it.

    Raises LaunchError where a value is of no use.
    """
    report = Report()
    document = _without_auto(flags, "", report)
    report.leave(*_LEFT)
    settings = Settings(document)
    report.execution.update(pipeline_par=1, pipeline_interleaving=1, training=True, pipeline_overlap=False)
    report.execution["expert_overlap"] = False
    zero = _read_zero(settings, report)
    ranks = _read_degrees(settings, report, gpus)
    _read_batch(settings, report, gpus, ranks)
    _read_precision(settings, report)
    _read_offload(settings, zero, report)
    _read_code(settings, report)
    for name in document:
        if name not in KNOWN:
            report.unread(name)
    return report.reading("deepspeed", "0.19.8", flags, gpus)


def _without_auto(document: Mapping[str, Any], prefix: str, report: Report) -> dict[str, Any]:
    """Returns a document without the values that Hugging Face's Trainer fills in."""
    kept: dict[str, Any] = {}
    for key, value in document.items():
        if isinstance(value, str) and value.strip().lower() == _AUTO:
            report.leave(f"{prefix}{key}")
            report.remark('Values of "auto" are filled in by Hugging Face\'s Trainer; DeepSpeed itself refuses them.')
        elif isinstance(value, Mapping) and prefix.count(".") < 4:
            kept[str(key)] = _without_auto(value, f"{prefix}{key}.", report)
        else:
            kept[str(key)] = value
    return kept


def _section(settings: Settings, name: str) -> Settings:
    """Returns a section of the document; an absent one is empty, and `true` stands for an enabled one."""
    found = settings.given.get(name)
    if found is None:
        return Settings({})
    if isinstance(found, bool):
        return Settings({"enabled": found, "stage": int(found)})
    if not isinstance(found, Mapping):
        raise LaunchError(f"{name} is {shown(found)}; it must be a table in braces.")
    return Settings(found)


def _read_zero(settings: Settings, report: Report) -> Settings:
    zero = _section(settings, "zero_optimization")
    stage = zero.whole("stage", 0, least=0) or 0
    if stage > 3:
        raise LaunchError(f"zero_optimization.stage is {stage}; DeepSpeed knows 0, 1, 2 and 3.")
    # Buckets of stage 0 are always reduced while the backward pass runs.
    overlap = True if stage == 0 else zero.truth("overlap_comm", stage == 3)
    if stage == 0:
        report.remark("Without ZeRO gradients are reduced in buckets during the backward pass.")
    report.execution.update(zero_stage=stage, optimizer_sharding=stage >= 1, data_par_overlap=overlap)
    for name, value in zero.given.items():
        if name not in ZERO_KEYS and name != "enabled":
            report.unread(f"zero_optimization.{name}")
            report.refuse(f"zero_optimization has no key {name}; DeepSpeed refuses what it does not know there.")
        elif name.startswith("stage3_") or (name in _NOT_MODELLED and value not in (False, None, {})):
            report.not_modelled(f"zero_optimization.{name}")
    if (zero.whole("zero_hpz_partition_size", 1, least=0) or 1) > 1:
        report.not_modelled("zero_optimization.zero_hpz_partition_size")
    if (zero.whole("mics_shard_size", -1, least=-1) or -1) > 1:
        report.not_modelled("zero_optimization.mics_shard_size")
        report.remark("Weights are sharded within groups of replicas; read as sharded over all.")
    return zero


def _read_degrees(settings: Settings, report: Report, gpus: int | None) -> int | None:
    """Reads the degrees and returns the ranks by which DeepSpeed counts batches, None where they are not known."""
    tensor = _section(settings, "tensor_parallel").whole("autotp_size", 0, least=0) or 1
    overlap = _section(settings, "tensor_parallel").truth("tp_overlap_comm")
    context = settings.whole("sequence_parallel_size", 1) or 1
    experts = _section(settings, "expert_parallel")
    enabled = experts.truth("enabled")
    expert = (experts.whole("autoep_size", 1) or 1) if enabled else 1
    split = (experts.whole("expert_tensor_parallel_size", 1) or 1) if enabled else 1
    report.execution.update(
        tensor_par=tensor, context_par=context, expert_par=expert, expert_tensor_par=split, tensor_par_comm_type="ar",
        tensor_par_overlap="ring" if overlap and tensor > 1 else "none",
    )  # fmt: skip
    if overlap and tensor > 1:
        report.remark("The overlap hides all-reduces; ring stands for it.")
    if context > 1:
        report.remark("Sequence parallelism is Ulysses, which exchanges heads; here it is a ring.")
    if enabled and tensor > 1:
        report.refuse("DeepSpeed has no expert parallelism beside automatic tensor parallelism.")
    if split > 1:
        report.refuse("DeepSpeed splits no expert over tensor ranks.")
    if gpus is None:
        report.leave("num_procs", "data_par")
        return None
    if gpus % (tensor * context):
        raise LaunchError(
            f"Tensor {tensor} x sequence parallel {context} does not divide {gpus:,} GPUs; give another number of GPUs."
        )
    replicas = gpus // (tensor * context)
    given = settings.whole("data_parallel_size")
    if given is not None and given * context != gpus // tensor:
        report.refuse(f"data_parallel_size {given} x sequence_parallel_size {context} is not {gpus:,} GPUs.")
    report.execution.update(num_procs=gpus, data_par=replicas)
    if replicas * context == 1:
        report.execution["data_par_overlap"] = False
    return gpus // context


def _read_batch(settings: Settings, report: Report, gpus: int | None, ranks: int | None) -> None:
    """Two of batch, microbatch and accumulation give the third; ranks of a tensor group count as replicas there."""
    total = settings.whole("train_batch_size")
    micro = settings.whole("train_micro_batch_size_per_gpu")
    steps = settings.whole("gradient_accumulation_steps")
    if total is None and micro is None:
        if not any("batch_size" in each for each in report.listed("left")):
            report.refuse("DeepSpeed asks for train_batch_size or train_micro_batch_size_per_gpu.")
        report.leave("batch_size", "microbatch_size")
        return
    if ranks is None:
        if micro is not None:
            report.execution["microbatch_size"] = micro
        if total is not None and report.execution["tensor_par"] == 1:
            report.execution["batch_size"] = total
        report.leave(*(name for name in ("microbatch_size", "batch_size") if name not in report.execution))
        return
    if micro is None:
        micro = (total or 0) // ranks // (steps or 1)
    if steps is None:
        steps = 1 if total is None else total // micro // ranks if micro else 0
    if micro < 1 or steps < 1 or (total is not None and total != micro * steps * ranks):
        report.refuse(
            f"train_batch_size {total} is not {micro} sequences x {steps} accumulation steps x {ranks} ranks."
        )
        micro, steps = max(micro, 1), max(steps, 1)
    report.execution.update(microbatch_size=micro, batch_size=micro * steps * int(report.execution["data_par"]))


def _read_precision(settings: Settings, report: Report) -> None:
    brain = _section(settings, "bf16" if "bf16" in settings.given else "bfloat16")
    half = _section(settings, "fp16")
    if brain.truth("enabled") and half.truth("enabled"):
        report.refuse("bf16 and fp16 exclude each other.")
    datatype = "bfloat16" if brain.truth("enabled") else "float16" if half.truth("enabled") else "float32"
    for name in ("torch_autocast", "amp"):
        if _section(settings, name).truth("enabled"):
            report.remark(f"{name} chooses the datatype of each operation; read as {datatype}.")
    small = brain.truth("bf16_master_weights_and_grads") and brain.truth("bf16_optimizer_states")
    if small:
        report.remark("Master weights are in BF16, too; here they stay in FP32.")
    report.execution.update(datatype=datatype, optimizer_datatype="bfloat16" if small else "float32")
    if datatype == "float32" and {"bf16.enabled", "bfloat16.enabled", "fp16.enabled"} & {*report.listed("left")}:
        del report.execution["datatype"]
        report.leave("datatype")
    named = settings.word("communication_data_type").lower()
    if not named:
        report.leave("gradient_datatype")
    elif named not in _COMMUNICATION:
        raise LaunchError(f"communication_data_type is {shown(named)}; DeepSpeed knows fp32, bf16 and fp16.")
    else:
        report.execution["gradient_datatype"] = _COMMUNICATION[named]
        if "16" in named and "b" not in named:
            report.remark("Gradients travel in FP16; BF16, which has as many bytes, stands for it.")


def _read_offload(settings: Settings, zero: Settings, report: Report) -> None:
    stage = report.execution["zero_stage"]
    for name, field in (("offload_optimizer", "optimizer_offload"), ("offload_param", "weight_offload")):
        section = _section(zero, name)
        device = section.word("device", "none").lower()
        if device not in ("none", "cpu", "nvme"):
            raise LaunchError(f"zero_optimization.{name}.device is {shown(device)}; DeepSpeed knows none, cpu, nvme.")
        on = device != "none" or zero.truth(_DEPRECATED_OFFLOAD[name])
        ratio = section.number("ratio", 1.0)
        if device == "nvme":
            report.not_modelled(f"zero_optimization.{name}.device nvme; read as host memory")
        if on and ratio is not None and ratio < 1.0:
            report.remark(f"{ratio:g} of the optimizer is offloaded; all or nothing here.")
            on = ratio >= 0.5
        report.execution[field] = on
    if report.execution["weight_offload"] and stage < 3:
        report.remark("Weights are offloaded at ZeRO stage 3 only, by DeepSpeed's documentation.")
    if report.execution["optimizer_offload"] and stage < 1:
        report.refuse("The optimizer is offloaded from ZeRO stage 1 on.")
    kept = _section(settings, "activation_checkpointing")
    report.execution["activations_offload"] = kept.truth("cpu_checkpointing")
    if kept.truth("partition_activations"):
        report.not_modelled("activation_checkpointing.partition_activations (needs tensor parallelism)")


def _read_code(settings: Settings, report: Report) -> None:
    """Reads the little that the JSON says of what the code decides."""
    pipeline = _section(settings, "pipeline")
    if pipeline.given:
        report.leave("pipeline_par")
        report.remark("Stages are PipelineModule's in the code; read as one stage.")
    if pipeline.whole("activation_checkpoint_interval", 0, least=0):
        report.execution.update(activation_recompute="full", selective_recompute="attention")
        report.lists["left"].pop("activation_recompute", None)
    if _section(settings, "compile").truth("deepcompile"):
        report.execution["launch"] = "compiled"
        report.lists["left"].pop("launch", None)
    for name in ("elasticity", "compression_training", "progressive_layer_drop", "sparse_attention", "super_offload"):
        if settings.given.get(name):
            report.not_modelled(name)
