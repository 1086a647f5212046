"""Register of the columns of a block's operations: names, and unit, description and scale of each figure.

The command line and the dashboard read names, units and help from here. Units come from the register of results
(`engine.columns`), and two belong to operations only.
"""

from __future__ import annotations

from typing import Final, Literal

from engine.columns import Column
from engine.cost_models.account import Shown

__all__ = ["LABELS", "OPERATION_COLUMNS"]

LABELS: Final = {
    "norms": "Norms, residuals",
    "casts": "Casts",
    "query_key_value": "QKV",
    "query_down": "Query, down",
    "query_up": "Query, up",
    "key_value_down": "Key and value, down",
    "key_value_up": "Key and value, up",
    "attention_core": "Attention core",
    "attention_output": "Projection",
    "context_ring": "CP ring",
    "feedforward_up": "MLP, linear 1",
    "feedforward_down": "MLP, linear 2",
    "activation": "Activation",
    "adapters": "Adapters",
    "experts_up": "Experts, linear 1",
    "experts_down": "Experts, linear 2",
    "shared_up": "Shared, linear 1",
    "shared_down": "Shared, linear 2",
    "permutation": "Permutation",
    "expert_exchange": "EP exchange",
    "size_wait": "Launches after routing",
    "tensor_exchange": "TP exchange",
    "inner_sum": "TP sum inside the layer",
}
"""Operation -> what people call it."""


def _operation_column(
    name: str,
    label: str,
    short: str,
    unit: str,
    shown_as: str,
    size: float,
    description: str,
    dtype: Literal["float64", "str"] = "float64",
) -> Shown:
    column = Column(name, label, short, unit, "statistic", dtype, "Operation", None, description)
    return Shown(column, shown_as, size, 1 if unit == "s" else 0)


OPERATION_COLUMNS: Final[tuple[Shown, ...]] = (
    _operation_column("label", "Operation", "operation", "", "", 1.0, "Kind of operation.", "str"),
    _operation_column("fw_time", "Forward time", "fw", "s", "µs", 1e-6, "Forward time, one microbatch."),
    _operation_column(
        "bw_time", "Backward time", "bw", "s", "µs", 1e-6, "Backward time: gradients of inputs and of weights."
    ),
    _operation_column(
        "share",
        "Share of the block",
        "share of block",
        "fraction",
        "%",
        0.01,
        "Share of the forward and backward time of the block.",
    ),
    _operation_column("flops", "Work", "work", "FLOP", "GFLOP", 1e9, "Arithmetic operations, forward and backward."),
    _operation_column(
        "mem_accessed", "Memory traffic", "traffic", "bytes", "MiB", 2.0**20, "Memory traffic, forward and backward."
    ),
    _operation_column(
        "arithmetic_intensity",
        "Arithmetic intensity",
        "intensity",
        "FLOP/byte",
        "FLOP/B",
        1.0,
        "Operations per byte of memory traffic, forward.",
    ),
    _operation_column("rate", "Rate reached", "rate", "FLOP/s", "TFLOP/s", 1e12, "Rate reached, forward and backward."),
    _operation_column(
        "bound", "Bound by", "bound by", "", "", 1.0, "The sustained roof that the forward pass meets first.", "str"
    ),
)
"""Columns that `engine.cost_models.calibrated.physics.layers.operations.summarised` adds to every operation, in the
order of a table."""
