"""Keys and values of recipes as text: Python that assigns to a configuration, words KEY=VALUE, YAML. Nothing is run.

Names within Python stand for what the file assigns to them, defaults of parameters included; an expression that takes
more than the file's words is an unknown value. Recipes of NeMo 2 configure classes, as calls of them or as
`run.Config(CLASS, ...)`; YAML and commands of NeMo 1 have keys of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from engine.launch.command_words import CommandWords
from engine.launch.contract import Origin
from engine.launch.megatron_bridge.keys import SHORT
from engine.launch.megatron_bridge.nemo_keys import is_nemo, with_keys_of_bridge
from engine.launch.megatron_bridge.recipe_python import ROOMS, RecipeKeys
from engine.launch.yaml_files import flatten_table, read_yaml

__all__ = ["from_words", "from_yaml"]

_TABLES: Final = ROOMS | {
    "profiling",
    "rerun_state_machine",
    "ft",
    "straggler",
    "nvrx_straggler",
    "peft",
    "inprocess_restart",
    "env_vars",
    "tensor_inspect",
    "exp_manager",
    "defaults",
    "hydra",
    "run",
    "inference",
    "cluster",
    "strategy",
    "seed",
    "logging",
}
"""Tables of Megatron-Bridge's and NeMo's YAML; a file with other tables belongs to another program."""


def from_words(words: CommandWords) -> dict[str, Any]:
    """Returns keys and values of the words behind the program's name; others are noted as unread.

    Args:
        words: such as "model.sequence_parallel=true", "-tp", "4", "--recipe", "NAME", "++model.bias=False", "~key".
    """
    short: dict[str, Any] = {}
    found: dict[str, Any] = {}
    while (word := words.next()) is not None:
        name, equals, text = word.text.partition("=")
        if name in SHORT or name.startswith("--"):
            following = words.peek()
            if equals:
                value: Any = words.value(word, text, name)
            elif following is None or following.text.startswith("-") or "=" in following.text:
                words.origins[name] = Origin("stated", name, word.file, word.line)
                value = True if name.startswith("--") else ""
            else:
                value = words.value(following, following.text)
                words.origins[name] = Origin("stated", name, word.file, word.line)
                words.next()
            if name in SHORT:
                short[SHORT[name]] = value
                words.origins.setdefault(SHORT[name], words.origins[name])
            else:
                found[name] = value
        elif name.startswith("~"):
            found.pop(name[1:], None)  # Hydra deletes the key
        elif equals:
            key = name.lstrip("+")
            found[key] = words.value(word, text, key)
        elif not words.hide(word):
            words.unread.append(f"{word.text[:80]} is no KEY=VALUE.")
    values, words.origins = with_keys_of_bridge({**short, **found}, words.origins)
    return {**values, **words.hidden()}


def from_yaml(text: str, name: str = "") -> RecipeKeys | None:
    """Return keys and values of the YAML that Megatron-Bridge and NeMo write; None for other YAML.

    Args:
        text: text of the file.
        name: file name.

    Raises LaunchError for invalid YAML.
    """
    if not any(f"{table}:" in text or f'{table}"' in text for table in ("model", "trainer")):
        return None
    document = read_yaml(text, name)
    keys = RecipeKeys()
    for path, value in _leaf_values(document.values):
        keys.values[".".join(path)] = value
        keys.origins[".".join(path)] = document.origin(*path)
    own = is_nemo(keys.values)
    foreign = [str(key) for key, value in document.values.items() if isinstance(value, Mapping) and key not in _TABLES]
    if foreign and not (own and any(key.startswith("trainer.") for key in keys.values)):
        return None
    keys = keys.renamed()
    deciding = {
        "model.tensor_model_parallel_size",
        "model.pipeline_model_parallel_size",
        "train.global_batch_size",
        "train.micro_batch_size",
        "ddp.use_distributed_optimizer",
    }
    return keys if own or deciding & {*keys.values} else None


def _leaf_values(values: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], Any]]:
    for path, value in flatten_table(values):
        if len(".".join(path)) < 400:
            yield path, value
