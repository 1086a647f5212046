"""Arguments about memory as fields of an execution: sharding, offloading and recomputation."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from engine.columns.recompute_modules import ATTENTION_CORE, MODULES, word_of_modules
from engine.launch.contract import LaunchError
from engine.launch.megatron.arguments import Arguments
from engine.launch.report import OPEN, Report, parse_integer
from models.documents import shown

__all__ = ["read_memory", "read_recompute"]

_SHARDING: Final = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}


def read_memory(args: Arguments, report: Report) -> None:
    """Read sharding of replicas and offloading.

    Args:
        args: arguments of Megatron-Core.
        report: receives the fields.
    """
    e = report.execution
    report.say("zero_stage", partial(_read_zero_stage, args, report))
    report.say("optimizer_sharding", lambda: e["zero_stage"] >= 1)
    e.origins["optimizer_sharding"] = e.origins["zero_stage"]

    def gathers() -> None:
        if e["optimizer_sharding"] and e["data_par_overlap"] and not args.has_overlap("overlap_param_gather"):
            report.not_modelled(f"{args.name('overlap_param_gather')} is off: gathers of weights that are not hidden")

    report.note(gathers)
    for name in (
        "nccl_ub",
        "tensor_parallel_num_weight_shards",
        "distribute_saved_activations",
        "defer_embedding_wgrad_compute",
    ):
        report.note(partial(args.note_if_given, report, name))

    def instances() -> None:
        number = args.given("num_distributed_optimizer_instances")
        if number not in (None, 1):
            name = args.name("num_distributed_optimizer_instances")
            report.not_modelled(f"{name} {number}: sharded inside a group")

    report.note(instances)
    _read_offloads(args, report)


def _read_zero_stage(args: Arguments, report: Report) -> Any:
    if args.given("deepspeed"):
        if args.given("zero_stage") is None:
            return OPEN  # DeepSpeed's JSON says it
        stage = args.number("zero_stage", 1, 0)
        if stage > 3:
            raise LaunchError(f"{args.name('zero_stage')} is {stage}; DeepSpeed knows 0, 1, 2 and 3.")
        return stage
    if args.on("use_megatron_fsdp"):
        strategy = args.word("data_parallel_sharding_strategy") or "optim_grads_params"
        stage = _SHARDING.get(strategy, 3)
        if stage == 3 and args.given("outer_dp_sharding_strategy") not in (None, "no_shard"):
            report.not_modelled(args.name("outer_dp_sharding_strategy"))
        return stage
    if args.on("use_torch_fsdp2"):
        return 3 if args["torch_fsdp2_reshard_after_forward"] is not False else 2
    return int(args.on("use_distributed_optimizer"))


def _read_offloads(args: Arguments, report: Report) -> None:
    def optimizer() -> bool:
        if not args.on("optimizer_cpu_offload"):
            return False
        share = _parse_share(args["optimizer_offload_fraction"], args.name("optimizer_offload_fraction"))
        if share < 1.0:
            report.remark(f"{share:.0%} of the optimizer is offloaded; it is all or nothing here.")
        return share >= 0.5

    def layers_offloaded() -> bool:
        named = args["cpu_offloading_num_layers"]
        some = parse_integer(named, args.name("cpu_offloading_num_layers"), 0) if named not in (None, "") else 0
        if args.given("cpu_offloading") is False or not some:
            return False
        layers = report.model.get("layers")
        if layers is None or some < layers - 1:
            of = f"of {layers} " if layers is not None else ""
            report.remark(f"Activations of {some} {of}layers are offloaded; it is all or nothing here.")
        # All layers but the last are everything that can be offloaded.
        return layers is not None and 2 * some >= layers

    def activations() -> bool:
        by_layers = layers_offloaded() and args.given("cpu_offloading_activations") is not False
        if args.on("fine_grained_activation_offloading"):
            modules = " ".join(args.words("offload_modules"))
            report.remark(f"Activations of some modules are offloaded ({modules}); it is all or nothing here.")
            return True
        return by_layers

    report.say("optimizer_offload", optimizer)
    report.say("activations_offload", activations)
    report.say("weight_offload", lambda: layers_offloaded() and bool(args.given("cpu_offloading_weights")))


def _parse_share(value: Any, name: str) -> float:
    """Return a share from 0 to 1, 1 without a value. Raises `LaunchError` for an invalid one."""
    try:
        share = 1.0 if value is None else float(value)
    except (TypeError, ValueError):
        share = -1.0
    if not 0.0 <= share <= 1.0:
        raise LaunchError(f"{name} is {shown(value)}; it must be a number from 0 to 1.")
    return share


def read_recompute(args: Arguments, report: Report) -> None:
    """Read recomputation and its selection.

    Args:
        args: arguments of Megatron-Core.
        report: receives the fields.
    """
    names = ("activation_recompute", "selective_recompute", "recompute_blocks")
    report.say(names, partial(_recompute_kind, args, report))


def _recompute_kind(args: Arguments, report: Report) -> tuple[str, str, int]:
    kind = args.word("recompute_granularity")
    method, blocks = args.word("recompute_method"), args["recompute_num_layers"]
    if not kind and args.on("recompute_activations"):
        kind = "selective"
    if not kind and (args.on("checkpoint_activations") or (method and "recompute_granularity" not in args)):
        kind, method = "full", method or "uniform"
    if kind == "full" and method == "block":
        number = parse_integer(blocks, args.name("recompute_num_layers"), 0) if blocks is not None else 1
        return ("full", ATTENTION_CORE, number) if number else ("none", ATTENTION_CORE, 0)
    if kind != "selective":
        return ("full" if kind == "full" else "none"), ATTENTION_CORE, 0
    modules = args.words("recompute_modules") or ["core_attn"]
    if args.on("moe_layer_recompute"):
        modules.append("moe")
    known = [each for each in modules if each in MODULES]
    if strange := [each for each in modules if each not in MODULES]:
        report.not_modelled(f"{args.name('recompute_modules')} {' '.join(strange)}")
    return ("attn_only", word_of_modules("+".join(known)), 0) if known else ("none", ATTENTION_CORE, 0)
