"""DeepSpeed as a framework: forms of its files, and keys of fields."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from engine.executions.frameworks.registry import FRAMEWORK_RULES
from engine.launch.command_words import launch_in
from engine.launch.contract import (
    FileContents,
    Framework,
    LaunchError,
    Origin,
)
from engine.launch.deepspeed.keys import TELLING
from engine.launch.deepspeed.reading import read_configuration
from engine.launch.deepspeed.writing import TITLE, VERSION, write_configuration
from models.documents import shown

__all__ = ["DEEPSPEED"]

_LAUNCHER: Final = re.compile(r"^[^#\n]*\bdeepspeed\b[^\n]*\.py\b", re.MULTILINE)
_TRIES: Final = 20
_KEY: Final = re.compile(r'"([A-Za-z0-9_]{1,80})"\s*:')
_MOST_KEYS: Final = 1_000


_TERMS: Final[Mapping[str, str]] = {
    "num_procs": "deepspeed --num_nodes, --num_gpus",
    "tensor_par": "tensor_parallel.autotp_size",
    "tensor_par_overlap": "tensor_parallel.tp_overlap_comm",
    "context_par": "sequence_parallel_size",
    "data_par": "data_parallel_size, or the GPUs that are left",
    "context_par_comm": "sequence_parallel_size (all-to-all always)",
    "expert_par": "expert_parallel.autoep_size",
    "expert_tensor_par": "expert_parallel.expert_tensor_parallel_size",
    "pipeline_par": "PipelineModule(num_stages=...) in the code",
    "batch_size": "train_batch_size",
    "microbatch_size": "train_micro_batch_size_per_gpu",
    "datatype": "bf16.enabled, fp16.enabled",
    "zero_stage": "zero_optimization.stage",
    "optimizer_sharding": "zero_optimization.stage",
    "data_par_overlap": "zero_optimization.overlap_comm",
    "weight_offload": "zero_optimization.offload_param.device",
    "optimizer_offload": "zero_optimization.offload_optimizer.device",
    "activations_offload": "activation_checkpointing.cpu_checkpointing",
    "gradient_datatype": "communication_data_type",
    "optimizer_datatype": "bf16.bf16_optimizer_states, bf16.bf16_master_weights_and_grads",
    "launch": "compile.deepcompile",
}


def find_configuration(text: str, name: str, recipe: str | None) -> FileContents | None:
    """Return the JSON of a file, which may be within a script."""
    alone = text.lstrip().startswith("{")
    document = _parse_document(text, name) if alone else _find_document(text)
    if document is None or not TELLING & set(document):
        if not alone and _LAUNCHER.search(text) and "--deepspeed" in text:
            raise LaunchError(
                "The command starts DeepSpeed, which is configured by the JSON file it names; give that file."
            )
        return None
    outside = "" if alone else text
    launch = launch_in(outside, ("--deepspeed",), name) if "--deepspeed" in outside else None
    origins = _find_origins(document, text, name)
    if launch is None:
        return FileContents(document, origins=origins)
    if launch.gpus_origin is not None:
        origins["gpus"] = launch.gpus_origin
    return FileContents(document, launch.gpus, remarks=(*launch.missing_files, *launch.remarks), origins=origins)


def _find_origins(document: Mapping[str, Any], text: str, name: str) -> dict[str, Origin]:
    """Return the origin of each key by its path: the first line that has the key in quotes."""
    found: dict[str, Origin] = {}
    lines: dict[str, int] = {}
    for number, line in enumerate(text.split("\n"), 1):
        for key in _KEY.findall(line[:2_000]):
            lines.setdefault(key, number)
    stack: list[tuple[str, Mapping[str, Any]]] = [("", document)]
    while stack and len(found) < _MOST_KEYS:
        before, table = stack.pop()
        for key, value in table.items():
            path = f"{before}{key}"
            found[path] = Origin("stated", path, name, lines.get(key, 0))
            if isinstance(value, Mapping) and path.count(".") < 4:
                stack.append((f"{path}.", value))
    return found


def _parse_document(text: str, name: str) -> dict[str, Any] | None:
    """Returns a file that is JSON altogether, but for a launcher behind it; None where it is something else."""
    try:
        found, _ = json.JSONDecoder(object_pairs_hook=_refuse_repeated_keys).raw_decode(text.lstrip())
    except (json.JSONDecodeError, RecursionError) as problem:
        if not any(f'"{key}"' in text for key in TELLING):
            return None
        told = f"line {problem.lineno}: {problem.msg}" if isinstance(problem, json.JSONDecodeError) else "nested deep"
        raise LaunchError(f"{shown(name)[1:-1]} is not JSON ({told}).") from None
    except ValueError as problem:
        if isinstance(problem, LaunchError):
            raise
        raise LaunchError(f"{shown(name)[1:-1]} is not JSON (a number has too many digits).") from None
    return found if isinstance(found, dict) else None


def _refuse_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Returns an object whose keys are all different; of two that are equal JSON would keep the last silently."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise LaunchError(f"The key {shown(key)} stands there twice; leave one of them out.")
        found[key] = value
    return found


def _find_document(text: str) -> dict[str, Any] | None:
    """Returns the first JSON object of DeepSpeed's within a text, such as a script that writes it."""
    place, decoder = -1, json.JSONDecoder(object_pairs_hook=_refuse_repeated_keys)
    for _ in range(_TRIES):
        place = text.find("{", place + 1)
        if place < 0:
            return None
        try:
            found, _end = decoder.raw_decode(text, place)
        except LaunchError:
            raise
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict) and TELLING & set(found):
            return found
    return None


DEEPSPEED: Final = Framework(
    name="deepspeed",
    title=TITLE,
    aliases=("ds", "zero"),
    version=VERSION,
    source="deepspeedai/DeepSpeed, commit edaa7221 and version 0.19.8 (Apache-2.0)",
    rules=FRAMEWORK_RULES["deepspeed"],
    terms=_TERMS,
    write=write_configuration,
    find=find_configuration,
    read_flags=read_configuration,
)
