"""Figures that follow from a stored statistic by one factor: tokens per second, utilisation, training time, cost.

Each is declared with its formula, so that no page shows a number without its definition; the formulas themselves are in
`engine.economics`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

import numpy as np
import pandas as pd

from dashboard.words.numbers import ABSENT, Quantity, quantity
from engine import Scenario, economics
from engine.columns import HEADLINE, MFU_OF, SHARES, TFLOPS_OF, Column, by_name, defined_of
from engine.cost_models.registry import cost_model_of
from engine.economics import BLOCK_FORMULA, CAUSAL_TERM, CONVENTIONS, MFU_FORMULA, PUBLISHED_FORMULA, TokenFlops
from engine.exploration.unstored_statistics import is_stored
from models.token_flops import Convention

__all__ = [
    "MFU_FORMULA",
    "Metric",
    "common_metrics",
    "days_for",
    "derived_quantity",
    "flops_formula",
    "flops_told",
    "metrics",
    "mfu_formula",
    "mfu_label",
    "quick_metrics",
    "token_flops",
    "told",
    "unstored_metrics",
    "utilisation",
]

SHORT: Final = {
    "sample_rate": "Throughput",
    **{name: by_name(name).short for name in MFU_OF.values()},
    "total_time": "Step time",
    "proc_mem_tier1_cap_req": "HBM",
    "comm_exposed_share": "Exposed comm.",
}


@dataclass(frozen=True, slots=True)
class Metric:
    """Something that executions can be ranked by."""

    key: str
    """Name in a link."""
    column: Column
    """Column of the figure: label, unit, and the better direction."""
    statistic: str
    """Statistic that it is computed from."""
    factor: float = 1.0
    """Value = factor · statistic."""
    formula: str = ""
    inverse: bool = False
    """True if value = factor ÷ statistic instead; the better direction is then reversed."""

    @property
    def of_fastest(self) -> bool:
        """True if a cell shows the figure of its fastest execution: for shares of the step, since an execution that is
        slow for other reasons has the least of them, and for figures without a better direction."""
        return self.column in SHARES or by_name(self.statistic).better is None

    @property
    def ranked_by(self) -> str:
        """Statistic whose best execution represents a cell."""
        return "sample_rate" if self.of_fastest else self.statistic

    def of(self, statistic: float) -> float:
        """Returns the value that follows from a statistic."""
        if self.inverse:
            return self.factor / statistic if statistic else float("inf")
        return self.factor * statistic

    def of_column(self, statistics: pd.Series[float]) -> pd.Series[float]:
        """Returns the values that follow from statistics."""
        return self.factor / statistics if self.inverse else self.factor * statistics

    @property
    def short(self) -> str:
        """Name for a button."""
        return SHORT.get(self.key, self.column.label)


def metrics(scenario: Scenario) -> dict[str, Metric]:
    """Returns everything that executions of a scenario can be ranked by, in the order of choosers."""
    derived = [
        Metric(name, one.column, "sample_rate", one.factor, one.formula, one.inverse)
        for name, one in economics.derived_of(scenario).items()
    ]
    found = [
        Metric("sample_rate", by_name("sample_rate"), "sample_rate", 1.0, "batch ÷ step time"),
        *derived,
        *(Metric(column.name, column, column.name) for column in (*SHARES, *HEADLINE) if column.name != "sample_rate"),
    ]
    return {metric.key: metric for metric in order_metrics(found, scenario)}


def told(scenario: Scenario, name: str, sample_rate: float, times: float = 1.0) -> str:
    """Returns a figure that follows from a throughput [samples/s], with its unit; a dash where the system has no price
    or power.

    times: how often it counts, such as the cost of 1 T tokens for another number of them.
    """
    return str(derived_quantity(scenario, name, sample_rate, times))


def derived_quantity(scenario: Scenario, name: str, sample_rate: float, times: float = 1.0) -> Quantity:
    """Returns a figure that follows from a throughput [samples/s] as number and unit; a dash where the system has no
    price or power. times: multiplies it, such as for a number of tokens."""
    known = economics.derived_of(scenario).get(name)
    if known is None:
        return Quantity(ABSENT)
    return quantity(known.column, times * float(known.of(np.array(sample_rate))))


def unstored_metrics(scenario: Scenario) -> dict[str, Metric]:
    """Returns the results that are not stored for every execution: they can be had once they are evaluated for all."""
    return dict(_unstored_of(scenario.cost_model))


@cache
def _unstored_of(cost_model: str) -> dict[str, Metric]:
    """Every page asks for them at every run."""
    return {
        column.name: Metric(column.name, replace(column, better=column.better or "lower"), column.name)
        for column in defined_of(cost_model)
        if not is_stored(column.name)
    }


def quick_metrics(scenario: Scenario) -> tuple[str, ...]:
    """Return the names of the metrics that are offered first; of utilisation, the one in the scenario's convention."""
    return "sample_rate", MFU_OF[scenario.flop_convention], "total_time", "proc_mem_tier1_cap_req"


