"""Figures that follow from a stored statistic by one factor: tokens per second, model FLOP utilisation, training time.

Each is declared with its formula, so that no page states a number without saying what it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from engine import Scenario
from engine.columns import HEADLINE, Column, by_name
from models import Model

__all__ = ["QUICK", "Metric", "days_for", "metrics", "model_flops", "utilisation"]

QUICK: Final = ("sample_rate", "mfu", "total_time", "proc_mem_tier1_cap_req")
"""Metrics that are offered first."""

SHORT: Final = {
    "sample_rate": "Throughput",
    "mfu": "MFU",
    "total_time": "Step time",
    "proc_mem_tier1_cap_req": "HBM",
}

FLOPS_FORMULA: Final = (
    "3 · blocks · sequence · (8 · hidden · heads · head size + 4 · hidden · feedforward + "
    "4 · sequence · heads · head size)"
)
"""Matrix arithmetic of one training sample: forward once, backward twice; no recompute, no causal halving, no
vocabulary layer, which Calculon's model does not have. With heads · head size = hidden and feedforward = 4 · hidden
this is 72 · blocks · sequence · hidden² · (1 + sequence / (6 · hidden)).
Source: Narayanan et al. (SC21, arXiv:2104.04473), section 5.1, without its recompute and vocabulary terms."""

MFU_FORMULA: Final = "throughput · model FLOP per sample ÷ (GPUs · peak matrix FLOP/s of one GPU)"
"""Source: Chowdhery et al. (PaLM, arXiv:2204.02311), appendix B."""


@dataclass(frozen=True, slots=True)
class Metric:
    """Something that executions can be ranked by."""

    key: str
    """Name in a link."""
    column: Column
    """How it is called and written, and which direction is better."""
    statistic: str
    """Headline statistic that it is computed from."""
    factor: float = 1.0
    """Value = factor · statistic."""
    formula: str = ""

    @property
    def short(self) -> str:
        """Name for a button."""
        return SHORT.get(self.key, self.column.label)


def metrics(scenario: Scenario) -> dict[str, Metric]:
    """Everything that executions of a scenario can be ranked by, in the order of choosers."""
    rate = by_name("sample_rate")
    tokens = scenario.model.seq_size
    found = [
        Metric("sample_rate", rate, "sample_rate", 1.0, "batch ÷ step time"),
        _of_rate("tokens", "Tokens per second", "tokens/s", "tokens/s", tokens, "throughput · sequence length",
                 "Tokens that the whole system trains on per second."),
        _of_rate("tokens_per_gpu", "Tokens per second per GPU", "tokens/s/GPU", "tokens/s", tokens / scenario.num_procs,
                 "throughput · sequence length ÷ GPUs", "Tokens per second divided by the number of GPUs."),
        _of_rate("mfu", "Model FLOP utilisation", "MFU", "fraction", utilisation(scenario, 1.0), MFU_FORMULA,
                 "Share of the peak matrix rate that goes into the arithmetic the model needs. Recomputed arithmetic "
                 "does not count."),
        *(Metric(column.name, column, column.name) for column in HEADLINE if column.name != "sample_rate"),
    ]  # fmt: skip
    return {metric.key: metric for metric in ordered(found)}


def ordered(found: Iterable[Metric]) -> list[Metric]:
    """The metrics offered first, then the others."""
    return sorted(found, key=lambda metric: QUICK.index(metric.key) if metric.key in QUICK else len(QUICK))


def _of_rate(key: str, label: str, short: str, unit: str, factor: float, formula: str, description: str) -> Metric:
    column = Column(key, label, short, unit, "statistic", "float64", "Result", "higher", description)
    return Metric(key, column, "sample_rate", factor, formula)


def model_flops(model: Model, training: bool = True) -> float:
    """Matrix arithmetic that one sample needs [FLOP]; see `FLOPS_FORMULA`."""
    heads = model.attn_heads * model.attn_size
    per_token = 8 * model.hidden * heads + 4 * model.hidden * model.feedforward + 4 * model.seq_size * heads
    return float((3 if training else 1) * model.num_blocks * model.seq_size * per_token)


def utilisation(scenario: Scenario, sample_rate: float, training: bool = True) -> float:
    """Model FLOP utilisation, a share of 1, of a throughput [samples/s]."""
    peak = scenario.system.matrix[scenario.datatype].tflops * 1e12
    return sample_rate * model_flops(scenario.model, training) / (scenario.num_procs * peak)


def days_for(scenario: Scenario, sample_rate: float, tokens: float = 1e12) -> float:
    """How long so many tokens take at a throughput [samples/s], in seconds."""
    return tokens / (sample_rate * scenario.model.seq_size)
