"""Figures that follow from the throughput of an execution by one factor of its scenario.

They are no results of an execution's own: model, system and number of processors make the factor, which
`engine.economics.derived` computes.
"""

from __future__ import annotations

from typing import Final

from engine.columns.statistics import read_statistics

__all__ = ["BESIDE_RATE", "DERIVED_ROWS"]

DERIVED_ROWS: Final = read_statistics("engine.columns", "derived.csv")

BESIDE_RATE: Final = ("tokens_per_gpu", "tflops_per_gpu", "mfu", "usd", "energy")
"""Names of the rates and costs shown next to a throughput in every table."""
