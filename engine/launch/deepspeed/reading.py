"""DeepSpeed's JSON as an execution: batch, sharding, offload, precision; the user's code sets the rest.

Defaults and rules come from DeepSpeed 0.19.8 (runtime/config.py, runtime/zero/config.py; Apache-2.0).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from engine.launch.contract import LaunchError, LaunchInputs, LaunchReading, UnknownValue
from engine.launch.deepspeed.keys import KNOWN, WITHOUT_EFFECT, ZERO_KEYS, ZERO_WITHOUT_EFFECT
from engine.launch.not_expressible import read_expert_load
from engine.launch.report import OPEN, Report
from engine.launch.settings import LaunchSettings
from engine.launch.yaml_files import is_expression
from models.documents import shown

__all__ = ["read_configuration"]

_LEFT: Final = ("model shape", "sequence length", "attention_kernel")
_DEPRECATED_OFFLOAD: Final = {"offload_optimizer": "cpu_offload", "offload_param": "cpu_offload_param"}
_COMMUNICATION: Final = {
    "fp32": "float32",
    "torch.float32": "float32",
    "float32": "float32",
    "float": "float32",
    "bf16": "bfloat16",
    "bfp16": "bfloat16",
    "bfloat16": "bfloat16",
    "torch.bfloat16": "bfloat16",
    "fp16": "bfloat16",
    "float16": "bfloat16",
    "torch.float16": "bfloat16",
    "half": "bfloat16",
}
_AUTO: Final = "auto"


def read_configuration(flags: Mapping[str, Any], asked: LaunchInputs) -> LaunchReading:
    """Return the execution that DeepSpeed's JSON describes.

    Args:
        flags: the document, nested as it is.
        asked: what the caller states beside it; the file does not say the number of GPUs.

    Raises LaunchError where a value is of no use.
    """
    report = Report("DeepSpeed", asked)
    document = _with_unknown_values(flags, "", report)
    report.leave(*_LEFT)
    settings = LaunchSettings(document, report)
    for name, value in (
        ("pipeline_interleaving", 1),
        ("training", True),
        ("pipeline_overlap", False),
        ("expert_overlap", False),
        ("token_dispatcher", "all_to_all"),
        ("dispatch_datatype", "bfloat16"),
    ):
        report.say(name, partial(lambda each: each, value))
    _read_zero(settings, report)
    _read_degrees(settings, report)
    _read_batch(settings, report)
    _read_precision(settings, report)
    _read_offload(settings, report)
    _read_code(settings, report)
    read_expert_load(report)
    _name_rest(document, report)
    if asked.model and "seq" in asked.model:
        report.lists.get("left", {}).pop("sequence length", None)
    return report.reading("deepspeed", "0.19.8", flags)


def _with_unknown_values(document: Mapping[str, Any], prefix: str, report: Report) -> dict[str, Any]:
    """A document whose "auto", which Hugging Face's Trainer fills in, and expressions of templates are unknown."""
    kept: dict[str, Any] = {}
    for key, value in document.items():
        if isinstance(value, str) and value.strip().lower() == _AUTO:
            report.leave(f"{prefix}{key}")
            report.remark('Values of "auto" are filled in by Hugging Face\'s Trainer; DeepSpeed itself refuses them.')
            kept[str(key)] = UnknownValue('"auto"')
        elif isinstance(value, str) and is_expression(value):
            kept[str(key)] = UnknownValue(value[:160])
        elif isinstance(value, Mapping) and prefix.count(".") < 4:
            kept[str(key)] = _with_unknown_values(value, f"{prefix}{key}.", report)
        else:
            kept[str(key)] = value
    return kept


def _zero_settings(settings: LaunchSettings) -> LaunchSettings:
    return settings.section("zero_optimization")


def _read_zero(settings: LaunchSettings, report: Report) -> None:
    def stage() -> int:
        found = _zero_settings(settings).whole("stage", 0, least=0) or 0
        if found > 3:
            raise LaunchError(f"zero_optimization.stage is {found}; DeepSpeed knows 0, 1, 2 and 3.")
        return found

    def overlap() -> bool:
        found = stage()
        # Buckets of stage 0 are always reduced while the backward pass runs.
        if found == 0:
            report.remark("Without ZeRO gradients are reduced in buckets during the backward pass.")
        on = True if found == 0 else _zero_settings(settings).truth("overlap_comm", found == 3)
        known = report.execution.known("data_par"), report.execution.known("context_par")
        return on and known != (1, 1)

    def groups() -> None:
        zero = _zero_settings(settings)
        if (zero.whole("zero_hpz_partition_size", 1, least=0) or 1) > 1:
            report.not_modelled("zero_optimization.zero_hpz_partition_size")
        if (zero.whole("mics_shard_size", -1, least=-1) or -1) > 1:
            report.not_modelled("zero_optimization.mics_shard_size")
            report.remark("Weights are sharded within groups of replicas; read as sharded over all.")

    report.say("zero_stage", stage)
    report.say("optimizer_sharding", lambda: stage() >= 1)
    report.say("data_par_overlap", overlap)
    report.note(groups)
    for name, value in _zero_settings(settings).given.items():
        if name not in ZERO_KEYS and name != "enabled":
            report.unread(f"zero_optimization.{name}")
            report.refuse(f"zero_optimization has no key {name}; DeepSpeed refuses what it does not know there.")
        elif name in ZERO_WITHOUT_EFFECT:
            report.without_effect(f"zero_optimization.{name}")
        elif name not in _ZERO_READ and value not in (False, None, {}):
            report.not_modelled(f"zero_optimization.{name}")


