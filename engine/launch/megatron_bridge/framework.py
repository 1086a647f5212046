"""Megatron-Bridge, NeMo's way to train with Megatron-Core: recipes as Python, with keys of one configuration."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import models
from engine.executions.frameworks.registry import FRAMEWORK_RULES
from engine.launch.command_words import CommandWords, launch_in
from engine.launch.contract import (
    FileContents,
    Framework,
    LaunchInputs,
    LaunchReading,
    Origin,
    UnknownValue,
)
from engine.launch.megatron.constraints import check_arguments
from engine.launch.megatron.model_reading import read_model
from engine.launch.megatron.reading import read_execution
from engine.launch.megatron_bridge.arguments import arguments_of
from engine.launch.megatron_bridge.keys import KEYS, TERMS
from engine.launch.megatron_bridge.nemo_keys import is_nemo
from engine.launch.megatron_bridge.program import NAME, TITLE, VERSION, write_program
from engine.launch.megatron_bridge.recipe_python import BASE, RecipeKeys, from_python
from engine.launch.megatron_bridge.recipe_text import from_words, from_yaml
from engine.launch.report import Report
from engine.launch.shapes import shape_of

__all__ = ["MEGATRON_BRIDGE"]

_MARKS: Final = (
    "model.",
    "train.",
    "ddp.",
    "comm_overlap.",
    "optimizer.",
    "mixed_precision",
    "--recipe",
    "trainer.",
    "+model.",
    "++model.",
    "+trainer.",
    "++trainer.",
    "optim.",
    "data.",
)
_GPUS: Final = re.compile(r"_(\d{1,6})gpus?_")
_TORCHRUN: Final = re.compile(r"--nproc[_-]per[_-]node[= ](\d{1,4})\s+--nnodes[= ](\d{1,6})")
_RECIPES: Final[tuple[tuple[str, str], ...]] = (
    ("llama31_405b", "llama-3.1-405B"),
    ("llama31_70b", "llama-3.1-70B"),
    ("llama31_8b", "llama-3.1-8B"),
    ("llama3_70b", "llama-3-70B"),
    ("llama3_8b", "llama-3-8B"),
    ("llama32_1b", "llama-3.2-1B"),
    ("llama32_3b", "llama-3.2-3B"),
    ("llama2_7b", "llama-2-7B"),
    ("deepseek_v3", "deepseek-v3"),
    ("deepseek_v2_lite", "deepseek-v2-lite"),
    ("deepseek_v2", "deepseek-v2"),
    ("gpt3_175b", "gpt3-175B"),
    ("kimi_k2", "kimi-k2"),
    ("qwen3_235b_a22b", "qwen3-235B-A22B"),
    ("qwen3_30b_a3b", "qwen3-30B-A3B"),
    ("mixtral_8x7b", "mixtral-8x7B"),
    ("mixtral_8x22b", "mixtral-8x22B"),
    ("gpt_oss_120b", "gpt-oss-120B"),
    ("gpt_oss_20b", "gpt-oss-20B"),
    ("nemotron4_340b", "nemotron-4-340B"),
)
"""Beginnings of recipes' names, and the model of the library that they train."""
_NEMO_CONFIG: Final = "megatron_gpt_config"
"""The configuration that NeMo 1's program reads where none is named."""


def find_recipe(text: str, name: str, recipe: str | None) -> FileContents | None:
    """Return the keys of a recipe: Python, a command that runs one, or YAML; None without any.

    Args:
        text: text of the file.
        name: file name.
        recipe: name of a function of a Python file; the first for pretraining if None.
    """
    ending = name.lower().rpartition(".")[2]
    if ending in ("yaml", "yml"):
        keys = from_yaml(text, name)
        return None if keys is None else _found_keys(keys, *_gpus_of(keys.values, keys.origins))
    if ending == "py" or (not text.startswith("#!/bin") and re.search(r"^(import|from) [a-z_.]+", text, re.MULTILINE)):
        keys = from_python(text, name, recipe)
        if keys is None or not any(key in KEYS.values() for key in keys.values):
            return None
        if started := _TORCHRUN.search(text):
            line = text[: started.start()].count("\n") + 1
            return _found_keys(keys, int(started[1]) * int(started[2]), Origin("stated", "torchrun", name, line))
        return _found_keys(keys, *_gpus_of(keys.values, keys.origins))
    launch = launch_in(text, _MARKS, name)
    if launch is None or not any(word.text.startswith(_MARKS) for word in launch.words):
        return None
    words = CommandWords(launch.words)
    values = from_words(words)
    if (config := str(values.pop("--config-name", _NEMO_CONFIG))).removesuffix(".yaml") != _NEMO_CONFIG:
        values["--config-name"] = UnknownValue("--config-name")
        words.unread.append(f"--config-name {config[:100]}: that file is not at hand; what only it says is open.")
    values.pop("--config-path", None)
    told = sum(key in KEYS.values() for key in values)
    if not told and "--recipe" not in values:
        return None
    is_certain = told > 1 or "--recipe" in values or is_nemo(values)
    if "--recipe" in values:
        place = words.origins.get("--recipe", Origin("stated", "--recipe"))
        values[BASE] = UnknownValue(f"recipe {str(values['--recipe'])[:100]}", place.line, place.file)
    elif not is_nemo(dict.fromkeys(word.text.lstrip("+").partition("=")[0] for word in launch.words)):
        values[BASE] = UnknownValue("the program's own recipe", file=name)
    found = launch.found(values, words, is_certain=is_certain)
    if "--gpus_per_node" in values:  # the trainer of NeMo decides, whatever starts it on each node
        gpus, origin = _gpus_of(values, words.origins)
        origins = dict(found.origins) | ({"gpus": origin} if origin is not None else {})
        found = replace(found, gpus=gpus, origins=origins)
    return found


