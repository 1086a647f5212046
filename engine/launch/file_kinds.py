"""What kind of file a text is, asked before any framework looks at it: unmistakable formats first, guesses last."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from engine.launch.contract import Framework

__all__ = ["foreign_program", "is_model_config", "possible_frameworks"]

_MODEL_KEYS: Final = re.compile(r'^[ \t]{0,8}"(model_type|architectures|transformers_version)"\s*:', re.MULTILINE)
_ANY_MODEL_KEY: Final = re.compile(r'[{,]\s*"(model_type|transformers_version)"\s*:')
_DEEPSPEED_KEYS: Final = re.compile(r'"(zero_optimization|train_micro_batch_size_per_gpu|train_batch_size)"\s*:')
_YAML: Final = (".yaml", ".yml")
_FOREIGN: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    ("Primus", ("work_group:", "modules:")),
    ("FlagScale", ("experiment:", "task:")),
    ("FlagScale", ("system:", "model:")),
    ("NeMo-RL", ("policy:", "grpo:")),
    ("verl", ("actor_rollout_ref:",)),
    ("Nanotron", ("parallelism:", "tokens:")),
    ("GPT-NeoX", ("pipe_parallel_size",)),
    ("GPT-NeoX", ("pipe-parallel-size",)),
    ("LLaMA-Factory", ("model_name_or_path:", "finetuning_type:")),
    ("Axolotl", ("base_model:", "micro_batch_size:")),
    ("Accelerate", ("distributed_type:", "compute_environment:")),
    ("Composer", ("fsdp_config:", "max_duration:")),
    ("ColossalAI", ("plugin:", "tp_size:")),
    ("Kubernetes", ("apiVersion:", "kind:")),
)  # fmt: skip
"""Programs whose configurations are not read, by keys that they have."""


def is_model_config(text: str) -> bool:
    """Returns whether a text is a model's `config.json` as Hugging Face's transformers write it.

    Args:
        text: of the file.
    """
    if not text.lstrip().startswith("{") or _DEEPSPEED_KEYS.search(text):
        return False
    return _MODEL_KEYS.search(text) is not None or _ANY_MODEL_KEY.search(text) is not None


def possible_frameworks(text: str, name: str, known: Iterable[Framework]) -> Iterator[Framework]:
    """Yields the frameworks that a file of its kind can be of.

    Args:
        text: of the file.
        name: of the file; its ending counts where the text does not show what it is.
        known: frameworks, in the order in which they are asked.
    """
    ending = name.lower()
    if text.lstrip().startswith(("{", "[{")):
        only: tuple[str, ...] = ("deepspeed",)
    elif ending.endswith(".toml") or re.search(r"^\s*\[(model|training|parallelism)\]\s*(#.*)?$", text, re.MULTILINE):
        only = ("torchtitan",)
    elif text.startswith("#!") and "python" not in text.partition("\n")[0]:
        only = ()
    elif ending.endswith(_YAML):
        only = ("megatron", "megatron-bridge", "maxtext")
    elif ending.endswith(".py"):
        only = ("megatron-bridge",)
    else:
        only = ()
    yield from (each for each in known if not only or each.name in only)


def foreign_program(text: str, name: str) -> str | None:
    """Returns the title of another program whose configuration a text is; None where no known one is.

    Args:
        text: of the file.
        name: of the file.
    """
    if not name.lower().endswith((*_YAML, ".json")):
        return None
    keys = set(re.findall(r"^[ \t]{0,4}[\"']?([A-Za-z_-]{1,40})[\"']?[ \t]*:", text, re.MULTILINE))
    for title, marks in _FOREIGN:
        if all(mark.rstrip(":") in keys for mark in marks):
            return title
    return None
