"""Megatron-LM as a framework: flags of `pretrain_gpt.py`, in scripts, YAML files and printed arguments."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from engine.launch.contract import Found, LaunchError, LaunchFile, Order, Origin, Reading, Written
from engine.launch.launchers import header, launch_of, torchrun
from engine.launch.megatron.arguments import LM, Arguments
from engine.launch.megatron.constraints import refusal
from engine.launch.megatron.model_reading import read_model
from engine.launch.megatron.parser import OLD_FLAGS, flags_by_name, flags_of, parsed
from engine.launch.megatron.printed import said_by
from engine.launch.megatron.reading import read_execution
from engine.launch.megatron.terms import TERMS
from engine.launch.megatron.writing import Groups, groups_of
from engine.launch.report import Report
from engine.launch.shell import Word
from engine.launch.words_of_flags import origin_of, unread_word, value_of, word_after

__all__ = ["MEGATRON", "MegatronLM", "environment_of"]

_MARKS: Final = (
    "--tensor-model-parallel-size", "--num-layers", "--hidden-size", "--num-attention-heads", "--micro-batch-size",
    "--global-batch-size", "--pipeline-model-parallel-size", "--seq-length",
)  # fmt: skip
_YAML: Final = re.compile(r"^(\s*)(--[A-Za-z0-9-]{1,80}):[ \t]*(.*?)[ \t]*$", re.MULTILINE)
_PRINTED: Final = re.compile(r"^[^\n]{0,40}?\b([a-z][a-z0-9_]{1,60}) \.{2,60} ?([^\n]{0,2000}?)[ \t]*$", re.MULTILINE)
_MOST_ARE_PRINTED: Final = 20
"""Arguments that a log prints at least; a run has some 800."""
_AS_PRINTED: Final = "printed arguments"
"""Key of arguments by destination, as a log prints them, instead of flags."""
_ENVIRONMENT: Final = re.compile(r"^\s+([A-Z][A-Z0-9_]{2,80}):[ \t]*(\S{1,200})[ \t]*$", re.MULTILINE)
_RUN: Final[Mapping[str, Any]] = {
    "tokenizer_type": "NullTokenizer", "mock_data": True, "train_iters": 50, "lr": 1e-4, "min_lr": 1e-5,
    "log_interval": 1, "log_throughput": True,
}  # fmt: skip
_TO_REPLACE: Final = (
    "--tokenizer-type NullTokenizer, --mock-data, --train-iters, --lr, --min-lr: to be replaced by your data, "
    "tokenizer and optimizer"
)


def environment_of(order: Order) -> dict[str, str]:
    """Returns the environment that a run of Megatron-Core needs.

    Args:
        order: what is written.
    """
    e = order.execution
    found: dict[str, str] = {}
    if e["zero_stage"] < 2 and e["tensor_par"] * e["context_par"] > 1:
        found["CUDA_DEVICE_MAX_CONNECTIONS"] = "1"
    if e["activations_offload"] and (e["pipeline_par"] > 1 or e["activation_recompute"] != "none"):
        found["NVTE_CPU_OFFLOAD_V1"] = "1"  # offloading of modules; without it Transformer Engine takes weights along
    return found


class MegatronLM:
    """Megatron-LM; flags are those of the released package `megatron-core` and its `pretrain_gpt.py`."""

    name = "megatron"
    title = "Megatron-LM"
    aliases = ("megatron-lm", "megatron-core", "mlm")
    version = "megatron-core 0.19.2"
    source = "NVIDIA/Megatron-LM, megatron/training/arguments.py; PyPI megatron-core 0.19.2"
    terms = TERMS

    def write(self, order: Order) -> Written:
        """Returns a script for torchrun. Raises `LaunchError` where Megatron would refuse the execution.

        Args:
            order: what shall be written.
        """
        report = Report()
        groups = groups_of(order, report)
        groups["run"] = dict(_RUN)
        flags = command_line(groups)
        reason = refusal(self._arguments(flags, Report()), order.nodes * order.gpus_per_node)
        if reason:
            raise LaunchError(f"Megatron-LM refuses this execution: {reason}.")
        report.not_modelled(_TO_REPLACE)
        lists = {
            "Not expressible there": report.listed("not_expressible"),
            "Set there, not modelled": report.listed("not_modelled"),
            "Remarks": report.listed("remarks"),
        }
        lines = ["#!/usr/bin/env bash", header(f"{self.title} ({self.version})", order, lists), "set -euo pipefail"]
        lines += [f"export {name}={value}" for name, value in environment_of(order).items()]
        lines += ["", f"{torchrun(order)} pretrain_gpt.py \\"]
        shown = [_shown_group(groups[name]) for name in groups]
        lines.append(" \\\n".join(f"    {line}" for group in shown for line in group))
        text = "\n".join(lines) + "\n"
        return Written(
            self.name, self.title, self.version, (LaunchFile("launch_megatron.sh", text),), flags,
            *(report.listed(which) for which in ("not_expressible", "not_modelled", "remarks")),
        )  # fmt: skip

    def find(self, text: str, name: str) -> Found | None:
        """Returns the flags of a script, a command line or a YAML file of tests; None where there are none.

        Args:
            text: of the file.
            name: of the file.
        """
        if name.lower().endswith((".yaml", ".yml")):
            return _from_yaml(text)
        arguments = dict(_PRINTED.findall(text))
        if len(arguments) >= _MOST_ARE_PRINTED and "tensor_model_parallel_size" in arguments:
            return Found({_AS_PRINTED: arguments})
        launch = launch_of(text, _MARKS, name)
        if launch is None:
            return None
        flags, origins, unread = _from_words(launch.words)
        return Found(flags, launch.gpus, launch.environment, tuple(unread), launch.remarks, origins)

    def read_flags(self, flags: Mapping[str, Any], gpus: int | None) -> Reading:
        """Returns what flags say. Raises `LaunchError` where a number that decides is none.

        Args:
            flags: values by flag; True for one that stands alone.
            gpus: how many there are, None where nothing says it.
        """
        report = Report()
        args = self._arguments(flags, report)
        read_model(args, report)
        read_execution(args, report, gpus)
        known = report.execution.get("num_procs", gpus)
        if "num_procs" in report.execution and (reason := refusal(args, report.execution["num_procs"])):
            report.refuse(reason)
        return report.reading(self.name, self.version, flags, known if "num_procs" in report.execution else None)

    @staticmethod
    def _arguments(flags: Mapping[str, Any], report: Report) -> Arguments:
        if isinstance(arguments := flags.get(_AS_PRINTED), Mapping):
            return Arguments(said_by(arguments), LM)
        return Arguments(parsed(flags, report), LM)


def command_line(groups: Groups) -> dict[str, Any]:
    """Returns the flags of arguments, True for one that stands alone; switches at their default are left out.

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
        words.append(" ".join([flag, *map(_quoted, items)]))
    lines: list[str] = []
    for word in words:
        if lines and len(lines[-1]) + len(word) < 108:
            lines[-1] += " " + word
        else:
            lines.append(word)
    return lines


