"""Executions and networks in words."""

from collections.abc import Mapping
from typing import Any, Final

from dashboard.charts.template import degrees
from dashboard.format import plain
from engine.columns import FIELDS, by_name, choice_label
from hardware import System

_OFFLOADS: Final = {"weight_offload": "weights", "activations_offload": "activations", "optimizer_offload": "optimizer"}
_NETWORKS: Final = (("TP", "tensor_par", "tensor_par_net"), ("PP", "pipeline_par", "pipeline_par_net"),
                    ("DP", "data_par", "data_par_net"))  # fmt: skip


def title(execution: Mapping[Any, Any]) -> str:
    """Return the degrees of an execution: "TP 8 × PP 4 × DP 16"."""
    return degrees(execution["tensor_par"], execution["pipeline_par"], execution["data_par"])


def network_name(system: System, tier: int) -> str:
    """Return what a network tier is called: "tier 0, 8 GPUs, 450 GB/s"."""
    network = system.networks[tier]
    return f"tier {tier}, {network.size:,} GPUs, {plain(network.bandwidth_gb_per_s)} GB/s"


def offloaded(execution: Mapping[Any, Any]) -> str:
    """Return what lives in host memory: "weights, optimizer" or "nothing"."""
    return ", ".join(word for name, word in _OFFLOADS.items() if bool(execution[name])) or "nothing"


def microbatches(execution: Mapping[Any, Any]) -> int:
    """Return the number of microbatches that a replica works through in a step."""
    local = int(execution["batch_size"]) // int(execution["data_par"])
    return local // int(execution["microbatch_size"])


def choices(execution: Mapping[Any, Any]) -> list[tuple[str, str]]:
    """Return every choice of an execution besides its degrees, as short key and value pairs."""
    nets = [(key, str(int(execution[net]))) for key, degree, net in _NETWORKS if int(execution[degree]) > 1]
    facts = []
    if nets:
        keys, tiers = zip(*nets, strict=True)
        facts.append((f"{' · '.join(keys)} on network tier", " · ".join(tiers)))
    facts += [
        ("interleaving", str(int(execution["pipeline_interleaving"]))),
        ("microbatches", f"{microbatches(execution):,} × {int(execution['microbatch_size']):,}"),
        ("recompute", _word(execution, "activation_recompute")),
    ]
    if int(execution["tensor_par"]) > 1:
        facts.append(("TP comm.", _word(execution, "tensor_par_comm_type")))
        facts.append(("TP overlap", _word(execution, "tensor_par_overlap")))
    if bool(execution["seq_par_ag_redo"]):
        facts.append(("gather again", "on"))
    if int(execution["data_par"]) > 1:
        facts.append(("DP overlap", _word(execution, "data_par_overlap")))
        facts.append(("optimizer", "sharded" if bool(execution["optimizer_sharding"]) else "whole"))
    facts.append(("offload", offloaded(execution)))
    if not bool(execution["fused_activation"]):
        facts.append(("activation", "not fused"))
    if execution["attention_type"] != "multihead":
        facts.append(("attention", _word(execution, "attention_type")))
    if not bool(execution["training"]):
        facts.append(("step", "inference"))
    return facts


def differences(first: Mapping[Any, Any], second: Mapping[Any, Any]) -> list[tuple[str, str, str]]:
    """Return the fields in which two executions differ: (label, value of the first, value of the second)."""
    return [
        (column.label, choice_label(column, first[column.name]), choice_label(column, second[column.name]))
        for column in FIELDS
        if first[column.name] != second[column.name]
    ]


def _word(execution: Mapping[Any, Any], name: str) -> str:
    return choice_label(by_name(name), execution[name])
