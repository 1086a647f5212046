"""Executions and networks in words."""

from collections.abc import Mapping
from typing import Any, Final

from dashboard.charts.template import degrees
from dashboard.format import ABSENT, counted, format_value, plain
from engine import Scenario
from engine.calibrated import model_shapes
from engine.columns import ALL_FIELDS, NEUTRAL_EXTENSIONS, by_name, choice_label
from hardware import System

_OFFLOADS: Final = {"weight_offload": "weights", "activations_offload": "activations", "optimizer_offload": "optimizer"}
_NETWORKS: Final = (("TP", "tensor_par", "tensor_par_net"), ("PP", "pipeline_par", "pipeline_par_net"),
                    ("DP", "data_par", "data_par_net"))  # fmt: skip
_DEGREES: Final = (("CP", "context_par"), ("EP", "expert_par"), ("expert TP", "expert_tensor_par"))
_ZERO: Final = ("0, nothing shared", "1, optimizer state", "2, gradients too", "3, weights too (FSDP)")
_BRIEFLY: Final = {"modules": "norms", "half": "half"}
"""What is recomputed selectively without a limit that asks for more, in tables that have no room for it all."""
_SOFTWARE: Final = (
    ("attention kernel", "attention_kernel", "native"), ("launch", "launch", "fused"),
    ("gradients", "gradient_datatype", "float32"), ("EP overlap", "expert_overlap", False),
    ("PP overlap", "pipeline_overlap", False),
)  # fmt: skip
"""What software does, and what is usual and not worth a word."""


def title(execution: Mapping[Any, Any]) -> str:
    """Return the degrees of an execution: "TP 8 × PP 4 × DP 16", and "× CP 2 · EP 8" where there are such."""
    plain = degrees(execution["tensor_par"], execution["pipeline_par"], execution["data_par"])
    context = _degree(execution, "context_par")
    if context > 1:
        plain += f" × CP {context}"
    expert = _degree(execution, "expert_par")
    return f"{plain} · EP {expert}" if expert > 1 else plain


def _degree(execution: Mapping[Any, Any], name: str) -> int:
    """Return a degree that executions of the exact cost model do not have."""
    value = execution.get(name)
    return 1 if value is None else int(value)


def blocks_of(scenario: Scenario) -> int:
    """Return how many blocks a model has, also one that Calculon's six numbers cannot stand for."""
    model = scenario.model
    return model.num_blocks if model.block is not None else int(model_shapes(model).num_blocks)


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
    calibrated = "zero_stage" in execution and not _neutral(execution)
    nets = [(key, str(int(execution[net]))) for key, degree, net in _NETWORKS if int(execution[degree]) > 1]
    facts = []
    if nets and not calibrated:
        keys, tiers = zip(*nets, strict=True)
        facts.append((f"{' · '.join(keys)} on network tier", " · ".join(tiers)))
    if int(execution["pipeline_par"]) > 1:
        facts.append(("interleaving", str(int(execution["pipeline_interleaving"]))))
    facts += [
        ("microbatches", f"{microbatches(execution):,} × {counted(int(execution['microbatch_size']), 'sequence')}"),
        ("recompute", recomputed(execution)),
    ]
    facts += [(key, f"{_degree(execution, name):,}") for key, name in _DEGREES if _degree(execution, name) > 1]
    if int(execution["tensor_par"]) > 1:
        facts.append(("TP comm.", _word(execution, "tensor_par_comm_type")))
        facts.append(("TP overlap", _word(execution, "tensor_par_overlap")))
    if bool(execution["seq_par_ag_redo"]):
        facts.append(("gather again", "on"))
    if int(execution["data_par"]) * _degree(execution, "context_par") > 1:
        facts.append(("DP overlap", _word(execution, "data_par_overlap")))
        facts.append(_sharded(execution) if calibrated else (
            "optimizer", "sharded" if bool(execution["optimizer_sharding"]) else "whole"
        ))  # fmt: skip
    if calibrated:
        facts += [
            (key, _word(execution, name)) for key, name, usual in _SOFTWARE if execution[name] != usual
        ]
    facts.append(("offload", offloaded(execution)))
    if not bool(execution["fused_activation"]):
        facts.append(("activation", "not fused"))
    if execution["attention_type"] != "multihead":
        facts.append(("attention", _word(execution, "attention_type")))
    if not bool(execution["training"]):
        facts.append(("step", "inference"))
    return facts


def recomputed(execution: Mapping[Any, Any], *, brief: bool = False) -> str:
    """Return what the backward pass computes again: "full", "none", or "selective (attention)" with what it is.

    brief: for columns of tables; without what it is where that is the usual, the attention core, else in a word.
    """
    word = _word(execution, "activation_recompute")
    if execution["activation_recompute"] != "attn_only":
        return word
    kind = _given(execution, "selective_recompute")
    if brief and kind == NEUTRAL_EXTENSIONS["selective_recompute"]:
        return word
    told = choice_label("selective_recompute", kind)
    return f"{word} ({_BRIEFLY.get(kind, told) if brief else told})"


def _neutral(execution: Mapping[Any, Any]) -> bool:
    """Return whether the extensions of an execution are those that stand for having none."""
    return all(execution.get(name) == value for name, value in NEUTRAL_EXTENSIONS.items())


def _sharded(execution: Mapping[Any, Any]) -> tuple[str, str]:
    """Return what replicas share among them: ("ZeRO", "1, optimizer")."""
    stage = int(execution["zero_stage"])
    return "ZeRO", _ZERO[stage] if 0 <= stage < len(_ZERO) else str(stage)


def differences(first: Mapping[Any, Any], second: Mapping[Any, Any]) -> list[tuple[str, str, str]]:
    """Return the fields in which two executions differ: (label, value of the first, value of the second)."""
    return [
        (column.label, field_in_words(first, column.name), field_in_words(second, column.name))
        for column in ALL_FIELDS
        if _decided(first, column.name) != _decided(second, column.name)
    ]


def field_in_words(execution: Mapping[Any, Any], name: str) -> str:
    """Return the value of a field in words: a dash where nothing depends on it, as on what is recomputed selectively
    where nothing is."""
    value = _decided(execution, name)
    return ABSENT if value is None else format_value(name, value)


def _decided(execution: Mapping[Any, Any], name: str) -> Any:
    """Return a field of an execution; None where nothing depends on it."""
    idle = name == "selective_recompute" and execution.get("activation_recompute") != "attn_only"
    return None if idle else _given(execution, name)


def _given(execution: Mapping[Any, Any], name: str) -> Any:
    """Return a field of an execution; what its cost model does not have is none of it."""
    return execution.get(name, NEUTRAL_EXTENSIONS.get(name))


def _word(execution: Mapping[Any, Any], name: str) -> str:
    return choice_label(by_name(name), execution[name])
