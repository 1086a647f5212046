"""Accuracy of figures: labels, error intervals, and executions tied within the error.

A figure is "exact" if it is Calculon's, "calibrated" if kernel rates of the GPU's generation were fitted to measured
runs, and "modelled" if nothing was measured on that generation, if the execution depends on something that was never
measured (`engine.cost_models.contract.CostModel.not_measured`), or if bytes are counted rather than fitted. Intervals
come from runs of sources that had no part in the fit (`engine.validation.uncertainty`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, NamedTuple

from dashboard.charts.elements.markup import Tile
from dashboard.queries.explorations import Where, near_best
from dashboard.words.numbers import SPACE, percent, signed_percent
from dashboard.words.scenarios import in_words
from engine import Exploration, Scenario
from engine.columns import MFU_OF, by_name
from engine.cost_models.registry import cost_model_of
from engine.recommendation import OUT_OF_MEMORY, describe_fit, find_fit, fit_of
from engine.validation.uncertainty import (
    OFFLOADS,
    SHARE,
    Interval,
    interval_of,
    interval_of_kind,
    is_modelled,
    memory_interval_of,
)

__all__ = [
    "EXACT",
    "EXPLAINED",
    "FITTED",
    "MODELLED",
    "ErrorOf",
    "basis",
    "beside",
    "beside_figure",
    "doubts",
    "error_of",
    "founded",
    "is_tied",
    "label_of",
    "marked",
    "never_measured",
    "origin_of",
    "rate_error",
    "span",
    "ties",
    "within",
]

_TIMES: Final = ("Step time",)
_RUNS: Final = "tokens take"
"""End of the labels of the time of a training run."""
_RATES: Final = ("Best throughput", "Throughput", *(by_name(name).short for name in MFU_OF.values()))
_MEMORY: Final = ("HBM", "HBM per GPU", "HBM needed", "Host memory")
_MEMORY_OF: Final = {"proc_mem_tier1_cap_req": "HBM", "proc_mem_tier2_cap_req": "Host memory"}
EXACT, FITTED, MODELLED = "exact", "calibrated", "modelled"
EXPLAINED: Final = {
    FITTED: "Rates of this GPU's generation were fitted to measured training runs.",
    MODELLED: "No run was measured on this GPU generation: datasheet peaks with the efficiencies of others.",
    EXACT: "Equal to Calculon 0.1.0, to the last digit. The page Validation shows Calculon's own errors.",
}
"""Explanation of each label."""


class ErrorOf(NamedTuple):
    """Error of an execution's time: factors on it, for most and for half of comparable runs."""

    most: Interval
    half: Interval

    @property
    def width(self) -> float:
        """Half the width of the interval, as a share of the time."""
        return (self.most.high - self.most.low) / 2.0


def label_of(scenario: Scenario, execution: Mapping[Any, Any] | None = None) -> str:
    """Returns the label of a scenario's times, or of one execution's times: "calibrated", "modelled" or "exact"."""
    cost_model = cost_model_of(scenario)
    if cost_model.reference:
        return EXACT
    if not cost_model.takes_calibration or is_modelled(scenario):
        return MODELLED
    return MODELLED if execution is not None and scenario.not_measured(execution) else FITTED


def origin_of(scenario: Scenario, statistic: str, execution: Mapping[Any, Any]) -> str:
    """Returns the label of a statistic of an execution: memory is counted, so it is "modelled" wherever it is not
    exact."""
    label = label_of(scenario, execution)
    return MODELLED if label == FITTED and by_name(statistic).unit == "bytes" else label


def error_of(scenario: Scenario, execution: Mapping[Any, Any]) -> ErrorOf | None:
    """Returns how far the time of an execution may be off; None where no measured run is comparable."""
    most, half = (interval_of(scenario, execution, share) for share in (SHARE, 0.5))
    return None if most is None or half is None else ErrorOf(most, half)


def span(low: float, high: float) -> str:
    """Returns an interval in few words: "−6.1 to +9.0 %"."""
    first, second = (signed_percent(factor - 1.0) for factor in (low, high))
    return f"{first.removesuffix(f'{SPACE}%')} to {second}"


def marked(tiles: Iterable[Tile], scenario: Scenario, execution: Mapping[Any, Any]) -> list[Tile]:
    """Returns headline figures with their labels; figures that follow from the time of a step also get their interval
    or the parts that were never measured."""
    time, rate = (founded(scenario, execution, kind) for kind in ("time", "rate"))
    if label_of(scenario) == EXACT:  # the sentence names the cost model; figures carry no claim of truth
        return list(tiles)
    counted = {"origin": MODELLED}
    found = []
    for tile in tiles:
        known = (
            time
            if tile.label in _TIMES or tile.label.endswith(_RUNS)
            else rate
            if tile.label in _RATES
            else counted | _memory_marks(scenario, execution, tile.label)
            if tile.label in _MEMORY
            else {}
        )
        found.append(tile._replace(**known))
    return found


def basis(scenario: Scenario, execution: Mapping[Any, Any] | None, *, ranges: bool = False) -> str:
    """Returns one line on the basis of an execution's figures: its cost model, whether times were fitted to measured
    runs, and the meaning of the ranges next to them.

    ranges: whether there are ranges next to figures of several executions, `execution` not being one of them.
    """
    cost_model = cost_model_of(scenario)
    words = in_words(scenario)
    if cost_model.reference:
        return f"{words[:1].upper()}{words[1:]}: computed, not measured."
    fitted = label_of(scenario, execution) == FITTED
    why = "times fitted to measured runs, memory modelled" if fitted else "times and memory modelled"
    if label_of(scenario) != FITTED:
        why += ", because no run was measured on this GPU generation"
    error = None if execution is None else error_of(scenario, execution)
    most = interval_of_kind(scenario) if ranges else None if error is None else error.most
    held = "" if most is None else f"; ranges hold {percent(SHARE, 0)} of {most.rests_on}"
    if most is not None and math.isfinite(most.held):
        held += f", and {percent(most.held, 0)} if their source is left out"
    return f"Cost model {words}: {why}{held}."


