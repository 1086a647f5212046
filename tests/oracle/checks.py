"""Which executions can run at all, in the order in which Calculon looks.

Each check raises `RejectedError`: "infeasible" for what Calculon reports as its own error, "invalid" for what it
asserts or silently misreads.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import Any, Literal

from .hardware import DATATYPE_BYTES, Machine, Tier

INTEGERS = (
    "num_procs",
    "tensor_par",
    "pipeline_par",
    "data_par",
    "tensor_par_net",
    "pipeline_par_net",
    "data_par_net",
    "batch_size",
    "microbatch_size",
    "pipeline_interleaving",
)
BOOLEANS = (
    "fused_activation",
    "optimizer_sharding",
    "seq_par_ag_redo",
    "data_par_overlap",
    "weight_offload",
    "activations_offload",
    "optimizer_offload",
    "training",
)
STRINGS = ("datatype", "attention_type", "activation_recompute", "tensor_par_comm_type", "tensor_par_overlap")
PARALLELISMS = ("tensor_par", "pipeline_par", "data_par")


class RejectedError(Exception):
    """An execution that does not run: `status`, `reason` code and Calculon's text where it has one."""

    def __init__(self, status: Literal["infeasible", "invalid"], reason: str, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.reason = reason
        self.text = text


def require(condition: bool, reason: str, text: str = "") -> None:
    if not condition:
        raise RejectedError("invalid", reason, text)


def require_feasible(condition: bool, reason: str, text: str) -> None:
    if not condition:
        raise RejectedError("infeasible", reason, text)


def check_types(execution: Mapping[str, Any]) -> None:
    """Calculon does not look at types; a stray one is refused here before anything else."""
    for name in INTEGERS + BOOLEANS + STRINGS:
        require(execution.get(name) is not None, "missing_value", name)
    for name in INTEGERS:
        value = execution[name]
        require(isinstance(value, int) and not isinstance(value, bool), "not_an_integer", name)
    for name in BOOLEANS:
        require(isinstance(execution[name], bool), "not_a_boolean", name)


def check_schedule(e: Mapping[str, Any]) -> None:
    """What the execution alone must satisfy."""
    require(e["num_procs"] > 0, "num_procs_not_positive")
    require(all(e[name] > 0 for name in PARALLELISMS), "parallelism_not_positive")
    require(
        e["tensor_par"] * e["pipeline_par"] * e["data_par"] == e["num_procs"],
        "parallelism_product",
        "tensor * pipeline * data parallelism != num_procs",
    )
    require(e["batch_size"] > 0, "batch_size_not_positive")
    require(e["microbatch_size"] > 0, "microbatch_size_not_positive")
    require(e["batch_size"] % e["data_par"] == 0, "batch_not_divisible_by_data_par")
    local_batch = e["batch_size"] // e["data_par"]
    require(local_batch % e["microbatch_size"] == 0, "local_batch_not_divisible_by_microbatch")
    require(e["attention_type"] in ("multihead", "multiquery"), "unknown_attention_type")
    require(e["activation_recompute"] in ("full", "attn_only", "none"), "unknown_recompute")
    require(
        e["training"] or e["activation_recompute"] == "none",
        "recompute_needs_training",
        "We only perform recompute during training",
    )
    interleaving = e["pipeline_interleaving"]
    require(interleaving > 0, "interleaving_not_positive", f"Bad pipeline interleaving of {interleaving}")
    require(
        interleaving == 1 or e["pipeline_par"] > 1,
        "interleaving_needs_pipeline",
        f"Bad pipeline interleaving of {interleaving} with PP=1",
    )
    require(
        not e["optimizer_sharding"] or e["data_par"] > 1,
        "sharding_needs_data_par",
        "We perform optimizer sharding with DP > 1",
    )
    require(e["tensor_par_comm_type"] in ("ar", "p2p_rs_ag", "rs_ag"), "unknown_tensor_par_comm_type")
    require(e["tensor_par_overlap"] in ("none", "ring", "pipe"), "unknown_tensor_par_overlap")
    require(
        e["tensor_par_overlap"] == "none" or e["tensor_par"] > 1,
        "overlap_needs_tensor_par",
        "We perform TP comm overlap with TP > 1",
    )
    if e["seq_par_ag_redo"]:
        require(e["tensor_par_comm_type"] == "rs_ag", "ag_redo_needs_rs_ag", "We only redo AG comm")
        require(
            e["activation_recompute"] != "full",
            "ag_redo_with_full_recompute",
            "We assume no extra AG with full recompute",
        )
    if e["data_par_overlap"]:
        require(e["training"], "data_par_overlap_needs_training", "We only perform DP comm overlap during training")
        require(e["data_par"] > 1, "data_par_overlap_needs_data_par", "We perform DP comm overlap with DP > 1")
    require(
        not e["optimizer_offload"] or e["training"],
        "optimizer_offload_needs_training",
        "We only perform optimizer offloading during training",
    )


def check_networks(e: Mapping[str, Any], tiers: list[Tier]) -> None:
    """Every parallelism names a tier, and every tier is large enough for those above one placed on it."""
    for name in PARALLELISMS:
        require(0 <= e[f"{name}_net"] < len(tiers), "network_does_not_exist")
    for index, tier in enumerate(tiers):
        placed = [e[name] for name in PARALLELISMS if e[name] > 1 and e[f"{name}_net"] == index]
        if not placed:
            continue
        used = 1
        for degree in placed:
            used *= degree
        require_feasible(used <= tier.size, "network_too_small", f"Network tier{index} isn't big enough")
        if tier.must_be_filled:
            require_feasible(tier.size % used == 0, "network_not_filled", f"Network tier{index} isn't fully used")


def check_blocks(model: Mapping[str, int], e: Mapping[str, Any]) -> None:
    """Blocks, chunks and offloading; then the divisions tensor parallelism makes."""
    blocks = ceil(model["num_blocks"] / e["pipeline_par"])
    interleaving = e["pipeline_interleaving"]
    require_feasible(
        interleaving <= blocks,
        "interleaving_exceeds_blocks",
        "Pipeline interleaving must be less than or equal to the number of blocks per processor",
    )
    require_feasible(
        blocks % interleaving == 0,
        "interleaving_not_dividing_blocks",
        "Pipeline interleaving must be a factor value of the number of blocks per processor",
    )
    require_feasible(
        not (e["weight_offload"] or e["activations_offload"] or e["optimizer_offload"]) or blocks >= 3,
        "offload_needs_three_blocks",
        "Offloading requires each processor to handle at least 3 blocks",
    )
    tp = e["tensor_par"]
    if e["tensor_par_comm_type"] != "ar":
        tokens = e["microbatch_size"] * model["seq_size"]
        require(
            tokens % tp == 0,
            "sequence_not_divisible",
            f"We should split batch_seq={tokens} between {tp} TP partitions evenly",
        )
    for field, reason, subject in (
        ("hidden", "hidden_not_divisible", "hidden={}"),
        ("feedforward", "feedforward_not_divisible", "feedforward={}"),
        ("attn_heads", "heads_not_divisible", "{} attn_heads"),
    ):
        require(
            model[field] % tp == 0,
            reason,
            f"We should split {subject.format(model[field])} between {tp} TP partitions evenly",
        )


def check_memory(required: tuple[float, float], machine: Machine) -> None:
    for tier, need, reason in ((1, required[0], "memory_tier1"), (2, required[1], "memory_tier2")):
        capacity = machine.capacity(f"mem{tier}")
        require_feasible(
            need <= capacity, reason, f"Mem tier{tier} needs {binary_size(need)} but only has {binary_size(capacity)}"
        )


def binary_size(size: float) -> str:
    """A size in the way Calculon prints it: three decimals, steps of 1024."""
    for unit in ("", "K", "M", "G", "T", "P", "E"):
        if abs(size) < 1024:
            return f"{size:.3f} {unit}iB" if unit else f"{size:.3f} B"
        size /= 1024
    return f"{size:.3f} ZiB"


def check_datatype_known(datatype: str) -> None:
    require(datatype in DATATYPE_BYTES, "unknown_datatype", f"Unsupported data type: {datatype}")


def check_datatype_supported(system: Mapping[str, Any], datatype: str) -> None:
    supported = datatype in system["matrix"] and datatype in system["vector"]
    require(supported, "datatype_not_on_system", f"Unsupported type: {datatype}")
