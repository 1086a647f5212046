"""Arguments of Megatron-Core for a model with a pattern of layers, and parts that it cannot express.

Sources: megatron/core/models/hybrid/ and pretrain_hybrid.py, core 0.19 and 0.20.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any, Final

from engine.launch.contract import LaunchError, LaunchOrder
from engine.launch.layer_words import words_of_layers
from engine.launch.report import Report
from models import Model
from models.layers import Block, LaunchWords

__all__ = ["count_letters", "pattern_arguments", "write_pattern"]

_SPEC: Final = ["megatron.core.models.hybrid.hybrid_layer_specs", "hybrid_stack_spec"]


def pattern_arguments(order: LaunchOrder, report: Report) -> dict[str, Any]:
    """Return the arguments that state a model with a pattern of layers.

    Args:
        order: execution and model to write.
        report: receives what cannot be said.

    Raises `LaunchError` naming the layer or the value that Megatron-LM cannot run.
    """
    model, pattern = order.model, order.model.layers
    assert pattern is not None
    name = model.title or model.name
    found = words_of_layers(model, "megatron", "Megatron-LM")
    if pattern.other_parameters:
        raise LaunchError(
            f"Megatron-LM has no place for the {pattern.other_parameters:,} weights of {name} outside its blocks "
            "(other_parameters), such as inputs of each layer."
        )
    if not pattern.norm_width:
        raise LaunchError(f"Megatron-LM has no norms without weights, as {name} has (norm_width 0).")
    arguments = _merge(name, found)
    heads = {} if "num_attention_heads" in arguments else {"num_attention_heads": order.execution["tensor_par"]}
    if heads:
        report.remark("No layer has attention; --num-attention-heads is written as the parser needs it.")
        heads["kv_channels"] = 64
    for told in dict.fromkeys(each for _, words in found for word in words for each in word.differences):
        report.not_expressible(told)
    report.remark(
        "Positions are not recorded for this model: --position-embedding-type rope is written; choose none for a model "
        "without positions."
    )
    if "swiglu" in arguments and not arguments["swiglu"]:
        report.remark("The activation is not recorded: GELU is written; choose --squared-relu for ReLU squared.")
    return {
        "hybrid_layer_pattern": write_pattern(model, order.cut.blocks if order.execution["pipeline_par"] > 1 else ()),
        "spec": _SPEC,
        "hidden_size": pattern.hidden,
        **heads,
        **arguments,
        "seq_length": model.seq_size,
        "max_position_embeddings": model.seq_size,
        "position_embedding_type": "rope",
        "normalization": "RMSNorm" if pattern.norm_width == 1 else "LayerNorm",
        "add_bias_linear": arguments.get("add_bias_linear", False),
        "untie_embeddings_and_output_weights": not pattern.tied_embeddings,
        "attention_dropout": 0.0,
        "hidden_dropout": 0.0,
        "vocab_size": pattern.vocab,
    }


def write_pattern(model: Model, stages: Sequence[int]) -> str:
    """Return the letters of all layers of a model, with | between stages.

    Args:
        model: one with a pattern of layers.
        stages: blocks of every stage of the model; empty without a pipeline.

    Raises `LaunchError` naming the layer that Megatron-LM cannot run.
    """
    assert model.layers is not None
    name = model.title or model.name
    found = words_of_layers(model, "megatron", "Megatron-LM")
    letters = [_letters_of_block(name, block, words) for block, words in found]
    _refuse_mixed_attention(name, "".join(letters))
    layers = [letters[run.block] for run in model.layers.runs for _ in range(run.count)]
    if not stages:
        return "".join(layers)
    ends = [0, *accumulate(stages)]
    return "|".join("".join(layers[start:end]) for start, end in pairwise(ends))


def count_letters(order: LaunchOrder) -> int:
    """Return how many letters each block of a model has; 1 where blocks differ in that.

    Args:
        order: execution and model to write.
    """
    assert order.model.layers is not None
    sizes = {len(block.layers) for block in order.model.layers.blocks}
    return sizes.pop() if len(sizes) == 1 else 1


def _letters_of_block(name: str, block: Block, words: tuple[LaunchWords, ...]) -> str:
    """Return the letters of a block. Raises `LaunchError` unless its layers are in series, a norm before each."""
    sides = (len(block.mixers), len(block.feedforwards))
    if max(sides) > 1:
        raise LaunchError(
            f"Megatron-LM runs one layer after the other; {name} has {block.title} side by side in a block."
        )
    if block.norms != sum(sides):
        raise LaunchError(
            f"Megatron-LM has one norm before each layer; a block of {name} ({block.title}) has {block.norms} norms "
            f"for {sum(sides)} layers."
        )
    return "".join(each.letter for each in words)


def _merge(name: str, found: list[tuple[Block, tuple[LaunchWords, ...]]]) -> dict[str, Any]:
    """Return the arguments of all layers. Raises `LaunchError` where two layers need unlike values of one."""
    merged: dict[str, Any] = {}
    for _, words in found:
        for word in words:
            for argument, value in word.arguments.items():
                if merged.setdefault(argument, value) != value:
                    flag = "--" + argument.replace("_", "-")
                    told = " and ".join("none" if each is None else str(each) for each in (merged[argument], value))
                    raise LaunchError(
                        f"Megatron-LM has one {flag} for all layers; those of {name} need {told.replace('_', ' ')}."
                    )
    return {argument: value for argument, value in merged.items() if value is not None}


def _refuse_mixed_attention(name: str, letters: str) -> None:
    if "*" in letters and ("D" in letters or "+" in letters):
        raise LaunchError(f"Megatron-LM runs ordinary or latent attention in a model, not both; {name} has both.")
