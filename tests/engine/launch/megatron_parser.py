"""Megatron-LM's own parser on a machine without accelerators: a program that tells what it knows, or tries commands.

Started with "flags", prints every flag as `engine/launch/megatron/parser_flags.json` has it. Started with "try", reads
a JSON list of [GPUs, words, environment] and prints a sentence for each that the parser or its configuration refuses.
It needs `megatron-core` 0.19.2 and torch; what neither brings on such a machine is stood in for.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.abc
import importlib.machinery
import io
import json
import os
import sys
import types
import typing
from typing import Any

ABSENT = (
    "einops",
    "transformers",
    "wandb",
    "tqdm",
    "yaml",
    "omegaconf",
    "megatron.core.transformer.moe.ops.paged_stash",
)
"""Modules that parsing does not need."""


class Absent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds modules that are not there, in which everything is an empty class."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        wanted = any(name == each or name.startswith(f"{each}.") for each in ABSENT)
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if wanted else None

    def create_module(self, spec: Any) -> types.ModuleType:
        made = types.ModuleType(spec.name)
        made.__path__ = []
        made.__getattr__ = lambda name: _made(name)  # type: ignore[method-assign]
        return made

    def exec_module(self, module: types.ModuleType) -> None:
        """Does nothing."""


def _made(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return type(name, (), {})


def loaded() -> Any:
    """The module of Megatron's arguments."""
    import typing_extensions

    typing.override = typing_extensions.override  # type: ignore[attr-defined]
    import torch

    sys.meta_path.insert(0, Absent())
    os.environ.update(WORLD_SIZE="8", RANK="0", LOCAL_RANK="0")
    from megatron.training import arguments  # type: ignore[import-not-found]

    torch.cuda.get_device_capability = lambda *_: (9, 0)  # type: ignore[assignment]
    arguments.get_device_arch_version = lambda: 9
    for module in list(sys.modules.values()):
        if module.__name__.startswith("megatron") and hasattr(module, "is_te_min_version"):
            module.is_te_min_version = lambda *_, **__: True
        if module.__name__.endswith(("moe.moe_utils", "transformer.transformer_config")):
            for name in (
                "permute",
                "permute_with_probs",
                "sort_chunks_by_index",
                "sort_chunks_by_index_with_probs",
                "unpermute",
            ):
                setattr(module, f"fused_{name}", lambda *_: None)
    return arguments


def flags(arguments: Any) -> list[list[Any]]:
    """Every flag: names, destination, what it takes, choices, default."""
    parser = arguments.add_megatron_arguments(argparse.ArgumentParser(allow_abbrev=False))
    kinds = {"_StoreTrueAction": "on", "_StoreFalseAction": "off", "BooleanOptionalAction": "switch"}
    rows = []
    for each in parser._actions:
        if not each.option_strings or each.dest == "help":
            continue
        kind = kinds.get(type(each).__name__, "value")
        kind = {"+": "many", "*": "many", 3: "three"}.get(each.nargs, kind)
        choices = [
            str(choice).rpartition(".")[2] if "AttnBackend" in str(choice) else str(choice)
            for choice in each.choices or ()
        ]
        default = (
            each.default if isinstance(each.default, int | float | str | bool | list | None) else str(each.default)
        )
        default = default.removeprefix("AttnBackend.") if isinstance(default, str) else default
        rows.append([list(each.option_strings), each.dest, kind, choices, default])
    return rows


def refused(arguments: Any, gpus: int, words: list[str], environment: dict[str, str]) -> str:
    """Why a command line is refused, empty where it is not."""
    os.environ["WORLD_SIZE"] = str(gpus)
    for name in ("CUDA_DEVICE_MAX_CONNECTIONS", "NVTE_CPU_OFFLOAD_V1"):
        os.environ.pop(name, None)
    os.environ.update(environment)
    # Fused rotary positions ask Transformer Engine itself, which is not there.
    sys.argv = ["pretrain_gpt.py", *words, "--no-rope-fusion"]
    told = io.StringIO()
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(told):
            args = arguments.parse_args()
            arguments.validate_args(args)
            arguments.core_transformer_config_from_args(args)
    except (Exception, SystemExit) as error:
        return f"{type(error).__name__}: {error} {told.getvalue()[-300:]}"
    return ""


if __name__ == "__main__":
    found = loaded()
    if sys.argv[1] == "flags":
        answer: Any = flags(found)
    else:
        answer = [refused(found, *case) for case in json.load(sys.stdin)]
    print("\n" + json.dumps(answer))
