"""Flags of Megatron-LM's parser, as data, and the parsing of a command line with them.

`parser_flags.json` is the parser's own list: every flag with its destination, kind of value, choices and
default. Flags of earlier versions are in `OLD_FLAGS`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any, Final, Literal

from engine.launch.contract import LaunchError, UnknownValue
from engine.launch.megatron.flag_effects import effect_of
from engine.launch.megatron.hybrid_patterns import DELTA_NETS, VARIANT
from engine.launch.report import Report, parse_flag
from models.documents import near_matches, shown

__all__ = [
    "DEEPSPEED_FLAGS",
    "OLD_FLAGS",
    "Flag",
    "flags_by_name",
    "flags_of",
    "name_effects",
    "parse_flags",
    "parse_printed",
]

OLD_FLAGS: Final[Mapping[str, tuple[str, Any]]] = {
    "--activations-checkpoint-method": ("recompute_method", None),
    "--activations-checkpoint-granularity": ("recompute_granularity", None),
    "--activations-checkpoint-num-layers": ("recompute_num_layers", None),
    "--distribute-checkpointed-activations": ("distribute_saved_activations", True),
    "--DDP-impl": ("ddp_impl", None),
    "--use-custom-fsdp": ("use_megatron_fsdp", True),
    "--no-async-tensor-model-parallel-allreduce": ("async_tensor_model_parallel_allreduce", False),
    "--model-parallel-size": ("tensor_model_parallel_size", None),
    "--use-flash-attn-v2": ("attention_backend", "flash"),
    "--no-contiguous-buffers-in-local-ddp": ("contiguous_buffers", False),
    "--scatter-gather-tensors-in-pipeline": ("scatter_gather", True),
}
"""Flags of earlier versions: destination, and the value of a bare one, None where it has a value."""
DEEPSPEED_FLAGS: Final[Mapping[str, tuple[str, Any]]] = {
    "--deepspeed": ("deepspeed", True),
    "--deepspeed_config": ("deepspeed_config", None),
    "--deepspeed-config": ("deepspeed_config", None),
    "--deepspeed_mpi": ("deepspeed_mpi", True),
    "--deepspeed-activation-checkpointing": ("deepspeed_activation_checkpointing", True),
    "--no-pipeline-parallel": ("no_pipeline_parallel", True),
    "--zero-stage": ("zero_stage", None),
    "--zero-reduce-scatter": ("zero_reduce_scatter", True),
    "--zero-contigious-gradients": ("zero_contiguous_gradients", True),
    "--zero-reduce-bucket-size": ("zero_reduce_bucket_size", None),
    "--zero-allgather-bucket-size": ("zero_allgather_bucket_size", None),
    "--remote-device": ("remote_device", None),
    "--cpu-optimizer": ("optimizer_cpu_offload", True),
    "--moe-expert-parallel-size": ("expert_model_parallel_size", None),
    "--expert-interval": ("expert_interval", None),
    "--topk": ("topk", None),
    "--mlp-type": ("mlp_type", None),
    "--create-moe-param-group": ("create_moe_param_group", True),
    "--moe-loss-coeff": ("moe_aux_loss_coeff", None),
    "--moe-train-capacity-factor": ("moe_expert_capacity_factor", None),
    "--moe-eval-capacity-factor": ("moe_eval_capacity_factor", None),
    "--moe-min-capacity": ("moe_min_capacity", None),
    "--disable-moe-token-dropping": ("disable_moe_token_dropping", True),
    "--disable-moe-top2-2nd-expert-sampling": ("moe_router_sampling", False),
    "--use-tutel": ("use_tutel", True),
    "--ds-sequence-parallel-size": ("context_parallel_size", None),
    "--num-key-value-heads": ("num_key_value_heads", None),
    "--checkpoint-num-layers": ("recompute_num_layers", None),
    "--checkpoint-in-cpu": ("checkpoint_in_cpu", True),
    "--partition-activations": ("distribute_saved_activations", True),
    "--use-flash-attn-v1": ("use_flash_attn", True),
    "--use-flash-attn-triton": ("use_flash_attn", True),
    "--use-flash-attn-builder": ("use_flash_attn", True),
    "--no-load-lr-state": ("load_lr_state", False),
    "--universal-checkpoint": ("load_universal_checkpoint", True),
}
"""Flags of Megatron-DeepSpeed (deepspeedai/Megatron-DeepSpeed, arguments.py) that Megatron-LM does not have."""


MOST_HINTS: Final = 30
"""Unknown flags for which a known one is looked for."""
_ALIKE: Final = 0.75
"""Likeness from which an unknown flag may mean a known one; below it, of some 800 flags the nearest means something
else."""


@dataclass(frozen=True, slots=True)
class Flag:
    """Flag as the parser declares it. `kind` is "value", "many" or "three" for flags with values; "on", "off" or, with
    both names, "switch" for flags without."""

    names: tuple[str, ...]
    destination: str
    kind: Literal["value", "many", "three", "on", "off", "switch"]
    type: str
    choices: tuple[str, ...]
    default: Any

    @property
    def name(self) -> str:
        """Return the flag in its written form."""
        return self.names[0]

    @property
    def is_bare(self) -> bool:
        """Return whether the flag has no value."""
        return self.kind in ("on", "off", "switch")


@lru_cache(maxsize=1)
def flags_by_name() -> Mapping[str, Flag]:
    """Returns every flag of the parser by each of its names."""
    text = (files("engine.launch.megatron") / "parser_flags.json").read_text("utf-8")
    found: dict[str, Flag] = {}
    for names, destination, kind, type_, choices, default in json.loads(text)["flags"]:
        flag = Flag(tuple(names), destination, kind, type_, tuple(choices), default)
        found |= dict.fromkeys(flag.names, flag)
    return found


@lru_cache(maxsize=1)
def flags_of() -> Mapping[str, Flag]:
    """Returns the first flag of every destination."""
    found: dict[str, Flag] = {}
    for flag in flags_by_name().values():
        found.setdefault(flag.destination, flag)
    return found


def parse_flags(
    flags: Mapping[str, Any], report: Report, names: dict[str, str] | None = None, is_deepspeed: bool = False
) -> dict[str, Any]:
    """Return the values that flags give, by destination; absent flags are left out.

    Unknown and invalid flags are noted as unread; flags of earlier versions are replaced by their successors. Values
    from outside the file stay `UnknownValue`.

    Args:
        flags: values by flag; True, None or empty for one without a value.
        report: receives remarks.
        names: receives the flags that set each destination.
        is_deepspeed: whether the flags belong to Megatron-DeepSpeed.
    """
    known = flags_by_name()
    found: dict[str, Any] = {}
    old: list[str] = []
    names = {} if names is None else names
    strange = 0
    for given, value in flags.items():
        # Printed arguments and YAML files have names without the dashes of the command line.
        name = given if given.startswith("--") else "--" + given.replace("_", "-")
        flag = known.get(name)
        if is_deepspeed and name in DEEPSPEED_FLAGS:
            destination, bare = DEEPSPEED_FLAGS[name]
            found[destination] = value if bare is None else bare
            names[destination] = name
            continue
        if flag is None and name in OLD_FLAGS:
            destination, bare = OLD_FLAGS[name]
            found[destination] = value if bare is None else bare
            names[destination] = name
            old.append(name)
            continue
        if flag is None:
            strange += 1
            # Looking for likeness among some 800 flags takes 2 ms; nobody mistypes more than a few.
            near = near_matches(name[2:], [each[2:] for each in known], _ALIKE) if strange <= MOST_HINTS else []
            report.unread(f"{name[:80]} is no flag of this version" + (f"; did you mean --{near[0]}?" if near else "."))
            continue
        try:
            found[flag.destination] = _parse_value(flag, name, value)
            names[flag.destination] = name
        except LaunchError as error:
            report.unread(str(error))
            # What stands there decides, and is not understood: nothing is taken in its place.
            found[flag.destination] = UnknownValue("no value" if value in (None, True, "") else shown(value)[:80])
            names[flag.destination] = name
    if old and not is_deepspeed:
        report.refuse(f"removed flags: {', '.join(old)}")
        report.remark(f"Flags of earlier versions are read by their successors: {', '.join(old)}.")
    return found


def name_effects(
    said: Mapping[str, Any], names: Mapping[str, str], report: Report, asked: Collection[str] = ()
) -> None:
    """Names the flags that are not modelled and those without effect on a prediction, where they are not at their
    default.

    Args:
        said: values by destination.
        names: flags by destination.
        report: where they go.
        asked: destinations that a reader of layers has asked for.
    """
    for destination, value in said.items():
        effect, flag = effect_of(destination), flags_of().get(destination)
        is_read = effect.effect == "read" or (effect.effect == "read in patterns" and destination in asked)
        is_read = is_read or (destination == VARIANT and (value in DELTA_NETS or "dsa_indexer_topk" in asked))
        if is_read or (flag is not None and _is_same(value, flag.default)):
            continue
        name = names.get(destination) or (flag.name if flag is not None else "--" + destination.replace("_", "-"))
        if effect.effect == "none":
            report.without_effect(name)
            continue
        told = "" if isinstance(value, bool) else f" {' '.join(map(str, value)) if isinstance(value, list) else value}"
        report.not_modelled(f"{name}{told}"[:200])


def _is_same(value: Any, default: Any) -> bool:
    return value == default or str(value) == str(default)


def parse_printed(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of arguments as programs print them, by destination; invalid ones are left out.

    Args:
        arguments: values by destination, as text.
    """
    found: dict[str, Any] = {}
    for destination, value in arguments.items():
        flag = flags_of().get(destination)
        if str(value).strip().lower() in ("", "none", "null"):
            continue
        try:
            if flag is None:
                found[destination] = value
            elif flag.is_bare:
                found[destination] = parse_flag(value, destination)
            else:
                found[destination] = _parse_value(flag, destination, value)
        except LaunchError:
            continue
    return found


