"""The flags that Megatron-LM's parser knows, as data, and what becomes of a command line by them.

`parser_flags.json` is the parser's own list: every flag with its destination, what it takes, its choices and its
default. Old flags that it no longer knows stand in `OLD_FLAGS`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any, Final, Literal

from engine.launch.contract import LaunchError
from engine.launch.report import Report, truth
from models.documents import near_matches, shown

__all__ = ["OLD_FLAGS", "Flag", "flags_by_name", "flags_of", "parsed", "printed"]

OLD_FLAGS: Final[Mapping[str, tuple[str, Any]]] = {
    "--activations-checkpoint-method": ("recompute_method", None),
    "--activations-checkpoint-granularity": ("recompute_granularity", None),
    "--activations-checkpoint-num-layers": ("recompute_num_layers", None),
    "--distribute-checkpointed-activations": ("distribute_saved_activations", True),
    "--DDP-impl": ("ddp_impl", None),
    "--use-custom-fsdp": ("use_megatron_fsdp", True),
    "--no-async-tensor-model-parallel-allreduce": ("async_tensor_model_parallel_allreduce", False),
    "--model-parallel-size": ("tensor_model_parallel_size", None),
    "--use-flash-attn-v2": ("use_flash_attn", True),
    "--no-contiguous-buffers-in-local-ddp": ("contiguous_buffers", False),
    "--scatter-gather-tensors-in-pipeline": ("scatter_gather", True),
}
"""Flags of earlier versions: destination, and the value of a bare one, None where it has a value."""


_ALIKE: Final = 0.75
"""Likeness from which an unknown flag may mean a known one; below it, of some 800 flags the nearest means something
else."""


@dataclass(frozen=True, slots=True)
class Flag:
    """A flag as the parser declares it. `kind` says what it takes: a "value", "many" or "three", or nothing, where it
    turns something "on" or "off", or both by two names ("switch")."""

    names: tuple[str, ...]
    destination: str
    kind: Literal["value", "many", "three", "on", "off", "switch"]
    type: str
    choices: tuple[str, ...]
    default: Any

    @property
    def name(self) -> str:
        """Returns the flag as it is written."""
        return self.names[0]

    @property
    def is_bare(self) -> bool:
        """Returns whether the flag stands without a value."""
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


def parsed(flags: Mapping[str, Any], report: Report) -> dict[str, Any]:
    """Returns the values that flags give, by destination; those not given are absent.

    What is not known or not understood is noted as unread, flags of earlier versions are read by their successors.

    Args:
        flags: values by flag; True, None or empty for one that stands alone.
        report: where remarks go.
    """
    known = flags_by_name()
    found: dict[str, Any] = {}
    old: list[str] = []
    for given, value in flags.items():
        # Printed arguments and YAML files have names without the dashes of the command line.
        name = given if given.startswith("--") else "--" + given.replace("_", "-")
        flag = known.get(name)
        if flag is None and name in OLD_FLAGS:
            destination, bare = OLD_FLAGS[name]
            found[destination] = value if bare is None else bare
            old.append(name)
            continue
        if flag is None:
            near = near_matches(name[2:], [each[2:] for each in known], _ALIKE)
            report.unread(f"{name[:80]} is no flag of this version" + (f"; did you mean --{near[0]}?" if near else "."))
            continue
        try:
            found[flag.destination] = _value(flag, name, value)
        except LaunchError as error:
            report.unread(str(error))
    if old:
        report.refuse(f"removed flags: {', '.join(old)}")
        report.remark(f"Flags of earlier versions are read by their successors: {', '.join(old)}.")
    return found


def printed(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values of arguments as programs print them, by destination; what is not understood is left out.

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
                found[destination] = truth(value, destination)
            else:
                found[destination] = _value(flag, destination, value)
        except LaunchError:
            continue
    return found


def _value(flag: Flag, name: str, value: Any) -> Any:
    if flag.is_bare:
        on = value is None or value == "" or truth(value, name)
        if flag.kind == "switch":
            return on if not name.startswith("--no-") else not on
        return on if flag.kind == "on" else not on
    if value is None or value is True or value == "":
        raise LaunchError(f"{name} has no value; it needs one.")
    if flag.kind in ("many", "three"):
        items = value if isinstance(value, Sequence) and not isinstance(value, str) else str(value).split()
        return [_single(flag, name, each) for each in items]
    return _single(flag, name, value)


def _single(flag: Flag, name: str, value: Any) -> Any:
    text = str(value).strip()
    if flag.choices and text not in flag.choices:
        text = text.rpartition(".")[2]  # printed as AttnBackend.flash
        if text not in flag.choices:
            raise LaunchError(f"{name} is {shown(value)}; it must be one of {', '.join(flag.choices)}.")
    if flag.type == "int":
        try:
            return int(text)
        except ValueError:
            raise LaunchError(f"{name} is {shown(value)}; it must be a whole number.") from None
    if flag.type == "float":
        try:
            return float(text)
        except ValueError:
            raise LaunchError(f"{name} is {shown(value)}; it must be a number.") from None
    if flag.type == "bool":
        return truth(value, name)
    return text
