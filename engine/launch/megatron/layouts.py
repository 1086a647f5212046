"""Cut of layers into stages: by Megatron-Core's flags, and as a stage layout of an execution.

Source: megatron/core/transformer/pipeline_parallel_layer_layout.py and transformer_config.py. Layouts are
written as in `engine.columns.stage_layouts`.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any, Final

from engine.columns.stage_layouts import StageLayoutError, layout_of_word
from engine.executions.layer_splits import COUNTED, StageCut, even_cut
from engine.launch.contract import LaunchError

__all__ = ["ACCOUNTS", "ENDS", "cut_of", "layout_of", "list_of", "options_of"]

MOST_CHUNKS: Final = 2_000
_LETTERS: Final = {"embedding": "E", "decoder": "t", "mtp": "m", "loss": "L"}
_WORD_OF_COUNTED: Final = {counted: word for word, counted in COUNTED.items()}
ACCOUNTS: Final = ("account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split")
ENDS: Final = ("decoder_first_pipeline_num_layers", "decoder_last_pipeline_num_layers")


def list_of(layout: Any) -> tuple[str, int]:
    """Return the canonical form of a list of layers, and the number of stages that it names.

    Args:
        layout: a text such as "Et*2|(t*2|)*34,t*3|tL", or a list of lists of names.

    Raises `LaunchError` for an invalid list.
    """
    if isinstance(layout, list | tuple):
        slots = [each for each in layout if isinstance(each, list | tuple)]
        if len(slots) != len(layout) or len(slots) > MOST_CHUNKS:
            raise LaunchError("The pipeline layout is no list of lists of layers.")
        layout = "|".join("".join(_LETTERS.get(str(name), "?") for name in each) for each in slots)
    try:
        found = layout_of_word(str(layout).strip())
    except StageLayoutError as problem:
        raise LaunchError(str(problem)) from None
    if not found.layers:
        raise LaunchError(f"The pipeline layout is {str(layout)[:60]!r}; it must be a list such as Et*3|(tt|)*29m|L.")
    return found.word, len(found.layers)


def cut_of(cut: StageCut, pipeline: int, layout: str) -> dict[str, Any]:
    """Returns the arguments with which Megatron-Core cuts a model into these stages; none where it does so by itself.

    A rule of Megatron's is written as that rule; "even" and "balanced" as the shortest arguments that come to their
    stages.

    Args:
        cut: layers of every stage of the model.
        pipeline: ranks of the pipeline.
        layout: that makes the cut, in the words of the field `stage_layout`.
    """
    if pipeline == 1:
        return {}
    found, chunks = layout_of_word(layout), len(cut.blocks) // pipeline
    virtual = {"num_virtual_stages_per_pipeline_rank": chunks} if chunks > 1 else {}
    if layout in COUNTED:
        return virtual | {name: True for name, on in zip(ACCOUNTS, COUNTED[layout], strict=True) if on}
    if found.first is not None or found.last is not None:
        given = zip(ENDS, (found.first, found.last), strict=True)
        return virtual | {name: number for name, number in given if number is not None}
    if not found.layers and len(set(cut.blocks)) == 1:
        return virtual
    with_ends = [cut.blocks[0] + 1, *cut.blocks[1:-1], cut.blocks[-1] + 1]
    if not found.layers and len(set(with_ends)) == 1:
        return virtual | dict.fromkeys(ACCOUNTS, True)
    return {"pipeline_model_parallel_layout": cut.word}


def options_of(cut: StageCut, pipeline: int, layout: str) -> str:
    """Returns the words of Megatron-LM's command line with which it cuts a model into these stages; empty where it does
    so by itself.

    Args:
        cut: layers of every stage of the model.
        pipeline: ranks of the pipeline.
        layout: that makes the cut, in the words of the field `stage_layout`.
    """
    words = []
    for name, value in cut_of(cut, pipeline, layout).items():
        option = f"--{name.replace('_', '-')}"
        words.append(option if value is True else f"{option} {shlex.quote(str(value))}")
    return " ".join(words)


def layout_of(arguments: Mapping[str, Any], layers: int | None, pipeline: int, chunks: int) -> str | None:
    """Return the stage layout that arguments give; None if stages are even by default.

    Args:
        arguments: set arguments of `ACCOUNTS` and `ENDS`, and `pipeline_model_parallel_layout`.
        layers: blocks of the model, None if unknown.
        pipeline: ranks of the pipeline.
        chunks: chunks of each rank.

    Raises `LaunchError` for an invalid list of layers.
    """
    listed = arguments.get("pipeline_model_parallel_layout")
    if pipeline == 1 or not arguments:
        return None
    if listed:
        found = layout_of_word(list_of(listed)[0])
        stages = len(found.layers)
        usual = even_cut(sum(found.layers), stages)
        return None if found.layers == usual and not any(found.predictions[:-1]) else found.word
    counted = (bool(arguments.get(ACCOUNTS[0])), bool(arguments.get(ACCOUNTS[1])))
    if all(counted) and layers is not None:
        stages = pipeline * chunks
        # Both counted is what even stages come to where layers + 2 divide and layers do not.
        return None if layers % stages and (layers + 2) % stages == 0 else _WORD_OF_COUNTED[counted]
    if any(counted):
        return _WORD_OF_COUNTED[counted]
    ends = [
        f"{word}_{int(arguments[name])}"
        for word, name in zip(("first", "last"), ENDS, strict=True)
        if arguments.get(name)
    ]
    return "_".join(ends) or None
