"""torchtitan as a framework: forms of its files, and keys of fields."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from engine.executions.frameworks.registry import FRAMEWORK_RULES
from engine.launch.command_words import CommandWords, launch_in
from engine.launch.contract import (
    FileContents,
    Framework,
    LaunchError,
    Origin,
    UnknownValue,
)
from engine.launch.torchtitan.reading import read_configuration
from engine.launch.torchtitan.writing import TITLE, VERSION, write_command
from engine.launch.yaml_files import is_expression
from models.documents import check_toml_keys, shown

__all__ = ["TORCHTITAN"]

_SECTIONS: Final = frozenset({"parallelism", "activation_checkpoint", "compile", "quantize", "job"})
_MARKS: Final = ("--parallelism.", "--activation_checkpoint", "--job.config_file", "--training.num_tokens")
_COUNT: Final = re.compile(r"\b(\d{1,7})\s*(?:x\s*)?(?:[A-Z]{1,3}\d{1,4}[A-Z]?\b|GPUs?\b)")
_TABLE: Final = re.compile(r"^\s*\[+([A-Za-z0-9_. -]{1,200})\]+")
_KEY: Final = re.compile(r"^\s*([A-Za-z0-9_.-]{1,200})\s*=")
_DEEPEST: Final = 8


_TERMS: Final[Mapping[str, str]] = {
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
    "token_dispatcher": "parallelism.expert_parallel_comm_backend (0.2.2 only)",
    "context_par_comm": "parallelism.context_parallel_rotate_method (0.2.2 only)",
    "datatype": "model.converters (0.2.2); converters of the function",
}


def find_configuration(text: str, name: str, recipe: str | None) -> FileContents | None:
    """Return the values of a TOML file or a command line; None without any."""
    import tomllib  # not before a file is read

    toml = name.lower().endswith(".toml")
    if not toml and not any(f"[{section}]" in text for section in _SECTIONS):
        return _read_command(text, name)
    check_toml_keys(text, shown(name)[1:-1], LaunchError)
    try:
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as problem:
        if not toml:
            return _read_command(text, name)
        told = str(problem).splitlines()[0][:200] if str(problem) else "nested too deep"
        raise LaunchError(f"{shown(name)[1:-1]} is not TOML: {told}.") from None
    except ValueError:
        raise LaunchError(f"{shown(name)[1:-1]} is not TOML: a number has too many digits.") from None
    if not _SECTIONS & set(document) and not {"model", "training"} <= set(document):
        return None
    flags: dict[str, Any] = {}
    _flatten_section(document, "", flags, 0)
    lines = _lines_of(text)
    origins = {key: Origin("stated", key, name, lines.get(key, 0)) for key in flags}
    flags = {key: _convert_value(value, lines.get(key, 0), name) for key, value in flags.items()}
    gpus, remarks = _count_in_comment(text)
    if gpus is not None:
        origins["gpus"] = Origin("stated", "comment at the top", name, 1)
    return FileContents(flags, gpus, remarks=remarks, origins=origins)


def _convert_value(value: Any, line: int, file: str) -> Any:
    """A value, unknown where another program puts it in."""
    if isinstance(value, str) and is_expression(value):
        return UnknownValue(value[:160], line, file)
    return value


def _lines_of(text: str) -> dict[str, int]:
    """The line of each key, by its path."""
    found: dict[str, int] = {}
    table = ""
    for number, line in enumerate(text.split("\n"), 1):
        if match := _TABLE.match(line):
            table = match[1].strip() + "."
        elif match := _KEY.match(line):
            found[table + match[1]] = number
    return found


def _flatten_section(section: Mapping[str, Any], prefix: str, flags: dict[str, Any], depth: int) -> None:
    for key, value in section.items():
        if isinstance(value, dict) and depth < _DEEPEST:
            _flatten_section(value, f"{prefix}{key}.", flags, depth + 1)
        else:
            flags[f"{prefix}{key}"] = value


def _count_in_comment(text: str) -> tuple[int | None, tuple[str, ...]]:
    """Returns the GPUs that the comments at the top speak of; a file has no key for them."""
    for line in text.splitlines()[:10]:
        if line.lstrip().startswith("#") and (found := _COUNT.search(line)):
            count = int(found[1])
            return count, (f"{count:,} GPUs are those of the comment at the top; no key says how many.",)
    return None, ()


def _read_command(text: str, name: str) -> FileContents | None:
    """Returns the keys of a command line."""
    if "torchtitan" not in text and not any(mark in text for mark in _MARKS):
        return None
    launch = launch_in(text, (*_MARKS, "--training.", "--module", "--model.", "--compile."), name)
    if launch is None:
        return None
    words = CommandWords(launch.words)
    flags = _flags_of(words)
    file = flags.pop("job.config_file", None) or launch.environment.get("CONFIG_FILE")
    remarks: tuple[str, ...] = ()
    if file:
        told = file.expression if isinstance(file, UnknownValue) else shown(file)[1:-1]
        remarks = (f"The command reads {told}, which is not at hand; what only that file says is open.",)
        missing = UnknownValue(told)
        flags[missing.expression] = missing
    return launch.found(flags, words, remarks=remarks)


def _flags_of(words: CommandWords) -> dict[str, Any]:
    """Returns the keys that words give."""
    flags: dict[str, Any] = {}
    while (word := words.next()) is not None:
        if word.text.startswith("activation_checkpoint:"):
            key = "activation_checkpoint"
            flags[key] = words.value(word, word.text.partition(":")[2], key)
            continue
        if not word.text.startswith("--"):
            if not words.hide(word):
                words.unread.append(word.text)
            continue
        key, equals, text = word.text[2:].partition("=")
        key = key.replace("-", "_")
        section, _, last = key.rpartition(".")
        given = [] if equals else words.values_behind(_is_key)
        if equals:
            flags[key] = words.value(word, text, key)
        elif not given:
            switch = f"{section}.{last[3:]}" if last.startswith("no_") else key
            flags[switch] = not last.startswith("no_")
            words.origins[switch] = Origin("stated", switch, word.file, word.line)
        else:
            values = [words.value(each, each.text) for each in given]
            flags[key] = values[0] if len(values) == 1 else values
            words.origins[key] = Origin("stated", key, word.file, word.line)
    return {**flags, **words.hidden()}


def _is_key(word: Any) -> bool:
    return str(word.text).startswith(("--", "activation_checkpoint:"))


TORCHTITAN: Final = Framework(
    name="torchtitan",
    title=TITLE,
    aliases=("titan",),
    version=VERSION,
    source="pytorch/torchtitan, commit b5bcd76c and the wheels 0.2.2 and 0.3.0 (BSD-3-Clause)",
    rules=FRAMEWORK_RULES["torchtitan"],
    terms=_TERMS,
    write=write_command,
    find=find_configuration,
    read_flags=read_configuration,
)
