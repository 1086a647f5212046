"""Megatron-LM as a framework: flags of its training programs in scripts, YAML files and printed arguments."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from engine.executions.frameworks.registry import FRAMEWORK_RULES
from engine.launch.command_words import CommandWords, launch_in
from engine.launch.contract import (
    FileContents,
    Framework,
    LaunchError,
    LaunchFile,
    LaunchInputs,
    LaunchOrder,
    LaunchReading,
    RefusedExecutionError,
    UnknownValue,
    Written,
)
from engine.launch.launchers import script_header, torchrun_command
from engine.launch.megatron.arguments import LM, MEGATRON_DEEPSPEED, Arguments, hidden_areas
from engine.launch.megatron.constraints import check_arguments
from engine.launch.megatron.flag_effects import MODEL
from engine.launch.megatron.model_reading import read_model
from engine.launch.megatron.parser import DEEPSPEED_FLAGS, OLD_FLAGS, flags_by_name, flags_of, name_effects, parse_flags
from engine.launch.megatron.printed import said_by
from engine.launch.megatron.reading import read_execution
from engine.launch.megatron.terms import TERMS
from engine.launch.megatron.writing import Groups, describe_refusal, groups_of
from engine.launch.report import LIST_TITLES, Report
from engine.launch.settings import is_hidden
from engine.launch.yaml_files import read_yaml

__all__ = ["MEGATRON", "environment_of", "find_refusal"]

NAME: Final = "megatron"
TITLE: Final = "Megatron-LM"
VERSION: Final = "megatron-core 0.19.2"
_MARKS: Final = (
    "--tensor-model-parallel-size",
    "--num-layers",
    "--hidden-size",
    "--num-attention-heads",
    "--micro-batch-size",
    "--global-batch-size",
    "--pipeline-model-parallel-size",
    "--seq-length",
)
_PRINTED: Final = re.compile(r"^[^\n]{0,40}?\b([a-z][a-z0-9_]{1,60}) \.{2,60} ?([^\n]{0,2000}?)[ \t]*$", re.MULTILINE)
_MOST_ARE_PRINTED: Final = 20
"""Arguments that a log prints at least; a run has some 800."""
_AS_PRINTED: Final = "printed arguments"
"""Key of arguments by destination, as a log prints them, instead of flags."""
_RUN: Final[Mapping[str, Any]] = {
    "tokenizer_type": "NullTokenizer",
    "mock_data": True,
    "train_iters": 50,
    "lr": 1e-4,
    "min_lr": 1e-5,
    "log_interval": 1,
    "log_throughput": True,
}
_TO_REPLACE: Final = (
    "--tokenizer-type NullTokenizer, --mock-data, --train-iters, --lr, --min-lr: to be replaced by your data, "
    "tokenizer and optimizer"
)


def environment_of(order: LaunchOrder) -> dict[str, str]:
    """Return the environment variables that a run of Megatron-Core needs.

    Args:
        order: execution and model to write.
    """
    e = order.execution
    found: dict[str, str] = {}
    if e["zero_stage"] < 2 and e["tensor_par"] * e["context_par"] > 1:
        found["CUDA_DEVICE_MAX_CONNECTIONS"] = "1"
    if e["activations_offload"] and (e["pipeline_par"] > 1 or e["activation_recompute"] != "none"):
        found["NVTE_CPU_OFFLOAD_V1"] = "1"  # offloading of modules; without it Transformer Engine takes weights along
    return found


def write_script(order: LaunchOrder) -> Written:
    """Returns a script for torchrun. Raises `LaunchError` where Megatron would refuse the execution.

    Args:
        order: what shall be written.
    """
    report = Report()
    groups = groups_of(order, report)
    groups["run"] = dict(_RUN)
    flags = command_line(groups)
    reason = check_arguments(_arguments_of(flags, Report()), order.nodes * order.gpus_per_node)
    if reason:
        raise RefusedExecutionError(describe_refusal(TITLE, reason, order))
    report.not_modelled(_TO_REPLACE)
    lists = {title: report.listed(which) for which, title in LIST_TITLES.items()}
    lines = [
        "#!/usr/bin/env bash",
        script_header(f"{TITLE} ({VERSION})", order, lists),
        "set -euo pipefail",
    ]
    lines += [f"export {name}={value}" for name, value in environment_of(order).items()]
    program = "pretrain_gpt.py" if order.model.layers is None else "pretrain_hybrid.py"
    lines += ["", f"{torchrun_command(order)} {program} \\"]
    shown = [_shown_group(groups[name]) for name in groups]
    lines.append(" \\\n".join(f"    {line}" for group in shown for line in group))
    text = "\n".join(lines) + "\n"
    return Written(
        NAME,
        TITLE,
        VERSION,
        (LaunchFile("launch_megatron.sh", text),),
        flags,
        *(report.listed(which) for which in ("not_expressible", "not_modelled", "remarks")),
    )


def find_refusal(order: LaunchOrder) -> str:
    """Return the reason why Megatron-Core would not start an execution; empty without one.

    Args:
        order: execution and model to write.
    """
    try:
        arguments = _arguments_of(command_line(groups_of(order, Report())), Report())
    except LaunchError:
        return ""  # a model that Megatron-LM's own programs lack
    return check_arguments(arguments, order.nodes * order.gpus_per_node)


def find_flags(text: str, name: str, recipe: str | None) -> FileContents | None:
    """Return the flags of a script, a command line or a YAML file of tests; None without any.

    Args:
        text: text of the file.
        name: file name.
        recipe: unused.
    """
    if name.lower().endswith((".yaml", ".yml")):
        return _from_yaml(text, name)
    arguments = dict(_PRINTED.findall(text))
    if len(arguments) >= _MOST_ARE_PRINTED and "tensor_model_parallel_size" in arguments:
        return FileContents({_AS_PRINTED: arguments})
    launch = launch_in(text, _MARKS, name)
    if launch is None:
        return None
    words = CommandWords(launch.words)
    flags = words.flags(_takes_values)
    return launch.found(flags, words, is_certain=any(flag in flags_by_name() for flag in flags))


def read_arguments(flags: Mapping[str, Any], asked: LaunchInputs) -> LaunchReading:
    """Return the execution and model that flags describe."""
    is_deepspeed = "--deepspeed" in flags
    report = Report("Megatron-DeepSpeed" if is_deepspeed else TITLE, asked)
    args = _arguments_of(flags, report)
    if is_deepspeed:
        _remark_deepspeed(flags, report)
    if "--use-checkpoint-args" in flags and not asked.model:
        report.remark(
            "--use-checkpoint-args takes the model's shape from the checkpoint, which is not at hand; "
            "name the model beside it."
        )
    read_model(args, report)
    if _AS_PRINTED not in flags:
        name_effects(args.stated, args.names, report, frozenset(args.asked))
    read_execution(args, report)
    if (gpus := report.execution.known("num_procs")) and (reason := check_arguments(args, gpus)):
        report.refuse(reason)
    version = "deepspeedai/Megatron-DeepSpeed" if is_deepspeed else VERSION
    return report.reading(NAME, version, flags)


def _arguments_of(flags: Mapping[str, Any], report: Report) -> Arguments:
    if isinstance(arguments := flags.get(_AS_PRINTED), Mapping):
        return Arguments(said_by(arguments), LM, report=report)
    is_deepspeed = "--deepspeed" in flags
    hidden: dict[str, UnknownValue] = {}
    kept: dict[str, Any] = {}
    for name, value in flags.items():
        if not is_hidden(name, value):
            kept[name] = value
            continue
        areas = hidden_areas(value.expression)
        of = " of the model" if areas == (MODEL,) else "" if areas else " without effect here"
        report.remark(f"{value} is not at hand; it may hold flags{of}.")
        hidden = dict.fromkeys(areas, value) | hidden
    names: dict[str, str] = {}
    said = parse_flags(kept, report, names, is_deepspeed)
    for old, new in (("batch_size", "micro_batch_size"), ("model_parallel_size", "tensor_model_parallel_size")):
        if old in said:
            report.refuse(f"{names[old]} is no longer valid; use {flags_of()[new].name}")
            if new not in said:
                said[new], names[new] = said[old], names[old]
    if said.get("use_checkpoint_args") not in (None, False):
        hidden.setdefault(MODEL, UnknownValue("--use-checkpoint-args"))
    if said.get("use_mp_args_from_checkpoint_args") not in (None, False):
        for name in ("tensor_model_parallel_size", "pipeline_model_parallel_size"):
            said[name] = UnknownValue("--use-mp-args-from-checkpoint-args")
    return Arguments(said, MEGATRON_DEEPSPEED if is_deepspeed else LM, names, report, hidden)


def command_line(groups: Groups) -> dict[str, Any]:
    """Return the flags of arguments, True for flags without value; switches at their default are left out.

    Args:
        groups: arguments by destination, in groups.
    """
    found: dict[str, Any] = {}
    for group in groups.values():
        for destination, value in group.items():
            flag = flags_of()[destination]
            if flag.is_bare:
                if bool(value) == (flag.kind != "off"):
                    found[flag.name] = True
            else:
                found[flag.name] = value
    return found


def _shown_group(group: Mapping[str, Any]) -> list[str]:
    """A group of arguments in lines of the command, several flags in each."""
    words = []
    for flag, value in command_line({"": dict(group)}).items():
        items = value if isinstance(value, list) else [] if value is True else [value]
        # argparse takes a separate word such as "-M*" for a flag.
        joint = "=" if items and str(items[0]).startswith("-") else " "
        words.append(flag + (joint if items else "") + " ".join(map(_quote_value, items)))
    lines: list[str] = []
    for word in words:
        if lines and len(lines[-1]) + len(word) < 108:
            lines[-1] += " " + word
        else:
            lines.append(word)
    return lines


def _quote_value(value: Any) -> str:
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return text if re.fullmatch(r"[A-Za-z0-9_.,:/+-]+", text) else "'" + text + "'"


def _remark_deepspeed(flags: Mapping[str, Any], report: Report) -> None:
    """Says whose defaults count with --deepspeed, and which file is missing."""
    report.remark(
        "--deepspeed makes this Megatron-DeepSpeed: its defaults count, experts in every second layer and "
        "one of them for each token."
    )
    file = next((flags[name] for name in ("--deepspeed_config", "--deepspeed-config") if name in flags), None)
    if file is not None:
        report.remark(f"The DeepSpeed configuration {str(file)[:100]} is not at hand; what only it says is open.")
    if "--ds-sequence-parallel-size" in flags:
        report.remark("Sequence parallelism is Ulysses, which exchanges heads; here it is a ring.")


def _takes_values(name: str) -> tuple[bool, bool]:
    """Return whether a flag takes a value, and whether it takes several."""
    if name in DEEPSPEED_FLAGS:
        return DEEPSPEED_FLAGS[name][1] is None, False
    flag = flags_by_name().get(name)
    if flag is None:
        return OLD_FLAGS.get(name, ("", None))[1] is None, False
    return not flag.is_bare, flag.kind in ("many", "three")


def _from_yaml(text: str, name: str) -> FileContents | None:
    """Flags of `MODEL_ARGS` in a YAML file of Megatron's functional tests."""
    if "MODEL_ARGS" not in text:
        return None
    document = read_yaml(text, name)
    arguments = document.values.get("MODEL_ARGS")
    if not isinstance(arguments, Mapping):
        return None
    flags = {str(key): value for key, value in arguments.items() if value is not False}
    environment = document.values.get("ENV_VARS")
    environment = environment if isinstance(environment, Mapping) else {}
    origins = {flag: replace(document.origin("MODEL_ARGS", flag), words=flag) for flag in flags}
    return FileContents(flags, None, {str(key): str(value) for key, value in environment.items()}, origins=origins)


MEGATRON: Final = Framework(
    name=NAME,
    title=TITLE,
    aliases=("megatron-lm", "megatron-core", "mlm"),
    version=VERSION,
    source="NVIDIA/Megatron-LM, megatron/training/arguments.py; PyPI megatron-core 0.19.2",
    rules=FRAMEWORK_RULES["megatron"],
    terms=TERMS,
    write=write_script,
    find=find_flags,
    read_flags=read_arguments,
)
"""Megatron-LM, with the flags of the released package `megatron-core`; `pretrain_hybrid.py` runs patterns of layers,
`pretrain_gpt.py` other models."""