def _quoted(value: Any) -> str:
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return text if re.fullmatch(r"[A-Za-z0-9_.,:/+-]+", text) else "'" + text + "'"


def _from_words(words: Sequence[Word]) -> tuple[dict[str, Any], dict[str, Origin], list[str]]:
    """Returns the flags of the words of a command line, where each comes from, and sentences on what is no flag."""
    known = flags_by_name()
    found: dict[str, Any] = {}
    origins: dict[str, Origin] = {}
    unread: list[str] = []
    place = 0
    while place < len(words):
        word = words[place]
        place += 1
        name, equals, _ = word.text.partition("=")
        if not word.text.startswith("--") or (word.unknown and not equals):
            unread.append(unread_word(word) or f"{word.text[:80]} stands behind no flag.")
            continue
        if equals:
            rest = word_after(word, len(name) + 1)
            found[name], origins[name] = value_of(rest), origin_of(name, [rest])
            continue
        values: list[Word] = []
        while place < len(words) and not words[place].text.startswith("--"):
            values.append(words[place])
            place += 1
        flag = known.get(name)
        bare = flag.is_bare if flag is not None else OLD_FLAGS.get(name, ("", None))[1] is not None
        is_list = flag is not None and flag.kind in ("many", "three")
        origins[name] = origin_of(name, [word] if bare or not values else values if is_list else values[:1])
        if bare or not values:
            found[name] = True
            unread += [unread_word(each) or f"{each.text[:80]} stands behind {name}, which takes no value."
                       for each in values]  # fmt: skip
        elif is_list:
            unknown = next((each for each in values if each.unknown), None)
            found[name] = [each.text for each in values] if unknown is None else value_of(unknown)
        else:
            found[name] = value_of(values[0])
            unread += [unread_word(each) or f"{each.text[:80]} is a second value of {name}." for each in values[1:]]
    return found, origins, unread


def _from_yaml(text: str) -> Found | None:
    """Flags of `MODEL_ARGS` in a YAML file of Megatron's functional tests, read line by line."""
    if "MODEL_ARGS" not in text:
        return None
    flags: dict[str, Any] = {}
    for _, name, value in _YAML.findall(text):
        plain = value.split(" #")[0].strip().strip("'\"")
        if plain.lower() == "false":
            continue
        flags[name] = True if plain.lower() == "true" else plain
    environment = dict(_ENVIRONMENT.findall(text))
    return Found(flags, None, environment) if flags else None


MEGATRON: Final = MegatronLM()
"""The framework."""