def _parse_value(flag: Flag, name: str, value: Any) -> Any:
    if isinstance(value, UnknownValue):
        return value
    if isinstance(value, list | tuple) and (inner := next((e for e in value if isinstance(e, UnknownValue)), None)):
        return inner
    if flag.is_bare:
        on = value is None or value == "" or parse_flag(value, name)
        if flag.kind == "switch":
            return on if not name.startswith("--no-") else not on
        return on if flag.kind == "on" else not on
    if value is None or value is True or value == "":
        raise LaunchError(f"{name} has no value; it needs one.")
    if flag.kind in ("many", "three"):
        items = value if isinstance(value, Sequence) and not isinstance(value, str) else str(value).split()
        return [_parse_single_value(flag, name, each) for each in items]
    return _parse_single_value(flag, name, value)


def _parse_single_value(flag: Flag, name: str, value: Any) -> Any:
    text = str(value).strip()
    if flag.choices and text not in flag.choices:
        text = text.rpartition(".")[2]  # printed as AttnBackend.flash
        if text not in flag.choices:
            raise LaunchError(f"{name} is {shown(value)}; it must be one of {', '.join(flag.choices)}.")
    if flag.type == "int":
        try:
            return int(text[:20])
        except ValueError:
            raise LaunchError(f"{name} is {shown(value)}; it must be a whole number.") from None
    if flag.type == "float":
        try:
            return float(text)
        except ValueError:
            raise LaunchError(f"{name} is {shown(value)}; it must be a number.") from None
    if flag.type == "bool":
        return parse_flag(value, name)
    return text
