"""Quantities by which designs are judged: each with its unit, its formula, and its basic quantities.

Every quantity gets better, or stays, when anything that it rests on does: a higher rate, a lower price. So bounds on
rates prove something about all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import pandas as pd

from engine.codesign.errors import StudyError
from engine.codesign.schema import Constraint, StudyDocument
from engine.economics import energy_kwh, processor_hours, seconds_for_tokens
from engine.executions.arrays import Floats
from models.documents import did_you_mean, shown

__all__ = ["MEMORY", "QUANTITIES", "Basic", "Quantity", "axes_of", "quantity", "refuses_better", "with_quantities"]

Basic = Literal["rate", "usd", "watts", "usd_per_h", "processors", "memory", "host memory", "step"]
MEMORY: Final[Mapping[str, str]] = {"hbm_gib": "proc_mem_tier1_cap_req", "host_gib": "proc_mem_tier2_cap_req"}
"""Quantities derived from a statistic that the study must keep."""
DAY: Final = 86_400.0
"""Seconds of a day [s/d]."""
HOUR: Final = 3_600.0
"""Seconds of an hour [s/h]."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """One quantity; `value` computes it from a table with rates, the columns of `engine.codesign.costs.bill` at one end
    of their ranges, and `tokens` of the run."""

    name: str
    label: str
    unit: str
    better: Literal["higher", "lower"]
    rests_on: frozenset[Basic]
    description: str
    value: Callable[[pd.DataFrame, float], Floats]


def _column_values(name: str) -> Callable[[pd.DataFrame, float], Floats]:
    return lambda table, tokens: table[name].to_numpy()


def _column_ratio(above: str, below: str) -> Callable[[pd.DataFrame, float], Floats]:
    return lambda table, tokens: table[above].to_numpy() / table[below].to_numpy()


def _training_seconds(table: pd.DataFrame, tokens: float) -> Floats:
    rate = table["tokens_per_s"].to_numpy(np.float64)
    return seconds_for_tokens(np.full_like(rate, tokens), rate)


def _training_energy(table: pd.DataFrame, tokens: float) -> Floats:
    # The draw of the building is known: one processor of that power, and nothing to add.
    seconds = _training_seconds(table, tokens)
    one = np.ones_like(seconds)
    return energy_kwh(one, seconds, table["watts"].to_numpy(np.float64), one, one)


QUANTITIES: Final[Mapping[str, Quantity]] = {
    one.name: one
    for one in (
        Quantity(
            "tokens_per_s",
            "Throughput in tokens",
            "tokens/s",
            "higher",
            frozenset({"rate"}),
            "Tokens that the machine trains per second; of a mix, 1 / sum(weight / rate of each model).",
            _column_values("tokens_per_s"),
        ),
        Quantity(
            "samples_per_s",
            "Throughput",
            "samples/s",
            "higher",
            frozenset({"rate"}),
            "Samples per second; of a mix, those in its tokens per second.",
            _column_values("samples_per_s"),
        ),
        Quantity(
            "usd",
            "Price",
            "USD",
            "lower",
            frozenset({"usd"}),
            "Price of the machine: amounts times unit prices.",
            _column_values("usd"),
        ),
        Quantity(
            "watts",
            "Power",
            "W",
            "lower",
            frozenset({"watts"}),
            "Draw of the machine with its building.",
            _column_values("watts"),
        ),
        Quantity(
            "usd_per_h",
            "Rent",
            "USD/h",
            "lower",
            frozenset({"usd_per_h"}),
            "Rent of all processors.",
            _column_values("usd_per_h"),
        ),
        Quantity(
            "processors",
            "Processors",
            "",
            "lower",
            frozenset({"processors"}),
            "Processors of the machine.",
            _column_values("processors"),
        ),
        Quantity(
            "tokens_per_s_per_usd",
            "Throughput per dollar",
            "tokens/s/USD",
            "higher",
            frozenset({"rate", "usd"}),
            "Tokens per second over the price.",
            _column_ratio("tokens_per_s", "usd"),
        ),
        Quantity(
            "samples_per_s_per_usd",
            "Samples per second and dollar",
            "samples/s/USD",
            "higher",
            frozenset({"rate", "usd"}),
            "Samples per second over the price.",
            _column_ratio("samples_per_s", "usd"),
        ),
        Quantity(
            "tokens_per_joule",
            "Tokens per joule",
            "tokens/J",
            "higher",
            frozenset({"rate", "watts"}),
            "Tokens per second over the power: throughput per watt.",
            _column_ratio("tokens_per_s", "watts"),
        ),
        Quantity(
            "samples_per_joule",
            "Samples per joule",
            "samples/J",
            "higher",
            frozenset({"rate", "watts"}),
            "Samples per second over the power.",
            _column_ratio("samples_per_s", "watts"),
        ),
        Quantity(
            "days",
            "Time to train",
            "days",
            "lower",
            frozenset({"rate"}),
            "Time for the tokens of the run, without failures.",
            lambda t, n: _training_seconds(t, n) / DAY,
        ),
        Quantity(
            "rent_usd",
            "Rent of the run",
            "USD",
            "lower",
            frozenset({"rate", "usd_per_h"}),
            "Processor-hours of the run times their price.",
            lambda t, n: processor_hours(t["usd_per_h"].to_numpy(), _training_seconds(t, n)),
        ),
        Quantity(
            "energy_kwh",
            "Energy of the run",
            "kWh",
            "lower",
            frozenset({"rate", "watts"}),
            "Power times the time of the run.",
            _training_energy,
        ),
        Quantity(
            "step_s",
            "Time of a step",
            "s",
            "lower",
            frozenset({"step"}),
            "Batch over samples per second; of a mix, the longest.",
            _column_values("step_s"),
        ),
        Quantity(
            "hbm_gib",
            "HBM used",
            "GiB",
            "lower",
            frozenset({"memory"}),
            "Memory beside a processor that the best execution needs; of a mix, the most.",
            _column_values("hbm_gib"),
        ),
        Quantity(
            "host_gib",
            "Host memory used",
            "GiB",
            "lower",
            frozenset({"host memory"}),
            "Memory to offload to that the best execution needs; of a mix, the most.",
            _column_values("host_gib"),
        ),
    )
}
"""Every quantity by name, in the order in which they are offered."""


def quantity(name: str) -> Quantity:
    """Returns a quantity by its name. Raises `StudyError` naming those there are.

    Args:
        name: of the quantity.
    """
    found = QUANTITIES.get(name) if isinstance(name, str) else None
    if found is None:
        hint = did_you_mean(str(name), list(QUANTITIES)) or f"; there are {', '.join(QUANTITIES)}"
        raise StudyError(f"There is no quantity {shown(name)}{hint}.")
    return found


def with_quantities(table: pd.DataFrame, tokens: float) -> pd.DataFrame:
    """Returns a table of rates and costs with every quantity whose columns it has.

    Args:
        table: designs with `tokens_per_s`, `samples_per_s` and the costs at one end of their ranges.
        tokens: of the training run.
    """
    found = {}
    for one in QUANTITIES.values():
        try:
            found[one.name] = one.value(table, tokens)
        except KeyError:  # it rests on a statistic that was not kept
            continue
    return table.assign(**found)


def axes_of(said: StudyDocument) -> frozenset[Basic]:
    """Return the quantities behind the objectives and constraints of a study: a design that is worse in all of them is
    skipped.

    Args:
        said: the document of the study.
    """
    names = [*said.objectives, *(each.quantity for each in said.constraints)]
    return frozenset(basic for name in names for basic in QUANTITIES[name].rests_on)


def refuses_better(constraint: Constraint) -> bool:
    """Return True if a constraint refuses designs for being too good, such as a minimum price.

    A design that beats another in everything may then be refused itself, so nothing is proven to lose.

    Args:
        constraint: on an existing quantity.
    """
    better = quantity(constraint.quantity).better
    return (constraint.at_most if better == "higher" else constraint.at_least) is not None