_ZERO_READ: Final = frozenset(
    {
        "stage",
        "enabled",
        "overlap_comm",
        "offload_param",
        "offload_optimizer",
        "cpu_offload",
        "cpu_offload_param",
        "zero_hpz_partition_size",
        "mics_shard_size",
    }
)


def _read_degrees(settings: LaunchSettings, report: Report) -> None:
    e, say = report.execution, report.say

    def tensor() -> int:
        return settings.section("tensor_parallel").whole("autotp_size", 0, least=0) or 1

    def overlap() -> str:
        on = settings.section("tensor_parallel").truth("tp_overlap_comm") and e["tensor_par"] > 1
        if on:
            report.remark("The overlap hides all-reduces; ring stands for it.")
        return "ring" if on else "none"

    def of_experts(name: str) -> int:
        experts = settings.section("expert_parallel")
        return (experts.whole(name, 1) or 1) if experts.truth("enabled") else 1

    def replicas() -> Any:
        gpus, each = int(e["num_procs"]), int(e["tensor_par"]) * int(e["context_par"])
        if gpus % each:
            raise LaunchError(
                f"Tensor {e['tensor_par']} x sequence parallel {e['context_par']} does not divide {gpus:,} GPUs; give "
                "another number of GPUs."
            )
        return gpus // each

    def check() -> None:
        if settings.section("expert_parallel").truth("enabled") and e["tensor_par"] > 1:
            report.refuse("DeepSpeed has no expert parallelism beside automatic tensor parallelism.")
        if e["expert_tensor_par"] > 1:
            report.refuse("DeepSpeed splits no expert over tensor ranks.")
        given = settings.whole("data_parallel_size")
        if given is not None and given * e["context_par"] != e["num_procs"] // e["tensor_par"]:
            report.refuse(
                f"data_parallel_size {given} x sequence_parallel_size {e['context_par']} is not "
                f"{e['num_procs']:,} GPUs."
            )

    say("tensor_par", tensor)
    say("tensor_par_comm_type", lambda: "ar")
    say("tensor_par_overlap", overlap)
    say("context_par", lambda: settings.whole("sequence_parallel_size", 1) or 1)
    # Its sequence parallelism is Ulysses, which exchanges heads.
    say("context_par_comm", lambda: "a2a" if e["context_par"] > 1 else "p2p")
    say("expert_par", lambda: of_experts("autoep_size"))
    say("expert_tensor_par", lambda: of_experts("expert_tensor_parallel_size"))
    say("num_procs", report.told_gpus)
    say("data_par", replicas, "GPUs / (tensor x sequence parallel)")
    report.note(check)
    if e.known("data_par") == 1 and e.known("context_par") == 1 and "data_par_overlap" in e.values_known:
        report.say("data_par_overlap", lambda: False)


def _read_batch(settings: LaunchSettings, report: Report) -> None:
    """Two of batch, microbatch and accumulation give the third; ranks of a tensor group count as replicas there."""
    e = report.execution

    def given() -> tuple[int | None, int | None, int | None]:
        return (
            settings.whole("train_batch_size"),
            settings.whole("train_micro_batch_size_per_gpu"),
            settings.whole("gradient_accumulation_steps"),
        )

    def resolved() -> tuple[int, int]:
        total, micro, steps = given()
        ranks = int(e["num_procs"]) // int(e["context_par"])
        if micro is None:
            micro = (total or 0) // ranks // (steps or 1)
        if steps is None:
            steps = 1 if total is None else total // micro // ranks if micro else 0
        if micro < 1 or steps < 1 or (total is not None and total != micro * steps * ranks):
            report.refuse(
                f"train_batch_size {total} is not {micro} sequences x {steps} accumulation steps x {ranks} ranks."
            )
            micro, steps = max(micro, 1), max(steps, 1)
        return micro, steps

    def microbatch() -> Any:
        own = settings.whole("train_micro_batch_size_per_gpu")
        if own is not None:
            return own
        return OPEN if given()[0] is None else resolved()[0]

    def batch() -> Any:
        total, micro, _ = given()
        if total is None and micro is None:
            return OPEN
        if total is not None and "num_procs" not in e.values_known and e["tensor_par"] == 1:
            return total
        each, steps = resolved()
        return each * steps * int(e["data_par"])

    report.say("microbatch_size", microbatch)
    report.say("batch_size", batch)

    def check() -> None:
        if given()[:2] == (None, None):
            report.refuse("DeepSpeed asks for train_batch_size or train_micro_batch_size_per_gpu.")

    report.note(check)


