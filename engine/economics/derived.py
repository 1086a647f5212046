"""Figures that follow from a throughput by one factor: tokens, utilisation, money and energy, each with its formula."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd

from engine.columns import MFU_OF, TFLOPS_OF, Column, by_name
from engine.cost_models.registry import cost_model_of
from engine.economics.inputs import RunInputs
from engine.economics.quantities import MFU_FORMULA, energy_kwh, processor_hours, utilisation
from engine.executions.arrays import Floats
from engine.scenarios.scenario import Scenario
from models.token_flops import CONVENTIONS, Convention, TokenFlops, token_flops

__all__ = ["TRILLION", "Derived", "cost_of_difference", "derived_columns", "derived_of", "flops_of"]

TRILLION: Final = 1e12
"""Tokens that cost and energy refer to."""


@dataclass(frozen=True, slots=True)
class Derived:
    """Figure that is `factor` times the throughput [samples/s], or divided by it if `inverse`; `formula` describes the
    factor."""

    column: Column
    factor: float
    formula: str
    inverse: bool = False

    def of(self, rate: Floats) -> Floats:
        """Returns the figures of throughputs.

        Args:
            rate: throughputs [samples/s] [rows].
        """
        with np.errstate(divide="ignore"):
            return np.asarray(self.factor / rate if self.inverse else self.factor * rate, np.float64)


def flops_of(scenario: Scenario) -> TokenFlops:
    """Returns matrix arithmetic of one token [FLOP], of what the scenario's cost model times.

    Where six block numbers cannot stand for the model, its published architecture counts whole.

    Args:
        scenario: whose model is meant.
    """
    by_blocks = cost_model_of(scenario).flop_recipe == "block" and scenario.model.block is not None
    return token_flops(scenario.model, "block" if by_blocks else "published")


def derived_of(scenario: Scenario) -> dict[str, Derived]:
    """Returns every figure of a scenario's executions that follows from their throughput, by name of column; money and
    energy where the system has a price and a power.

    Args:
        scenario: whose model, system and number of processors make the factors.
    """
    tokens, procs = float(scenario.model.tokens_per_sample), float(scenario.num_procs)
    peak = scenario.system.peak_tflops(scenario.datatype) * 1e12
    work, training = flops_of(scenario), scenario.trains

    def flop_figures(convention: Convention) -> tuple[Derived, Derived]:
        counted = CONVENTIONS[convention]
        return (
            Derived(
                by_name(TFLOPS_OF[convention]),
                work.model(convention, training) * tokens / procs,
                f"throughput · model FLOP per sample ÷ GPUs; {counted}",
            ),
            Derived(
                by_name(MFU_OF[convention]),
                utilisation(work.model(convention, training), tokens, procs, peak),
                f"{MFU_FORMULA}; {counted}",
            ),
        )

    found = [
        Derived(by_name("tokens"), tokens, "throughput · sequence length"),
        Derived(by_name("tokens_per_gpu"), tokens / procs, "throughput · sequence length ÷ GPUs"),
        *(each for convention in _in_order(scenario) for each in flop_figures(convention)),
        *_of_tokens(scenario),
    ]
    return {one.column.name: one for one in found}


def cost_of_difference(scenario: Scenario, slower: float, faster: float, tokens: float = TRILLION) -> float | None:
    """Return how much more training costs at the slower of two throughputs [USD]; None without a price.

    Args:
        scenario: whose system has the price.
        slower, faster: throughputs [samples/s].
        tokens: to train.
    """
    cost = derived_of(scenario).get("usd")
    if cost is None:
        return None
    dear, cheap = cost.of(np.array([slower, faster]))
    return float(dear - cheap) * tokens / TRILLION


def _in_order(scenario: Scenario) -> list[Convention]:
    """Return both conventions, the one that the scenario's figures use first."""
    return sorted(CONVENTIONS, key=lambda each: each != scenario.flop_convention)


def _of_tokens(scenario: Scenario) -> list[Derived]:
    """Cost and energy of 1e12 tokens, where the system has a price and a power."""
    inputs, procs = RunInputs.of(scenario.system), float(scenario.num_procs)
    seconds = TRILLION / scenario.model.tokens_per_sample  # at one sample per second
    hours = processor_hours(procs, seconds)
    found, held = [], "GPUs · 10¹² ÷ (throughput · sequence length)"
    price = inputs.usd_middle
    if price is not None:
        facts = scenario.system.accelerator
        seen = f"{inputs.usd_low:g} to {inputs.usd_high:g} USD ({facts.usd_source if facts else ''})"
        told = f"{price:g} USD per GPU-hour, the middle of {seen}"
        found.append(Derived(by_name("usd"), hours * price, f"{held} · {told}", inverse=True))
        if price > 0:
            found.append(
                Derived(
                    by_name("tokens_per_usd"),
                    TRILLION / (hours * price),
                    f"throughput · sequence length ÷ (GPUs · {told})",
                )
            )
    if inputs.power_w is not None:
        energy = energy_kwh(procs, seconds, inputs.power_w, inputs.power_share, inputs.pue)
        found.append(
            Derived(
                by_name("energy"),
                energy,
                f"{held} · {inputs.power_w:g} W · {inputs.power_share:g} (draw with server over design power) · "
                f"{inputs.pue:g} (PUE)",
                inverse=True,
            )
        )
    return found


def derived_columns(scenario: Scenario, executions: pd.DataFrame) -> pd.DataFrame:
    """Returns the derived figures of executions, one column each [rows].

    Args:
        scenario: that the executions are of.
        executions: a table with the column `sample_rate`.
    """
    rate: Any = executions["sample_rate"].to_numpy(np.float64)
    return pd.DataFrame({name: one.of(rate) for name, one in derived_of(scenario).items()}, index=executions.index)
