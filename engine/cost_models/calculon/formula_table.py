"""Formulas of the figures of an execution, as expressions over other figures.

Names come from the register or from `engine.cost_models.calculon.formulas.formula_symbols`. Two dozen figures are sums
over the layers of a block, and their entries say so. An expression that depends on the execution is a function of it.
Source of all: Calculon 0.1.0 (commit caa4b11), `llm.py`, in the function named.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

__all__ = ["EXPRESSIONS", "LAYER_SUMS", "expression"]

_BATCH: Final = "_compute_batch_stats"
_GETTERS: Final = "get_stats_values"


def _exposed_time(stage: str) -> str:
    return f"(base_blocks * baseblock_{stage}_time_exposed + edgeblock_{stage}_time_exposed)"


def _link_time(stage: str) -> str:
    return f"(base_blocks * baseblock_{stage}_time + edgeblock_{stage}_time)"


def _activations_space(row: Mapping[Any, Any]) -> str:
    if not row["training"]:
        return "block_act_working_space"
    if row["activation_recompute"] == "full":
        return "block_act_working_space"
    return "block_act_working_space + block_act_storage_space * (blocks * held - 1)"


def _first_tier(row: Mapping[Any, Any]) -> str:
    full = row["activation_recompute"] == "full"
    parts = ["weight_space_with_offload" if row["weight_offload"] else "weight_space"]
    parts.append("act_space_with_offload" if row["activations_offload"] else "act_space")
    if row["training"]:
        if full:
            parts.append("act_checkpoint_size_with_offload" if row["activations_offload"] else "act_checkpoint_size")
        state = ("weight_grad_space", "optimizer_space")
        parts += [f"{name}_with_offload" for name in state] if row["optimizer_offload"] else list(state)
        parts.append("act_grad_space")
    return " + ".join(parts)


def _second_tier(row: Mapping[Any, Any]) -> str:
    parts = ["weight_space"] if row["weight_offload"] else []
    if row["activations_offload"]:
        parts.append("act_checkpoint_size" if row["activation_recompute"] == "full" else "act_space")
    if row["optimizer_offload"]:
        parts += ["block_weight_grad_space * blocks", "optimizer_space"]
    return " + ".join(parts) or "0"


def _exposed_exchange(row: Mapping[Any, Any]) -> str:
    if int(row["data_par"]) == 1 or not row["training"]:
        return "0"
    return "block_exchange + chunks_not_hidden + tail_not_hidden" if row["data_par_overlap"] else "dp_comm_link_time"


def _if_training(text: str) -> Callable[[Mapping[Any, Any]], str]:
    """Return an expression that is 0 in inference."""
    return lambda row: text if row["training"] else "0"


Expression = str | Callable[[Mapping[Any, Any]], str]

EXPRESSIONS: Final[dict[str, tuple[Expression, str]]] = {
    "fw_time": ("blocks * microbatches * block_fw_time", _BATCH),
    "bw_time": ("blocks * microbatches * block_agrad_time + blocks * microbatches * block_wgrad_time", _BATCH),
    "optim_step_time": ("blocks * block_optim_time", _BATCH),
    "recompute_time": ("blocks * microbatches * block_re_time", _BATCH),
    "recomm_link_time": (f"edges * {_link_time('recomm')}", _BATCH),
    "recomm_exposed_time": (f"edges * {_exposed_time('recomm')}", _BATCH),
    "tp_comm_link_time": (f"edges * {_link_time('fw_tp')} + edges * {_link_time('agrad_tp')}", _BATCH),
    "tp_comm_exposed_time": (f"edges * {_exposed_time('fw_tp')} + edges * {_exposed_time('agrad_tp')}", _BATCH),
    "pp_comm_link_time": ("transfers * (forward_transfer + backward_transfer)", _BATCH),
    "pp_comm_exposed_time": ("transfers * (forward_transfer + backward_transfer)", _BATCH),
    "bubble_time": ("(pipeline_par - 1) * chunk_time + extra_chunks * chunk_time - missing_time", _BATCH),
    "dp_comm_link_time": ("blocks * block_exchange", _BATCH),
    "dp_comm_exposed_time": (_exposed_exchange, _BATCH),
    "fw_offload_exposed_time": ("edges * (base_blocks * forward_wait_base + forward_wait_edge)", _BATCH),
    "bw_offload_exposed_time": ("edges * (base_blocks * backward_wait_base + backward_wait_edge)", _BATCH),
    "total_time": (
        "fw_time + bw_time + optim_step_time + fw_offload_exposed_time + bw_offload_exposed_time + recompute_time + "
        "recomm_exposed_time + bubble_time + tp_comm_exposed_time + pp_comm_exposed_time + dp_comm_exposed_time",
        "get_total_time",
    ),
    "sample_rate": ("batch_size / total_time", "get_sample_rate"),
    "useful_flops": (
        lambda row: (
            "block_fw_flops + block_agrad_flops + block_wgrad_flops + block_optim_flops"
            if row["training"]
            else "block_fw_flops"
        ),
        "get_useful_flops",
    ),
    "compute_efficiency": (
        "(blocks * microbatches * useful_flops / matrix_peak) / (fw_time + bw_time + optim_step_time)",
        "get_compute_efficiency",
    ),
    "system_efficiency": ("(fw_time + bw_time + optim_step_time) / total_time", "get_system_efficiency"),
    "total_efficiency": ("(blocks * microbatches * useful_flops / matrix_peak) / total_time", "get_total_efficiency"),
    "act_offload_bw_req": ("kept_activations / forward_window", _GETTERS),
    "weight_offload_bw_req": ("block_weight_space / forward_window", _GETTERS),
    "optim_offload_bw_req": (
        _if_training("(block_weight_grad_space + block_optimizer_space) / backward_window"),
        _GETTERS,
    ),
    "offload_mem_bw_req": (
        lambda row: (
            "max(forward_moved / forward_window, backward_moved / backward_window)"
            if row["training"]
            else "forward_moved / forward_window"
        ),
        "get_offload_mem_bw_req",
    ),
    "weight_space": ("block_weight_space * blocks", _BATCH),
    "act_space": (_activations_space, _BATCH),
    "act_checkpoint_size": (
        lambda row: (
            "blocks * block_act_checkpoint_size * held"
            if row["training"] and row["activation_recompute"] == "full"
            else "0"
        ),
        _BATCH,
    ),
    "act_grad_space": (_if_training("block_act_grad_space"), _BATCH),
    "weight_grad_space": (
        _if_training("block_weight_grad_space_no_sharding + block_weight_grad_space * (blocks - 1)"),
        _BATCH,
    ),
    "optimizer_space": (_if_training("block_optimizer_space * blocks"), _BATCH),
    "weight_space_with_offload": ("2 * block_weight_space", _GETTERS),
    "act_space_with_offload": (
        lambda row: (
            "block_act_working_space"
            if row["activation_recompute"] == "full"
            else "block_act_working_space + block_act_storage_space"
        ),
        _GETTERS,
    ),
    "act_checkpoint_size_with_offload": ("2 * block_act_checkpoint_size", _GETTERS),
    "act_grad_space_with_offload": (_if_training("block_act_grad_space"), _GETTERS),
    "weight_grad_space_with_offload": (
        _if_training("block_weight_grad_space_no_sharding + block_weight_grad_space"),
        _GETTERS,
    ),
    "optimizer_space_with_offload": (_if_training("2 * block_optimizer_space"), _GETTERS),
    "proc_mem_tier1_cap_req": (_first_tier, "get_mem_tier1_cap_req"),
    "proc_mem_tier2_cap_req": (_second_tier, "get_mem_tier2_cap_req"),
}
"""Figure -> (expression or function of an execution, function of Calculon's `llm.py`)."""

LAYER_SUMS: Final[dict[str, str]] = {
    "block_fw_flops": "fw_flops",
    "block_fw_mem_accessed": "fw_mem_accessed",
    "block_agrad_flops": "agrad_flops",
    "block_agrad_mem_accessed": "agrad_mem_accessed",
    "block_agrad_time": "agrad_processing_time",
    "block_wgrad_flops": "wgrad_flops",
    "block_wgrad_mem_accessed": "wgrad_mem_accessed",
    "block_optim_flops": "optim_flops",
    "block_optim_mem_accessed": "optim_mem_accessed",
    "block_weight_space": "weight",
    "block_weight_grad_space": "weight_grad",
    "block_act_grad_space": "activation_grad",
    "block_optimizer_space": "optimizer",
}
"""Figure of a block -> column of the layer table that it is the sum of."""


def expression(name: str, row: Mapping[Any, Any]) -> tuple[str, str] | None:
    """Returns the expression of a figure for an execution and its source; None for a figure of the block itself.

    Args:
        name: the figure, a statistic of the register.
        row: the execution's fields and statistics by name.
    """
    found = EXPRESSIONS.get(name)
    if found is None:
        return None
    text, where = found
    return (text if isinstance(text, str) else text(row)), f"Calculon 0.1.0, llm.py, {where}"
