"""torchtitan as one of the frameworks: what its files look like, and which key says which field."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from engine.launch.contract import Found, LaunchError, Order, Origin, Reading, Written
from engine.launch.launchers import launch_of
from engine.launch.shell import Word
from engine.launch.torchtitan.reading import read
from engine.launch.torchtitan.writing import TITLE, VERSION, write
from engine.launch.words_of_flags import origin_of, unread_word, value_of, word_after
from models.documents import shown

__all__ = ["TORCHTITAN", "Torchtitan"]

_SECTIONS: Final = frozenset({"parallelism", "activation_checkpoint", "compile", "quantize", "job"})
_MARKS: Final = ("--parallelism.", "--activation_checkpoint", "--job.config_file", "--training.num_tokens")
_COUNT: Final = re.compile(r"\b(\d{1,7})\s*(?:x\s*)?(?:[A-Z]{1,3}\d{1,4}[A-Z]?\b|GPUs?\b)")
_DEEPEST: Final = 8


class Torchtitan:
    """torchtitan."""

    name = "torchtitan"
    title = TITLE
    aliases = ("titan",)
    version = VERSION
    source = "pytorch/torchtitan, commit b5bcd76c and the wheels 0.2.2 and 0.3.0 (BSD-3-Clause)"
    terms: Mapping[str, str] = {
        "num_procs": "torchrun --nnodes, --nproc_per_node",
        "tensor_par": "parallelism.tensor_parallel_degree",
        "pipeline_par": "parallelism.pipeline_parallel_degree",
        "context_par": "parallelism.context_parallel_degree",
        "data_par": "parallelism.data_parallel_replicate_degree x data_parallel_shard_degree",
        "expert_par": "parallelism.expert_parallel_degree",
        "expert_tensor_par": "parallelism.expert_tensor_parallel_degree (0.2.2 only)",
        "batch_size": "training.num_tokens_per_train_step / sequence; before: training.global_batch_size",
        "microbatch_size": "training.num_tokens_per_microbatch_per_dp_rank / sequence; before: "
        "training.local_batch_size, parallelism.pipeline_parallel_microbatch_size",
        "pipeline_interleaving": "parallelism.pipeline_parallel_schedule, pipeline_parallel_layers_per_stage",
        "schedule": "parallelism.pipeline_parallel_schedule",
        "zero_stage": "parallelism.data_parallel_shard_degree, fsdp_reshard_after_forward",
        "optimizer_sharding": "parallelism.data_parallel_shard_degree",
        "activation_recompute": "activation_checkpoint:none|selective|full",
        "selective_recompute": "activation_checkpoint:selective (operators); 0.2.2: selective_ac_option",
        "tensor_par_comm_type": "parallelism.enable_sequence_parallel",
        "tensor_par_overlap": "compile.enable_async_tensor_parallel",
        "weight_offload": "training.enable_cpu_offload",
        "optimizer_offload": "training.enable_cpu_offload",
        "launch": "compile.enable, training.disable_cuda_graphs",
        "datatype": "model.converters (0.2.2); converters of the function",
    }

    def write(self, order: Order) -> Written:
        """Returns the command that trains with an execution; see `engine.launch.contract.Framework`."""
        return write(order)

    def read_flags(self, flags: Mapping[str, Any], gpus: int | None) -> Reading:
        """Returns what keys and values say; see `engine.launch.contract.Framework`."""
        return read(flags, gpus)

    def find(self, text: str, name: str) -> Found | None:
        """Returns what a TOML file or a command line holds; see `engine.launch.contract.Framework`."""
        toml = name.lower().endswith(".toml")
        if not toml and not any(f"[{section}]" in text for section in _SECTIONS):
            return _command(text, name)
        try:
            document = tomllib.loads(text)
        except (tomllib.TOMLDecodeError, RecursionError) as problem:
            if not toml:
                return _command(text, name)
            told = str(problem).splitlines()[0][:200] if str(problem) else "nested too deep"
            raise LaunchError(f"{shown(name)[1:-1]} is not TOML: {told}.") from None
        if not _SECTIONS & set(document):
            return None
        flags: dict[str, Any] = {}
        _flatten(document, "", flags, 0)
        gpus, remarks = _count_in_comment(text)
        return Found(flags, gpus, remarks=remarks)


def _flatten(section: Mapping[str, Any], prefix: str, flags: dict[str, Any], depth: int) -> None:
    for key, value in section.items():
        if isinstance(value, dict) and depth < _DEEPEST:
            _flatten(value, f"{prefix}{key}.", flags, depth + 1)
        else:
            flags[f"{prefix}{key}"] = value


def _count_in_comment(text: str) -> tuple[int | None, tuple[str, ...]]:
    """Returns the GPUs that the comments at the top speak of; a file has no key for them."""
    for line in text.splitlines()[:10]:
        if line.lstrip().startswith("#") and (found := _COUNT.search(line)):
            count = int(found[1])
            return count, (f"{count:,} GPUs are those of the comment at the top; no key says how many.",)
    return None, ()


def _command(text: str, name: str) -> Found | None:
    """Returns the keys of a command line."""
    if "torchtitan" not in text and not any(mark in text for mark in _MARKS):
        return None
    launch = launch_of(text, (*_MARKS, "--training.", "--module", "--model.", "--compile."), name)
    if launch is None:
        return None
    flags, origins, unread = _flags_of(launch.words)
    file = flags.pop("job.config_file", None) or launch.environment.get("CONFIG_FILE")
    if file:
        return Found(
            flags, launch.gpus, launch.environment, unread,
            (f"The command reads {shown(str(file))[1:-1]}, which is not at hand; what stands there is missing here.",
             *launch.remarks), origins,
        )  # fmt: skip
    return Found(flags, launch.gpus, launch.environment, unread, launch.remarks, origins)


def _flags_of(words: Sequence[Word]) -> tuple[dict[str, Any], dict[str, Origin], tuple[str, ...]]:
    """Returns the keys that words give, where each comes from, and the words that are none."""
    flags: dict[str, Any] = {}
    origins: dict[str, Origin] = {}
    unread: list[str] = []
    place = 0
    while place < len(words):
        word = words[place]
        place += 1
        beginning = "activation_checkpoint:"
        if word.text.startswith(beginning):
            rest = word_after(word, len(beginning))
            flags["activation_checkpoint"], origins["activation_checkpoint"] = (
                value_of(rest),
                origin_of(beginning, [rest]),
            )
            continue
        name, equals, _ = word.text.partition("=")
        if not word.text.startswith("--") or (word.unknown and not equals):
            unread.append(unread_word(word) or word.text)
            continue
        key = name[2:].replace("-", "_")
        section, _, last = key.rpartition(".")
        given: list[Word] = []
        while not equals and place < len(words) and not _is_key(words[place].text):
            given.append(words[place])
            place += 1
        if equals:
            rest = word_after(word, len(name) + 1)
            flags[key], origins[key] = value_of(rest), origin_of(name, [rest])
        elif not given:
            key = f"{section}.{last[3:]}" if last.startswith("no_") else key
            flags[key], origins[key] = not last.startswith("no_"), origin_of(name, [word])
        else:
            unknown = next((each for each in given if each.unknown), None)
            origins[key] = origin_of(name, given)
            flags[key] = (value_of(unknown) if unknown is not None else given[0].text if len(given) == 1 else
                          [each.text for each in given])  # fmt: skip
    return flags, origins, tuple(unread)


def _is_key(word: str) -> bool:
    return word.startswith(("--", "activation_checkpoint:"))


TORCHTITAN: Final = Torchtitan()
