"""Figures that follow from the throughput of an execution by one factor of its scenario.

They are no results of an execution's own: model, system and number of processors make the factor, which
`engine.economics.derived` computes.
"""

from __future__ import annotations

from typing import Final, Literal

from engine.columns.statistics import read_statistics

__all__ = ["DERIVED_ROWS", "MFU_OF", "TFLOPS_OF", "rates_beside"]

DERIVED_ROWS: Final = read_statistics("engine.columns", "derived.csv")

MFU_OF: Final = {"causal": "mfu_causal", "full": "mfu"}
"""Convention of attention -> name of the utilisation that counts so."""
TFLOPS_OF: Final = {"causal": "tflops_per_gpu_causal", "full": "tflops_per_gpu"}
"""Convention of attention -> name of the model FLOP/s per GPU that count so."""


def rates_beside(convention: Literal["full", "causal"]) -> tuple[str, ...]:
    """Return the names of the rates and costs shown next to a throughput in every table.

    Args:
        convention: how FLOP count attention, see `models.token_flops`.
    """
    return "tokens_per_gpu", TFLOPS_OF[convention], MFU_OF[convention], "usd", "energy"