def order_metrics(found: Iterable[Metric], scenario: Scenario) -> list[Metric]:
    """Returns the metrics offered first, then the others."""
    quick = quick_metrics(scenario)
    return sorted(found, key=lambda metric: quick.index(metric.key) if metric.key in quick else len(quick))


def common_metrics(scenarios: Iterable[Scenario]) -> dict[str, Metric]:
    """Returns what executions of all scenarios can be ranked by, as metrics of the first: a price may be missing in
    one."""
    first, *others = (metrics(scenario) for scenario in scenarios)
    return {key: metric for key, metric in first.items() if all(key in other for other in others)}


def token_flops(scenario: Scenario) -> TokenFlops:
    """Returns matrix arithmetic of one token [FLOP], of what the scenario's cost model times."""
    return economics.flops_of(scenario)


def flops_formula(scenario: Scenario) -> str:
    """Returns formula of the model FLOP of one sample, for people, with the scenario's convention of attention."""
    formula = BLOCK_FORMULA if _by_blocks(scenario) else PUBLISHED_FORMULA
    if scenario.flop_convention == "causal":
        return f"{formula}, where {CAUSAL_TERM}"
    return f"{formula}, {CONVENTIONS['full']}"


def _by_blocks(scenario: Scenario) -> bool:
    return cost_model_of(scenario).flop_recipe == "block" and scenario.model.block is not None


def mfu_label(scenario: Scenario) -> str:
    """Return the label of a tile of utilisation, which names the convention: "MFU, causal"."""
    return by_name(MFU_OF[scenario.flop_convention]).short


def mfu_formula(scenario: Scenario) -> str:
    """Return the formula of utilisation with the scenario's convention, and where to change the convention."""
    return f"{MFU_FORMULA}; {CONVENTIONS[scenario.flop_convention]}. Cost model, above, has the switch."


def flops_told(scenario: Scenario, sample_rate: float) -> str:
    """Return the model FLOP/s per GPU of a throughput [samples/s], with its unit, in the scenario's convention."""
    return told(scenario, TFLOPS_OF[scenario.flop_convention], sample_rate)


def utilisation(
    scenario: Scenario, sample_rate: float, training: bool = True, convention: Convention | None = None
) -> float:
    """Returns model FLOP utilisation, a share of 1, of a throughput [samples/s]; in the scenario's convention by
    default."""
    peak = scenario.system.peak_tflops(scenario.datatype) * 1e12
    work = token_flops(scenario).model(convention or scenario.flop_convention, training)
    return economics.utilisation(work, sample_rate * scenario.model.tokens_per_sample, float(scenario.num_procs), peak)


def days_for(scenario: Scenario, sample_rate: float, tokens: float = 1e12) -> float:
    """Return the time for a number of tokens at a throughput [samples/s] [s]."""
    return economics.seconds_for_tokens(tokens, sample_rate * scenario.model.tokens_per_sample)
