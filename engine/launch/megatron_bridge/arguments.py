"""Keys of Megatron-Bridge's configuration read as arguments of Megatron-Core."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from engine.launch.contract import UnknownValue
from engine.launch.key_lists import read_key_lists
from engine.launch.megatron.arguments import Arguments, Dialect, hidden_areas
from engine.launch.megatron.parser import flags_of, name_effects
from engine.launch.megatron_bridge.keys import KEYS, PRECISIONS
from engine.launch.megatron_bridge.recipe_python import BASE
from engine.launch.report import Report, parse_flag
from engine.launch.settings import is_hidden

__all__ = ["arguments_of"]

BRIDGE: Final = Dialect("Megatron-Bridge", False, "bfloat16", False, True, True, overlaps_gradients=True)
_ARGUMENTS: Final = {key: argument for argument, key in KEYS.items()}
_LISTS: Final = read_key_lists("megatron_bridge")
_ALSO_READ: Final = frozenset(_LISTS["read"])
_TABLES_WITHOUT_EFFECT: Final = tuple(_LISTS["tables without effect"])
_PREFIXES_WITHOUT_EFFECT: Final = tuple(_LISTS["prefixes without effect"])
_MODEL_FIELDS_WITHOUT_EFFECT: Final = frozenset(_LISTS["model fields without effect"])


def arguments_of(flags: Mapping[str, Any], report: Report) -> Arguments:
    """Return the arguments of Megatron-Core that keys state.

    Args:
        flags: values by key of the configuration.
        report: takes note of keys that are not read.
    """
    said: dict[str, Any] = {}
    names = dict(KEYS)
    hidden: dict[str, UnknownValue] = {}
    for key, value in flags.items():
        if is_hidden(key, value):
            report.remark(f"{value} is not at hand; it may hold keys.")
            hidden = dict.fromkeys(hidden_areas(value.expression), value) | hidden
        elif key in _ARGUMENTS:
            said[_ARGUMENTS[key]] = None if str(value).lower() in ("none", "null") else value
            if value is not None:
                name_effects({_ARGUMENTS[key]: value}, KEYS, report)
        elif key not in _ALSO_READ and key != BASE:
            _name_effect(key, value, report)
    _read_overlaps(said, flags, names)
    _read_precisions(said, flags, names)
    for key in ("dataset.seq_length", "dataset.sequence_length"):
        if key in flags and said.get("seq_length") is None:
            said["seq_length"], names["seq_length"] = flags[key], key
    _read_tied_embeddings(
        said, flags, names, "share_embeddings_and_output_weights", "untie_embeddings_and_output_weights"
    )
    impl, scope = str(said.get("cuda_graph_impl") or "none").lower(), str(flags.get("model.cuda_graph_scope") or "")
    if impl == "local" and "full_iteration" in scope.lower():
        said["cuda_graph_impl"] = "full_iteration"
    elif scope and said.get("cuda_graph_modules") is None:
        said["cuda_graph_scope_deprecated"] = flags["model.cuda_graph_scope"]
        names["cuda_graph_scope_deprecated"] = "model.cuda_graph_scope"
    if _is_off(said.get("cpu_offloading"), "model.cpu_offloading"):
        said["cpu_offloading_num_layers"] = 0
    for key in ("cpu_offloading_weights", "cpu_offloading_activations", "cpu_offloading"):
        if said.get(key) is not None and not isinstance(said[key], UnknownValue):
            said[key] = parse_flag(said[key], key)
    for key, name in (
        ("dist.use_megatron_fsdp", "use_megatron_fsdp"),
        ("comm_overlap.overlap_param_gather_with_optimizer_step", "overlap_param_gather_with_optimizer_step"),
    ):
        if isinstance(flags.get(key), UnknownValue) or parse_flag(flags.get(key), key):
            said[name], names[name] = flags.get(key) or True, key
    return Arguments(
        said,
        BRIDGE,
        {**names, "fp8_recipe": "mixed_precision fp8 recipe", "fp4_recipe": "mixed_precision fp4 recipe"},
        report,
        hidden,
    )


def _read_tied_embeddings(
    said: dict[str, Any], flags: Mapping[str, Any], names: dict[str, str], shared: str, untied: str
) -> None:
    """Tied embeddings, which Megatron-Core's argument says the other way round."""
    value = said.pop(shared, None)
    if value is not None:
        said[untied] = value if isinstance(value, UnknownValue) else not parse_flag(value, shared)
        names[untied] = KEYS[shared]


def _is_off(value: Any, name: str) -> bool:
    return value is not None and not isinstance(value, UnknownValue) and not parse_flag(value, name)


def _name_effect(key: str, value: Any, report: Report) -> None:
    """Names a key that nothing here depends on: without effect, not modelled, or not known."""
    field = key.removeprefix("model.")
    is_field = key.startswith("model.") and field in _MODEL_FIELDS_WITHOUT_EFFECT
    if is_field or key.startswith(_TABLES_WITHOUT_EFFECT):
        report.without_effect(key)
    elif key.startswith(("model.", "ddp.")) and field.removeprefix("ddp.") in flags_of():
        name_effects({field.removeprefix("ddp."): value}, {field.removeprefix("ddp."): key}, report)
    elif key.startswith(_PREFIXES_WITHOUT_EFFECT):
        report.without_effect(key)
    elif key not in ("--nodes", "--gpus_per_node"):
        report.unread(f"{key[:80]} is not read.")


