"""Figures that follow from stored results of an execution and from its scenario.

They are no results of an execution's own. Rates and costs are the throughput times a factor that
`engine.economics.derived` computes; the fit compares required memory with the capacity (`engine.recommendation.fits`).
"""

from __future__ import annotations

from typing import Final, Literal, get_args

from engine.columns.statistics import read_statistics

__all__ = ["DERIVED_ROWS", "FITS", "MFU_OF", "TFLOPS_OF", "Fit", "rates_beside"]

Fit = Literal["fits", "may not fit", "may fit", "does not fit"]
"""Predicted memory below the capacity by more than its error, by less; above it by less, by more."""
FITS: Final[tuple[Fit, ...]] = get_args(Fit)

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
