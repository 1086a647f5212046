"""MaxText as a framework: forms of its files, and keys of fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from engine.executions.frameworks.registry import FRAMEWORK_RULES
from engine.launch.command_words import CommandLaunch, CommandWords, launch_in
from engine.launch.contract import FileContents, Framework, UnknownValue
from engine.launch.maxtext.reading import read_configuration
from engine.launch.maxtext.writing import TITLE, VERSION, write_command
from engine.launch.yaml_files import read_yaml
from models.documents import shown

__all__ = ["MAXTEXT"]

_TELLING: Final = frozenset(
    {
        "base_config",
        "per_device_batch_size",
        "max_target_length",
        "remat_policy",
        "ici_fsdp_parallelism",
        "dcn_fsdp_parallelism",
        "dcn_data_parallelism",
        "ici_tensor_parallelism",
        "base_emb_dim",
        "base_num_decoder_layers",
        "scan_layers",
    }
)
"""Keys by which a file is known as MaxText's; two of them at least."""
_MARKS: Final = tuple(f"{name}=" for name in sorted(_TELLING | {"model_name", "run_name"}))


_TERMS: Final[Mapping[str, str]] = {
    "num_procs": "NNODES, and the product of ici_* and dcn_*",
    "tensor_par": "ici_tensor_sequence_parallelism, ici_tensor_parallelism",
    "pipeline_par": "dcn_pipeline_parallelism, ici_pipeline_parallelism",
    "data_par": "data, fsdp, fsdp_transpose and expert axes of ici_* and dcn_*",
    "context_par": "ici_context_parallelism, dcn_context_parallelism",
    "context_par_comm": "context_parallel_strategy",
    "token_dispatcher": "use_ring_of_experts",
    "expert_par": "ici_expert_parallelism, dcn_expert_parallelism",
    "batch_size": "per_device_batch_size x GPUs x gradient_accumulation_steps",
    "microbatch_size": "num_pipeline_microbatches, gradient_accumulation_steps",
    "pipeline_interleaving": "num_layers_per_pipeline_stage, num_pipeline_repeats",
    "zero_stage": "ici_fsdp_parallelism, dcn_fsdp_parallelism, shard_optimizer_over_data",
    "optimizer_sharding": "shard_optimizer_over_data",
    "activation_recompute": "remat_policy",
    "selective_recompute": "remat_policy",
    "tensor_par_comm_type": "ici_tensor_sequence_parallelism",
    "tensor_par_overlap": "te_comm_gemm_overlap",
    "datatype": "dtype, quantization",
    "gradient_datatype": "grad_dtype",
    "optimizer_datatype": "mu_dtype (the first moment)",
    "weight_offload": "parameter_memory_host_offload",
    "optimizer_offload": "optimizer_memory_host_offload",
    "activations_offload": "remat_policy minimal_offloaded",
    "attention_kernel": "attention",
    "expert_overlap": "use_batch_split_schedule",
}


def find_configuration(text: str, name: str, recipe: str | None) -> FileContents | None:
    """Returns what a YAML file or a command holds."""
    if name.lower().endswith((".yml", ".yaml")) or (text.lstrip()[:1] not in ("{", "#!") and "=" not in text):
        if sum(f"\n{key}:" in f"\n{text}" or f"{key}:" in text for key in _TELLING) < 2:
            return None
        document = read_yaml(text, name)
        if len(_TELLING & {*document.values}) < 2:
            return None
        flags: dict[str, Any] = {}
        unread = []
        for key, value in document.values.items():
            if isinstance(value, Mapping):
                unread.append(f"{key}: a table, where MaxText has one value."[:100])
            elif value is not None:
                flags[key] = value
        return FileContents(flags, unread=tuple(unread), origins={key: document.origin(key) for key in flags})
    if "maxtext" not in text.lower() and sum(mark in text for mark in _MARKS) < 3:
        return None
    launch = launch_in(text, _MARKS, name)
    return None if launch is None else _from_words(launch)


def _from_words(launch: CommandLaunch) -> FileContents:
    """Returns the keys of a command's words; a later one counts more than an earlier one."""
    flags: dict[str, Any] = {}
    remarks: list[str] = []
    words = CommandWords(launch.words)
    while (word := words.next()) is not None:
        key, equals, text = word.text.partition("=")
        if equals and key.isidentifier():
            flags[key] = words.value(word, _strip_quotes(text), key)
        elif word.text.endswith((".yml", ".yaml")):
            if not word.text.endswith("base.yml"):
                remarks.append(
                    f"The command reads {shown(word.text)[1:-1]}, too, which is not at hand; what only that "
                    "file says is open."
                )
                missing = UnknownValue(shown(word.text)[1:-1], word.line, word.file)
                flags[missing.expression] = missing
        elif not words.hide(word):
            words.unread.append(word.text)
    if words.unread:
        remarks.append(f"Words without = are skipped: {' '.join(words.unread[:6])[:200]}.")
    found = launch.found({**flags, **words.hidden()}, words, remarks=remarks)
    # The GPUs are those of the axes: launchers count hosts.
    return FileContents(found.flags, None, found.environment, found.unread, found.remarks, found.origins)


def _strip_quotes(text: str) -> str:
    return text.strip("'\"")


MAXTEXT: Final = Framework(
    name="maxtext",
    title=TITLE,
    aliases=("max-text",),
    version=VERSION,
    source="AI-Hypercomputer/maxtext, commit e591f30c and version 0.2.5 (Apache-2.0)",
    rules=FRAMEWORK_RULES["maxtext"],
    terms=_TERMS,
    write=write_command,
    find=find_configuration,
    read_flags=read_configuration,
)