def _read_overlaps(said: dict[str, Any], flags: Mapping[str, Any], names: dict[str, str]) -> None:
    """Overlap of gradients: a `comm_overlap` object decides, and where it says nothing it is on with several replicas
    and the distributed optimizer."""
    for name in ("tp_comm_overlap", "overlap_moe_expert_parallel_comm"):
        other = flags.get(f"model.{name}")
        if said.get(name) is None and other is not None:
            said[name], names[name] = other, f"model.{name}"
    for name in ("overlap_grad_reduce", "overlap_param_gather"):
        decided = flags.get(f"comm_overlap.{name}")
        if decided is not None:
            said[name], names[name] = decided, f"comm_overlap.{name}"
    if said.get("overlap_param_gather") is None and said.get("overlap_grad_reduce") is not None:
        # The common recipe has both on; one that turns off the first has the second off, too.
        said["overlap_param_gather"] = said["overlap_grad_reduce"]


def _read_precisions(said: dict[str, Any], flags: Mapping[str, Any], names: dict[str, str]) -> None:
    """Read datatypes from a recipe of mixed precision, and from keys next to its name."""
    given = flags.get("mixed_precision")
    own = {
        name: flags[key]
        for name in ("bf16", "fp16", "fp8", "fp8_recipe", "fp4", "fp4_recipe")
        if (key := f"mixed_precision.{name}") in flags
    }
    for name in ("bf16", "fp16", "fp8", "fp4"):
        names[name] = "mixed_precision"
    text = "" if isinstance(given, UnknownValue) else str(given or "").lower().replace("-", "_")
    name = next((each for each in sorted(PRECISIONS, key=len, reverse=True) if each in text), "")
    if text == "fp32":
        said["fp32_precision"], names["fp32_precision"] = True, "mixed_precision"
    elif name:
        said.update(PRECISIONS[name])
    elif (text and text not in ("none", "mixedprecisionconfig")) or isinstance(given, UnknownValue):
        said["bf16"] = given if isinstance(given, UnknownValue) else UnknownValue(str(given)[:80])
    if "bf16_with_fp8_mxfp8" in text:
        said.update(PRECISIONS["bf16_with_mxfp8_mixed"])
    if "bf16_with_fp4_nvfp4" in text:
        said.update(PRECISIONS["bf16_with_nvfp4_mixed"])
    said |= {name: value for name, value in own.items() if str(value).lower() not in ("none", "null")}
    if flags.get("model.fp8") not in (None, False) and "fp8" not in said:  # NeMo 1: with Transformer Engine
        said["fp8"] = flags["model.fp8"] if isinstance(flags["model.fp8"], UnknownValue) else "hybrid"
        names["fp8"] = "model.fp8"
    _read_fp8_parameters(said, flags, names)
    wide: Any = flags.get("mixed_precision.grad_reduce_in_fp32")
    key = "mixed_precision.grad_reduce_in_fp32"
    if wide is None and (found := re.search(r"grad_reduce_in_fp32\s*=\s*(true|false)", text)):
        wide, key = found[1], "mixed_precision"
    if wide is None and isinstance(said.get("bf16"), UnknownValue):
        wide, key = said["bf16"], "mixed_precision"
    if wide is None and not text:
        wide, key = flags.get("ddp.grad_reduce_in_fp32"), "ddp.grad_reduce_in_fp32"
    if wide is not None:
        names |= {"grad_reduce_in_bf16": key, "accumulate_allreduce_grads_in_fp32": key}
        known = wide if isinstance(wide, UnknownValue) else parse_flag(wide, "grad_reduce_in_fp32")
        said["grad_reduce_in_bf16"] = known if isinstance(known, UnknownValue) else not known
        said["accumulate_allreduce_grads_in_fp32"] = known


_FP8_PARAMETERS: Final = ("mixed_precision.fp8_param_gather", "mixed_precision.fp8_param", "model.fp8_param_gather")


def _read_fp8_parameters(said: dict[str, Any], flags: Mapping[str, Any], names: dict[str, str]) -> None:
    """Read whether parameters are held in 8 bits: a key, or else the recipe, which all but the blockwise one do.

    Source: NVIDIA-NeMo/Megatron-Bridge, src/megatron/bridge/training/mixed_precision.py.
    """
    key = next((each for each in _FP8_PARAMETERS if each in flags), "")
    if key:
        said["fp8_param_gather"], names["fp8_param_gather"] = flags[key], key
    elif said.get("fp8") and "model.fp8" not in flags and said.get("fp8_recipe") != "blockwise":
        said["fp8_param_gather"], names["fp8_param_gather"] = True, "mixed_precision"