def read_recipe(flags: Mapping[str, Any], asked: LaunchInputs) -> LaunchReading:
    """Return the execution and model that keys describe; a key "--recipe" names the recipe that they belong to."""
    report = Report(TITLE, asked)
    recipe = "" if isinstance(flags.get("--recipe"), UnknownValue) else str(flags.get("--recipe", ""))[:200]
    named = _GPUS.search(recipe)
    if asked.gpus is None and named is not None:
        gpus = int(named[1])
        asked = replace(asked, gpus=gpus, gpus_origin=Origin("stated", "--recipe"))
        report.asked = asked
        report.remark(f"The number of GPUs, {gpus}, is that of the recipe's name.")
    if isinstance(unknown := flags.get("--recipe"), UnknownValue):
        report.open_model(report.unknown("--recipe", unknown).origin)
    _read_recipe_model(recipe, report)
    if isinstance(base := flags.get(BASE), UnknownValue):
        what = base.expression[:1].upper() + base.expression[1:]
        if asked.takes_defaults:
            report.remark(f"{what} is not at hand; where no key states a value, the framework's default counts.")
        else:
            report.remark(f"{what} is not at hand; what only it says is open.")
            report.elsewhere = Origin("unknown", base.expression, base.file, base.line)
    args = arguments_of(flags, report)
    read_model(args, report)
    if "layers" not in report.model.values_known:
        report.leave("the model's shape")
    read_execution(args, report)
    if (known := report.execution.known("num_procs")) and (reason := check_arguments(args, known)):
        report.refuse(reason)
    return report.reading(NAME, VERSION, flags)


def _read_recipe_model(recipe: str, report: Report) -> None:
    """The model that a recipe trains, without what only the library says of it."""
    for beginning, model in _RECIPES:
        if recipe.startswith(beginning):
            shape = shape_of(models.load(model))
            shape.pop("head_dim" if "kv_rank" in shape else "", None)
            report.start_model(shape, Origin("stated", "--recipe"))
            report.remark(f"The model is that of the recipe's name, {model}.")
            return


def _found_keys(keys: RecipeKeys, gpus: int | None, origin: Origin | None) -> FileContents:
    origins = keys.origins | ({"gpus": origin} if origin is not None else {})
    return FileContents(keys.values, gpus, {}, tuple(keys.unread), tuple(keys.remarks), origins, recipes=keys.recipes)


def _gpus_of(keys: Mapping[str, Any], origins: Mapping[str, Origin]) -> tuple[int | None, Origin | None]:
    """Return the GPUs of a NeMo trainer, nodes times devices of each, and their origin."""
    nodes, each = keys.get("--nodes", 1), keys.get("--gpus_per_node")
    for value in (nodes, each):
        if isinstance(value, UnknownValue):
            return None, Origin("unknown", value.expression, value.file, value.line)
    known = [str(value).isdecimal() and 0 < int(str(value)[:8]) < 10**7 for value in (nodes, each)]
    if not all(known):
        return None, None
    return int(nodes) * int(str(each)), origins.get("--gpus_per_node") or Origin("stated", "trainer.devices")


MEGATRON_BRIDGE: Final = Framework(
    name=NAME,
    title=TITLE,
    aliases=("bridge", "nemo", "megatron-bridge-nemo"),
    version=VERSION,
    source="NVIDIA-NeMo/Megatron-Bridge @ 067f987df03b8355b03192d88d70f1709fedf51a",
    rules=FRAMEWORK_RULES["megatron-bridge"],
    terms=TERMS,
    write=write_program,
    find=find_recipe,
    read_flags=read_recipe,
)
"""Megatron-Bridge, and NeMo before it."""
