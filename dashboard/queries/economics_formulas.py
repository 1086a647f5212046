"""Formulas, with their numbers, of derived figures: shares of the step, utilisation, cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dashboard.queries.economics import Metric, metrics, token_flops
from dashboard.words.formulas import Formula, formula
from engine import Scenario
from engine.columns import SHARES, parts_of
from engine.cost_models.formulas import Expression, Symbol, symbol_of_column, symbols_in
from engine.economics import TRILLION, RunInputs
from engine.economics.quantities import HOUR, JOULES_PER_KWH

__all__ = ["derived_formula", "derived_metrics"]

_TOKENS: Final = "sample_rate * sequence"
_USED: Final = "num_procs / sample_rate / sequence * tokens"
"""GPU-seconds for a number of tokens."""
_EXPRESSIONS: Final[Mapping[str, tuple[str, str]]] = {
    "tokens": (_TOKENS, "run"),
    "tokens_per_gpu": (f"{_TOKENS} / num_procs", "run"),
    "tflops_per_gpu": (f"{_TOKENS} * token_flops / num_procs", "derived"),
    "tflops_per_gpu_causal": (f"{_TOKENS} * token_flops_causal / num_procs", "derived"),
    "tokens_per_usd": (f"{_TOKENS} * hour / num_procs / price", "derived"),
    "mfu": (f"{_TOKENS} * token_flops / num_procs / matrix_peak", "quantities.utilisation"),
    "mfu_causal": (f"{_TOKENS} * token_flops_causal / num_procs / matrix_peak", "quantities.utilisation"),
    "usd": (f"{_USED} / hour * price", "quantities.processor_hours"),
    "energy": (f"{_USED} * power * power_share * pue / kilowatt_hour", "quantities.energy_kwh"),
}
"""Figure -> its expression, and where in `engine.economics` it is computed."""


def derived_metrics(scenario: Scenario) -> dict[str, Metric]:
    """Returns the figures of a scenario's executions that are derived from statistics, by name."""
    shares = {column.name for column in SHARES}
    return {name: metric for name, metric in metrics(scenario).items() if name in shares or name in _EXPRESSIONS}


def derived_formula(metric: Metric, row: Mapping[Any, Any], scenario: Scenario) -> Formula:
    """Returns the formula of one of `derived_metrics` for a feasible execution."""
    if metric.of_fastest:
        text = f"({' + '.join(parts_of(metric.key, scenario.cost_model))}) / total_time"
        source = "times of the step, engine.columns"
    else:
        text, module = _EXPRESSIONS[metric.key]
        source = f"{metric.formula.rstrip('.')}; engine.economics.{module}"
    facts = _formula_symbols(scenario)
    symbols = {name: facts.get(name) or symbol_of_column(name, row) for name in symbols_in(text)}
    return formula(metric.column, Expression(text, symbols, source))


def _formula_symbols(scenario: Scenario) -> dict[str, Symbol]:
    """Return the symbols of model, system and units that these formulas use."""
    flops, inputs = token_flops(scenario), RunInputs.of(scenario.system)
    found = {
        "sequence": Symbol(float(scenario.model.seq_size), "tokens of a sequence"),
        "tokens": Symbol(TRILLION, "tokens that are paid for"),
        "token_flops": Symbol(flops.model("full"), "model FLOP of a token, attention in full"),
        "token_flops_causal": Symbol(flops.model("causal"), "model FLOP of a token without what the mask discards"),
        "matrix_peak": Symbol(scenario.system.peak_tflops(scenario.datatype) * 1e12, "peak of a GPU [FLOP/s]"),
        "hour": Symbol(HOUR, "seconds of an hour"),
        "kilowatt_hour": Symbol(JOULES_PER_KWH, "joules of a kilowatt-hour"),
    }
    price = inputs.usd_middle
    if price is not None:
        found["price"] = Symbol(price, "USD of a GPU-hour, middle of its prices")
    if inputs.power_w is not None:
        found |= {
            "power": Symbol(inputs.power_w, "design power of a GPU [W]"),
            "power_share": Symbol(inputs.power_share, "draw with its share of the server over the design power"),
            "pue": Symbol(inputs.pue, "draw of the building over that of its computers"),
        }
    return found