def _read_precision(settings: LaunchSettings, report: Report) -> None:
    def brain() -> LaunchSettings:
        return settings.section("bf16" if "bf16" in settings.given else "bfloat16")

    def datatype() -> str:
        is_brain = brain().truth("enabled")
        is_half = settings.section("fp16").truth("enabled")
        if is_brain and is_half:
            report.refuse("bf16 and fp16 exclude each other.")
        found = "bfloat16" if is_brain else "float16" if is_half else "float32"
        for name in ("torch_autocast", "amp"):
            if settings.section(name).truth("enabled"):
                report.remark(f"{name} chooses the datatype of each operation; read as {found}.")
        return found

    def moments() -> str:
        small = brain().truth("bf16_master_weights_and_grads") and brain().truth("bf16_optimizer_states")
        if small:
            report.remark("Master weights are in BF16, too; here they stay in FP32.")
        return "bfloat16" if small else "float32"

    def gradients() -> Any:
        named = settings.word("communication_data_type").lower()
        if not named:
            return OPEN
        if named not in _COMMUNICATION:
            raise LaunchError(f"communication_data_type is {shown(named)}; DeepSpeed knows fp32, bf16 and fp16.")
        if "16" in named and "b" not in named:
            report.remark("Gradients travel in FP16; BF16, which has as many bytes, stands for it.")
        return _COMMUNICATION[named]

    report.say("datatype", datatype)
    report.say("optimizer_datatype", moments)
    report.say("gradient_datatype", gradients)
    report.say("fp8_param_gather", lambda: False)


def _read_offload(settings: LaunchSettings, report: Report) -> None:
    e = report.execution

    def offloaded(name: str) -> bool:
        section = _zero_settings(settings).section(name)
        device = section.word("device", "none").lower()
        if device not in ("none", "cpu", "nvme"):
            raise LaunchError(f"zero_optimization.{name}.device is {shown(device)}; DeepSpeed knows none, cpu, nvme.")
        on = device != "none" or _zero_settings(settings).truth(_DEPRECATED_OFFLOAD[name])
        ratio = section.number("ratio", 1.0)
        if device == "nvme":
            report.not_modelled(f"zero_optimization.{name}.device nvme; read as host memory")
        if on and ratio is not None and ratio < 1.0:
            report.remark(f"{ratio:g} of the optimizer is offloaded; all or nothing here.")
            on = ratio >= 0.5
        return on

    def check() -> None:
        if e["weight_offload"] and e["zero_stage"] < 3:
            report.remark("Weights are offloaded at ZeRO stage 3 only, by DeepSpeed's documentation.")
        if e["optimizer_offload"] and e["zero_stage"] < 1:
            report.refuse("The optimizer is offloaded from ZeRO stage 1 on.")
        if settings.section("activation_checkpointing").truth("partition_activations"):
            report.not_modelled("activation_checkpointing.partition_activations (needs tensor parallelism)")

    report.say("optimizer_offload", lambda: offloaded("offload_optimizer"))
    report.say("weight_offload", lambda: offloaded("offload_param"))
    report.say("activations_offload", lambda: settings.section("activation_checkpointing").truth("cpu_checkpointing"))
    report.note(check)


def _read_code(settings: LaunchSettings, report: Report) -> None:
    """Read the few entries of the JSON on choices that the training code makes."""

    def stages() -> Any:
        if settings.section("pipeline").given:
            report.remark("Stages are PipelineModule's in the code, which the file does not say.")
            return OPEN
        return 1

    def recompute() -> Any:
        every = settings.section("pipeline").whole("activation_checkpoint_interval", 0, least=0)
        return "full" if every else OPEN

    report.say("pipeline_par", stages)
    report.say("activation_recompute", recompute)
    report.say("recompute_blocks", lambda: 0)
    if report.execution.known("activation_recompute") == "full":
        report.say("selective_recompute", lambda: "attention")
    report.say("launch", lambda: "compiled" if settings.section("compile").truth("deepcompile") else OPEN)


def _name_rest(document: Mapping[str, Any], report: Report) -> None:
    """Names the keys at the top that nothing here depends on."""
    read = {
        "train_batch_size",
        "train_micro_batch_size_per_gpu",
        "gradient_accumulation_steps",
        "zero_optimization",
        "communication_data_type",
        "expert_parallel",
        "tensor_parallel",
        "sequence_parallel_size",
        "data_parallel_size",
        "activation_checkpointing",
        "bf16",
        "bfloat16",
        "fp16",
        "amp",
        "torch_autocast",
        "pipeline",
        "compile",
    }
    for name, value in document.items():
        if name not in KNOWN:
            report.unread(name)
        elif name in WITHOUT_EFFECT:
            report.without_effect(name)
        elif name not in read and value not in (False, None, {}):
            report.not_modelled(name)
