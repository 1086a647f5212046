"""Executions and networks in words."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from dashboard.words.names import in_sentence
from dashboard.words.numbers import ABSENT, counted, format_value, percent, plain
from engine import Scenario
from engine.columns import (
    ALL_FIELDS,
    EXTENSIONS,
    NEUTRAL_EXTENSIONS,
    Column,
    applies,
    by_name,
    choice_label,
    in_order,
)
from engine.executions.execution_names import execution_name
from hardware import System, network_names
from models import dimensions

OFFLOADS: Final[Mapping[str, str]] = {
    "weight_offload": "weights",
    "activations_offload": "activations",
    "optimizer_offload": "optimizer",
}
"""Offloaded tensors in words, by the field of the offload."""
_NETWORKS: Final = (
    ("TP", "tensor_par", "tensor_par_net"),
    ("PP", "pipeline_par", "pipeline_par_net"),
    ("DP", "data_par", "data_par_net"),
)
_ZERO: Final = ("0, nothing shared", "1, optimizer state", "2, gradients too", "3, weights too (FSDP)")
_BRIEFLY: Final = {"modules": "norms", "half": "half"}
"""Short words for selective recomputation, for tables without room for the full label."""
_CALLED: Final = {
    "expert_tensor_par": "expert TP",
    "tensor_par_comm_type": "TP comm.",
    "optimizer_sharding": "optimizer",
    "zero_stage": "ZeRO",
    "gradient_datatype": "gradients",
    "dispatch_datatype": "dispatch",
    "expert_imbalance": "expert load",
    "fused_activation": "activation",
    "training": "step",
    "seq_par_ag_redo": "repeat all-gather",
    "launch": "launch",
}
"""Fields whose name among the choices of an execution is not that of the register."""
_WORDS: Final[Mapping[str, Mapping[Any, str]]] = {
    "optimizer_sharding": {True: "sharded", False: "whole"},
    "fused_activation": {False: "not fused"},
    "training": {False: "inference"},
    "zero_stage": dict(enumerate(_ZERO)),
}
"""Words for values of a field that are clearer than the register's: field name -> value -> word."""
_USUAL: Final = {"attention_kernel": "native", "zero_stage": None, "seq_par_ag_redo": False}
"""Usual values that need no mention, if they differ from the register's default."""
_APART: Final = {
    "tensor_par",
    "pipeline_par",
    "data_par",
    "batch_size",
    "microbatch_size",
    "pipeline_interleaving",
    "activation_recompute",
    "selective_recompute",
    *OFFLOADS,
    *(net for _, _, net in _NETWORKS),
}
"""Fields that `title` and the sentences of `choices` tell together with others."""


def placed(faster: int, feasible: int, distance: float | None = None) -> str:
    """Returns the place of an execution that runs: "place 12 of 3,456 that run, the best is 11.0 % faster".

    Args:
        faster: executions that are faster [count].
        feasible: executions that run [count].
        distance: throughput of the best over its own, less 1 [fraction]; None to leave it out.
    """
    if not faster:
        return f"none of the {feasible:,} that run is faster"
    far = "" if distance is None else f", the best is {percent(distance)} faster"
    return f"place {faster + 1:,} of {feasible:,} that run{far}"


def degrees_in_cell(execution: Mapping[Any, Any]) -> str:
    """Return the degrees that tell executions of a (tensor, pipeline) cell apart: "DP 16", "DP 64 × CP 2 · EP 8"."""
    cell = {name: execution[name] for name in ("tensor_par", "pipeline_par")}
    return execution_name(execution).removeprefix(f"{execution_name(cell)} × ")


def blocks_of(scenario: Scenario) -> int:
    """Return the number of blocks of a model, also of one without Calculon's six numbers."""
    model = scenario.model
    return model.num_blocks if model.block is not None else dimensions(model).num_blocks


def network_name(system: System, tier: int) -> str:
    """Returns what a network tier is called: "NVLink, 8 GPUs, 450 GB/s"."""
    return f"{network_names(system)[tier]}, {_network_words(system, tier)}"


def networks_of(system: System, tiers: Sequence[int]) -> str:
    """Returns what several network tiers are called: "NVLink", "NVLink and InfiniBand"."""
    *first, last = (network_names(system)[tier] for tier in tiers)
    return f"{', '.join(first)} and {last}" if first else last


def _network_words(system: System, tier: int) -> str:
    network = system.network_at(tier)
    return f"{network.size:,} GPUs, {plain(network.bandwidth_gb_per_s)} GB/s"


def describe_offload(execution: Mapping[Any, Any]) -> str:
    """Returns what lives in host memory: "weights, optimizer" or "nothing"."""
    return ", ".join(word for name, word in OFFLOADS.items() if bool(execution[name])) or "nothing"


