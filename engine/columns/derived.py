"""Figures that follow from the throughput of an execution by one factor of its scenario.

They are no results of an execution's own: model, system and number of processors make the factor, which
`engine.economics.derived` computes.
"""

from __future__ import annotations

from typing import Final, Literal

__all__ = ["BESIDE_RATE", "DERIVED_ROWS"]

DERIVED_ROWS: Final[tuple[tuple[str, str, str, str, Literal["higher", "lower"], str], ...]] = (
    (
        "tokens",
        "Tokens per second",
        "tokens",
        "tokens/s",
        "higher",
        "Tokens that the whole system trains on per second.",
    ),
    (
        "tokens_per_gpu",
        "Tokens per second per GPU",
        "per GPU",
        "tokens/s",
        "higher",
        "Tokens per second divided by the number of GPUs.",
    ),
    (
        "tflops_per_gpu",
        "Model FLOP/s per GPU",
        "per GPU",
        "FLOP/s",
        "higher",
        "Arithmetic that the model needs, attention counted in full, per second and GPU. Recomputed arithmetic "
        "does not "
        "count.",
    ),
    (
        "mfu",
        "Model FLOP utilisation",
        "MFU",
        "fraction",
        "higher",
        "Share of the peak matrix rate that goes into the arithmetic the model needs, attention counted in full. "
        "Recomputed arithmetic does not count.",
    ),
    (
        "mfu_causal",
        "MFU, causal attention",
        "MFU causal",
        "fraction",
        "higher",
        "Model FLOP utilisation without the arithmetic that the causal mask discards, as some frameworks print it.",
    ),
    (
        "usd",
        "Cost of 1 T tokens",
        "1 T tokens",
        "USD",
        "lower",
        "Price of training 1e12 tokens without failures, at the middle of the prices recorded for the system.",
    ),
    (
        "energy",
        "Energy of 1 T tokens",
        "1 T tokens",
        "kWh",
        "lower",
        "Energy of training 1e12 tokens without failures, at the design power of the system.",
    ),
    (
        "tokens_per_usd",
        "Tokens per USD",
        "per USD",
        "tokens/USD",
        "higher",
        "Tokens that a dollar pays for without failures, at the middle of the prices recorded for the system.",
    ),
)
"""Rows (name, label, short, unit, better, description)."""

BESIDE_RATE: Final = ("tokens_per_gpu", "tflops_per_gpu", "mfu", "usd", "energy")
"""Names of the rates and costs shown next to a throughput in every table."""
