"""Rules that both the enumeration of a space and the check of a given execution follow, each stated once.

All take plain numbers as well as arrays that broadcast, and give what breaks each rule by its code in
`engine.executions.reasons`. Source of those among the 23 fields: the assertions of Calculon 0.1.0 (commit caa4b11),
`llm.py` `Llm.Execution.__init__` and `Llm.compile`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.executions.arrays import Flags
from engine.executions.codes import FULL, NO_OVERLAP, NONE, RS_AG

__all__ = [
    "fewest_blocks",
    "mode_rules",
    "most_blocks",
    "offloads",
    "tokens_undivided",
    "too_few_to_offload",
    "undivided",
]


def mode_rules(mode: Mapping[str, Any], *, single_tensor: Flags, single_data: Flags) -> dict[str, Flags]:
    """Return where fields contradict each other or need a group that does not exist.

    Args:
        mode: fields by name; words as positions in their choices.
        single_tensor: where the tensor-parallel group has one rank.
        single_data: where the data-parallel group has one rank.

    Returns:
        Where each rule is broken, by reason code.
    """
    training, recompute = mode["training"], mode["activation_recompute"]
    redone, overlapped = mode["seq_par_ag_redo"], mode["data_par_overlap"]
    return {
        "recompute_needs_training": ~training & (recompute != NONE),
        "sharding_needs_data_par": mode["optimizer_sharding"] & single_data,
        "overlap_needs_tensor_par": (mode["tensor_par_overlap"] != NO_OVERLAP) & single_tensor,
        "ag_redo_needs_rs_ag": redone & (mode["tensor_par_comm_type"] != RS_AG),
        "ag_redo_with_full_recompute": redone & (recompute == FULL),
        "data_par_overlap_needs_training": overlapped & ~training,
        "data_par_overlap_needs_data_par": overlapped & single_data,
        "optimizer_offload_needs_training": mode["optimizer_offload"] & ~training,
    }


def undivided(
    tensor_par: Any,
    *,
    hidden: int | None = None,
    feedforward: int | None = None,
    attn_heads: int | None = None,
    key_value_heads: int | None = None,
) -> dict[str, Any]:
    """Return where a tensor-parallel degree does not divide a size of the model.

    Heads of keys and values may also be fewer than ranks, each of which then holds a copy of one; so the degree has to
    divide them or the other way round.

    Args:
        tensor_par: degrees, at least 1.
        hidden, feedforward, attn_heads, key_value_heads: sizes of the model; None where the rule does not apply.

    Returns:
        True where a rule is broken, by reason code, in the order of checking.
    """
    broken: dict[str, Any] = {}
    if hidden is not None:
        broken["hidden_not_divisible"] = hidden % tensor_par != 0
    if feedforward is not None:
        broken["feedforward_not_divisible"] = feedforward % tensor_par != 0
    if attn_heads is not None:
        broken["heads_not_divisible"] = attn_heads % tensor_par != 0
    if key_value_heads is not None:
        broken["key_value_heads_not_divisible"] = (key_value_heads % tensor_par != 0) & (
            tensor_par % max(key_value_heads, 1) != 0
        )
    return broken


def most_blocks(num_blocks: Any, pipeline_par: Any) -> Any:
    """Returns the blocks of the stage that has most of them [count]: with a remainder, some stages have one more.

    Args:
        num_blocks: blocks of the model [count].
        pipeline_par: stages, at least 1 [count].
    """
    return -(-num_blocks // pipeline_par)


def fewest_blocks(num_blocks: Any, pipeline_par: Any) -> Any:
    """Returns the blocks of the stage that has fewest of them [count].

    Args:
        num_blocks: blocks of the model [count].
        pipeline_par: stages, at least 1 [count].
    """
    return num_blocks // pipeline_par


def offloads(mode: Mapping[str, Any]) -> Any:
    """Return which modes offload weights, activations or optimizer state.

    Args:
        mode: fields by name.
    """
    return mode["weight_offload"] | mode["activations_offload"] | mode["optimizer_offload"]


def too_few_to_offload(blocks: Any) -> Any:
    """Return where a stage has fewer than three blocks, too few for offloading: two blocks stay in the first memory
    tier, the one in use and the one in transit.

    Source: Calculon 0.1.0, `llm.py` line 1061, which tests the fullest processor (`most_blocks`). The cost model
        `calculon` does the same; `calibrated` tests the stage with the fewest blocks (`fewest_blocks`), since every
        stage must offload.

    Args:
        blocks: blocks of the stage [count].
    """
    return blocks < 3


def tokens_undivided(microbatch_size: Any, seq_size: int, tensor_par: Any, context_par: Any = 1) -> Any:
    """Return where sequence parallelism cannot split a microbatch evenly over the tensor-parallel group.

    Args:
        microbatch_size: samples of a microbatch [count].
        seq_size: tokens of a sample [count].
        tensor_par: processors of the tensor-parallel group [count].
        context_par: processors that share a sequence [count].
    """
    return microbatch_size * seq_size // context_par % tensor_par != 0
