"""Kinds of files, detected before any framework reads them: unmistakable formats first, guesses last."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from engine.launch.contract import Framework, LaunchError
from engine.launch.yaml_files import read_yaml

__all__ = ["foreign_program", "is_model_config", "is_reinforcement", "name_by_kind", "possible_frameworks"]

_MODEL_KEYS: Final = re.compile(r'^[ \t]{0,8}"(model_type|architectures|transformers_version)"\s*:', re.MULTILINE)
_ANY_MODEL_KEY: Final = re.compile(r'[{,]\s*"(model_type|transformers_version)"\s*:')
_DEEPSPEED_KEYS: Final = re.compile(r'"(zero_optimization|train_micro_batch_size_per_gpu|train_batch_size)"\s*:')
_TITAN_TABLE: Final = re.compile(r"^[ \t]*\[(model|training|parallelism)\][ \t]*(#.*)?$", re.MULTILINE)
_YAML: Final = (".yaml", ".yml")
_FOREIGN: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    ("Primus", ("work_group", "modules")),
    ("Primus", ("modules.pre_trainer",)),
    ("FlagScale", ("experiment.task",)),
    ("FlagScale", ("train.system",)),
    ("FlagScale", ("system", "model")),
    ("verl", ("actor_rollout_ref",)),
    ("Nanotron", ("parallelism", "tokens")),
    ("GPT-NeoX", ("pipe_parallel_size",)),
    ("GPT-NeoX", ("pipe-parallel-size",)),
    ("GPT-NeoX", ("model-parallel-size",)),
    ("LLaMA-Factory", ("model_name_or_path", "finetuning_type")),
    ("Axolotl", ("base_model", "micro_batch_size")),
    ("Accelerate", ("distributed_type", "compute_environment")),
    ("Composer", ("fsdp_config", "max_duration")),
    ("ColossalAI", ("plugin", "tp_size")),
    ("Kubernetes", ("apiVersion", "kind")),
    ("Docker Compose", ("services",)),
)
"""Programs whose configurations are not read, by keys that they have, two levels deep."""
_REINFORCEMENT: Final = re.compile(
    r"^grpo:[ \t]*(#.*)?$|--rollout-batch-size\b"
    r"|\b(verl|recipe)[./][\w./]{0,100}(main_ppo|main_dapo|fully_async_main)\b",
    re.MULTILINE,
)
"""Words of NeMo-RL, verl and slime, which train otherwise than on a data set."""
_LOOKS_LIKE_YAML: Final = re.compile(
    r"(?:[ \t]*(?:#[^\n]*|---[^\n]*)?\n)*[A-Za-z_][A-Za-z0-9_]{0,60}:(?:[ \t][^\n]*)?\n"
)


def is_model_config(text: str) -> bool:
    """Returns whether a text is a model's `config.json` as Hugging Face's transformers write it.

    Args:
        text: of the file.
    """
    if not text.lstrip().startswith("{") or _DEEPSPEED_KEYS.search(text):
        return False
    return _MODEL_KEYS.search(text) is not None or _ANY_MODEL_KEY.search(text) is not None


def is_reinforcement(text: str) -> bool:
    """Return whether a text starts reinforcement learning, which `engine.launch.post_training` reads.

    Args:
        text: of the file.
    """
    return _REINFORCEMENT.search(text) is not None


def name_by_kind(text: str, name: str) -> str:
    """Returns a file's name with the ending of its kind, where it has none: YAML that was pasted.

    Args:
        text: of the file.
        name: of the file.
    """
    if re.search(r"\.[A-Za-z]{1,8}$", name) is None and _LOOKS_LIKE_YAML.match(text[:4_000]) is not None:
        return f"{name}.yaml"
    return name


def possible_frameworks(text: str, name: str, known: Iterable[Framework]) -> Iterator[Framework]:
    """Yield the frameworks to which a file of its kind can belong.

    Args:
        text: text of the file.
        name: file name; its ending decides if the text does not.
        known: frameworks, in the order in which they are tried.
    """
    is_yaml = name.lower().endswith(_YAML)
    only: tuple[str, ...] = ()
    if text.lstrip().startswith(("{", "[{")):
        only = ("deepspeed", "megatron", "megatron-bridge", "maxtext") if is_yaml else ("deepspeed",)
    elif name.lower().endswith(".toml") or _TITAN_TABLE.search(text):
        only = ("torchtitan",)
    elif is_yaml:
        only = ("megatron", "megatron-bridge", "maxtext")
    elif name.lower().endswith(".py"):
        only = ("megatron-bridge",)
    yield from (each for each in known if not only or each.name in only)


def foreign_program(text: str, name: str) -> str | None:
    """Returns the title of another program whose configuration a text is; None where no known one is.

    Args:
        text: of the file.
        name: of the file.
    """
    if not name.lower().endswith((*_YAML, ".json")):
        return None
    try:
        values = read_yaml(text, name).values
    except LaunchError:
        return None
    keys = {str(key) for key in values}
    keys |= {f"{key}.{inner}" for key, value in values.items() if isinstance(value, Mapping) for inner in value}
    return next((title for title, marks in _FOREIGN if keys.issuperset(marks)), None)