def count_microbatches(execution: Mapping[Any, Any]) -> int:
    """Returns the number of microbatches that a replica works through in a step."""
    local = int(execution["batch_size"]) // int(execution["data_par"])
    return local // int(execution["microbatch_size"])


def choices(execution: Mapping[Any, Any], system: System) -> list[tuple[str, str]]:
    """Return every choice of an execution except its degrees, as short key and value pairs.

    system: to name its networks by: "NVLink, 8 GPUs, 450 GB/s".
    """
    extended = not _has_neutral_extensions(execution)
    users: dict[int, list[str]] = {}
    for key, degree, net in _NETWORKS:
        if int(execution[degree]) > 1 and not extended:
            users.setdefault(int(execution[net]), []).append(key)
    facts = [(f"{' · '.join(keys)} network", network_name(system, tier)) for tier, keys in sorted(users.items())]
    if applies("pipeline_interleaving", execution):
        facts.append(("interleaving", str(int(execution["pipeline_interleaving"]))))
    facts += [
        (
            "microbatches",
            f"{count_microbatches(execution):,} × {counted(int(execution['microbatch_size']), 'sequence')}",
        ),
        ("recompute", recomputed(execution)),
    ]
    # Stages of ZeRO say what sharding is about.
    left_out = {"optimizer_sharding"} if extended else {column.name for column in EXTENSIONS}
    for column in in_order(ALL_FIELDS):
        if column.of_scenario or column.name in _APART | left_out or not applies(column, execution):
            continue
        value = _field_value(execution, column.name)
        # The load of experts is an assumption behind every figure with expert ranks, so that it is stated as it is.
        assumed = column.name == "expert_imbalance" and int(execution.get("expert_par", 1)) > 1
        if assumed or value != _USUAL.get(column.name, column.default):
            facts.append((name_of_choice(column), _WORDS.get(column.name, {}).get(value) or _in_words(column, value)))
    return [*facts, ("offload", describe_offload(execution))]


def name_of_choice(column: Column) -> str:
    """Returns what a field is called among the choices of an execution, where there is little room."""
    capitals = column.short[:2].isupper()
    return _CALLED.get(column.name, column.short if capitals else in_sentence(column.label))


def _in_words(column: Column, value: Any) -> str:
    unit = " %" if column.label.endswith("[%]") else ""
    return f"{int(value):,}{unit}" if column.dtype == "int64" else choice_label(column, value)


def recomputed(execution: Mapping[Any, Any], *, brief: bool = False) -> str:
    """Returns the recomputation of the backward pass: "full", "none", or "selective (attention)" with its operations.

    brief: for columns of tables; without the operations for the usual attention core, else in a word.
    """
    word = _choice_word(execution, "activation_recompute")
    if blocks := _field_value(execution, "recompute_blocks"):
        return f"{word} ({int(blocks):,} per chunk)"
    if execution["activation_recompute"] != "attn_only":
        return word
    kind = _field_value(execution, "selective_recompute")
    if brief and kind == NEUTRAL_EXTENSIONS["selective_recompute"]:
        return word
    told = choice_label("selective_recompute", kind)
    return f"{word} ({_BRIEFLY.get(kind, told) if brief else told})"


def _has_neutral_extensions(execution: Mapping[Any, Any]) -> bool:
    """Return True if an execution has no extensions: every one has its neutral value."""
    return all(execution.get(name, value) == value for name, value in NEUTRAL_EXTENSIONS.items())


def differences(
    first: Mapping[Any, Any], second: Mapping[Any, Any], system: System | None = None
) -> list[tuple[str, str, str]]:
    """Returns the fields in which two executions differ: (label, value of the first, value of the second).

    Fields without effect in both are left out. system: names the networks, as for `field_in_words`.
    """
    return [
        (column.label, field_in_words(first, column.name, system), field_in_words(second, column.name, system))
        for column in ALL_FIELDS
        if _field_value(first, column.name) != _field_value(second, column.name)
        and _decided_value(first, column.name) != _decided_value(second, column.name)
    ]


def field_in_words(execution: Mapping[Any, Any], name: str, system: System | None = None) -> str:
    """Returns the value of a field in words: a dash where it makes no difference.

    system: to name networks by; without one they are numbers, which is enough to count what differs.
    """
    value = _decided_value(execution, name)
    if value is None:
        return ABSENT
    if system is not None and by_name(name).of_network:
        return choice_label(name, int(value), network_names(system))
    return format_value(name, value)


def _decided_value(execution: Mapping[Any, Any], name: str) -> Any:
    """Returns a field of an execution; None where it makes no difference."""
    return _field_value(execution, name) if applies(name, execution) else None


def _field_value(execution: Mapping[Any, Any], name: str) -> Any:
    """Returns a field of an execution; the neutral value if its cost model does not have the field."""
    return execution.get(name, NEUTRAL_EXTENSIONS.get(name))


def _choice_word(execution: Mapping[Any, Any], name: str) -> str:
    return choice_label(by_name(name), execution[name])