def _memory_marks(scenario: Scenario, execution: Mapping[Any, Any], label: str) -> dict[str, str]:
    """Return the error of predicted memory, and whether the execution may not fit within it."""
    error = memory_interval_of(scenario)
    if error is None:
        return {}
    second = label == "Host memory"
    needed = float(execution[f"proc_mem_tier{2 if second else 1}_cap_req"])
    if not needed > 0.0:
        return {}
    told = span(error.low, error.high)
    fit = fit_of(scenario, needed, error.high - 1.0, second=second, excess=1.0 - error.low)
    if fit in ("may not fit", "may fit"):
        return {"error": f"{fit}: {told}", "tone": "worse"}
    return {"error": told}


def fit_sentence(scenario: Scenario, execution: Mapping[Any, Any]) -> str:
    """Returns the sentence about an execution that needs more than the capacity, but by less than the error of
    predicted memory; empty for all others. execution: with the statistics that it would have."""
    error = memory_interval_of(scenario)
    if error is None or execution["reason"] not in OUT_OF_MEMORY:
        return ""
    return describe_fit(scenario.model, scenario.system, find_fit(execution, scenario.system, error))


def doubts(scenario: Scenario, execution: Mapping[Any, Any]) -> tuple[str, ...]:
    """Returns what speaks against an execution, as sentences that go with its figures wherever they are shown: that it
    may not fit, and what no measured run had."""
    if label_of(scenario) == EXACT:
        return ()
    fits = []
    for label, tier in (("HBM", "HBM"), ("Host memory", "host memory")):
        fit, _, interval = _memory_marks(scenario, execution, label).get("error", "").partition(": ")
        if interval:
            fits.append(f"{fit.capitalize()}: predicted {tier} is off by {interval}.")
    unknown = scenario.not_measured(execution)
    return (*fits, *([f"No measured run has: {', '.join(unknown)}."] if unknown else []))


def founded(scenario: Scenario, execution: Mapping[Any, Any], kind: Literal["time", "rate"]) -> dict[str, str]:
    """Returns the label of an execution's time or rate, `origin`, and its interval or what was never measured,
    `error`."""
    told, error = beside(scenario, execution), error_of(scenario, execution)
    if error is not None:
        low, high = error.most[:2] if kind == "time" else (1.0 / error.most.high, 1.0 / error.most.low)
        told = span(low, high)
    return {"origin": label_of(scenario, execution), "error": told}


def beside_figure(scenario: Scenario, statistic: str, inverse: bool, execution: Mapping[Any, Any]) -> tuple[str, str]:
    """Returns the label of any figure of an execution, and how far it may be off or what was never measured of it.

    statistic: that it follows from. inverse: whether it falls where that rises, as cost does with throughput.
    """
    if label_of(scenario) == EXACT:
        return "", ""
    origin = origin_of(scenario, statistic, execution)
    if statistic in _MEMORY_OF:
        return origin, _memory_marks(scenario, execution, _MEMORY_OF[statistic]).get("error", "")
    if statistic in ("sample_rate", "total_time"):
        kind: Literal["time", "rate"] = "rate" if (statistic == "sample_rate") != inverse else "time"
        return origin, founded(scenario, execution, kind)["error"]
    return origin, "" if by_name(statistic).unit == "bytes" else beside(scenario, execution)


def beside(scenario: Scenario, execution: Mapping[Any, Any]) -> str:
    """Returns the parts of a time that were never measured, in few words; empty without any."""
    return never_measured(scenario.not_measured(execution))


def never_measured(things: Iterable[str]) -> str:
    """Returns what was never measured in few words; empty where everything was.

    things: as `engine.cost_models.contract.CostModel.not_measured` names them.
    """
    short = dict.fromkeys("offload" if words in OFFLOADS.values() else words for words in things)
    if not short:
        return ""
    first = "offload" if "offload" in short else next(iter(short))
    return f"never measured: {first}{f' +{len(short) - 1}' if len(short) > 1 else ''}"


def rate_error(scenario: Scenario, things: Iterable[str]) -> str:
    """Returns the error interval of a throughput, or its parts that were never measured; empty if the error is unknown.

    things: names of the never measured parts of the execution.
    """
    if told := never_measured(things):
        return told
    most = interval_of_kind(scenario)
    return "" if most is None else span(1.0 / most.high, 1.0 / most.low)


def within(scenario: Scenario, execution: Mapping[Any, Any]) -> float:
    """Returns share of a throughput above which others cannot be distinguished from it; 1 without measured runs."""
    error = error_of(scenario, execution)
    return 1.0 if error is None else 1.0 / (1.0 + error.width)


def ties(exploration: Exploration, best: Mapping[str, Any], where: Where = ()) -> int:
    """Returns how many other executions lie within the error of the best one's throughput."""
    share = within(exploration.scenario, best)
    if share >= 1.0:
        return 0
    return near_best(exploration, exploration.key, float(best["sample_rate"]), share, where)[0] - 1


def is_tied(scenario: Scenario, one: Mapping[Any, Any], other: Mapping[Any, Any]) -> bool:
    """Returns whether the throughputs of two executions differ by less than the error."""
    rates = sorted(float(each["sample_rate"]) for each in (one, other))
    return rates[0] >= rates[1] * within(scenario, one) and rates[0] != rates[1]
