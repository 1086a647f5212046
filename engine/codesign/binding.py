"""Binding constraints: the ones that keep a better design out alone or together, and the smallest set that does.

Two constraints that refuse the same designs hide each other: with either one lifted alone nothing changes. So the
smallest set is found from the designs themselves. A design becomes available once every constraint that it violates is
lifted; of all refused designs that are better than the best allowed one, the ones that violate the fewest give the
smallest sets, and no search over subsets is needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from engine.codesign.quantities import Quantity
from engine.executions.arrays import Flags, Floats, Ints

__all__ = ["BindingReport", "binding_report", "slack_of"]


@dataclass(frozen=True, slots=True)
class BindingReport:
    """Designs that the constraints of a study refuse, and the gain from lifting them in one objective."""

    objective: str
    table: pd.DataFrame
    """One row per constraint: `constraint` in words, `slack` of the best design [unit of the quantity], `slack_share`
    [fraction of the bound], designs it `refuses` and `refuses_alone`, `best` under all constraints, `without` this one,
    `gain` [fraction], `binds`, and the `design` that is best without it."""
    running: int
    """Designs that run and have a value of the objective."""
    allowed: int
    """Designs among them that meet every constraint."""
    best: float
    """Best value of the objective under all constraints; NaN where no design is allowed."""
    design: int | None
    """The design that has it."""
    without_all: float
    """Best value with every constraint lifted."""
    without_all_gain: float
    """Its gain over `best` [fraction]; NaN where no design is allowed."""
    without_all_design: int | None
    smallest_set: tuple[int, ...]
    """Positions of the constraints in the smallest set whose lifting gives a better design; empty where none does."""
    smallest_set_value: float
    """Best value with that set lifted."""
    smallest_set_gain: float
    smallest_set_design: int | None

    @property
    def refused(self) -> int:
        """Designs that run and violate a constraint."""
        return self.running - self.allowed

    @property
    def smallest_set_words(self) -> tuple[str, ...]:
        """The constraints of the smallest set in words."""
        return tuple(str(self.table["constraint"].iloc[place]) for place in self.smallest_set)

    def as_json(self) -> dict[str, Any]:
        """Returns the report as a JSON document, without its table."""
        return {
            "objective": self.objective,
            "running": self.running,
            "allowed": self.allowed,
            "refused": self.refused,
            "best": self.best,
            "design": self.design,
            "without_all": {
                "value": self.without_all,
                "gain": self.without_all_gain,
                "design": self.without_all_design,
            },
            "smallest_set": {
                "constraints": list(self.smallest_set_words),
                "value": self.smallest_set_value,
                "gain": self.smallest_set_gain,
                "design": self.smallest_set_design,
            },
        }


def binding_report(
    objective: Quantity,
    values: Floats,
    designs: Ints,
    met: Flags,
    words: list[str],
    slack: Floats,
    share: Floats,
    order: npt.NDArray[np.intp],
) -> BindingReport:
    """Returns what constraints refuse and what lifting them is worth.

    Args:
        objective: the quantity that is to be best.
        values: of it, of designs that run [designs].
        designs: their numbers [designs].
        met: whether each meets each constraint [constraints, designs].
        words: each constraint in words.
        slack: of every design in each constraint, in its unit [constraints, designs].
        share: the same over the bound [constraints, designs].
        order: positions of the designs, the best first, ties in the order in which they are preferred [designs].
    """
    violated = (~met).sum(axis=0)
    sign = 1.0 if objective.better == "higher" else -1.0
    scores = sign * values
    count = len(values)

    def best_of(available: Flags) -> int | None:
        return next((place for place in order.tolist() if available[place]), None)

    base = best_of(violated == 0)
    now = float("nan") if base is None else float(values[base])
    score = -np.inf if base is None else float(scores[base])

    def found(place: int | None) -> tuple[float, float, int | None]:
        """Value, gain and design of a position."""
        if place is None:
            return float("nan"), float("nan"), None
        then = float(values[place])
        gain = float("nan") if base is None else sign * (then / now - 1.0)
        return then, gain, int(designs[place])

    rows = []
    for number, text in enumerate(words):
        free = best_of((violated == 0) | ((violated == 1) & ~met[number]))
        then, gain, design = found(free)
        binds = free is not None and bool(scores[free] > score)
        rows.append(
            (
                text,
                float("nan") if base is None else float(slack[number, base]),
                float("nan") if base is None else float(share[number, base]),
                int((~met[number]).sum()),
                int((~met[number] & (violated == 1)).sum()),
                now,
                then,
                gain,
                binds,
                design,
            )
        )
    better = (violated > 0) & (scores > score)
    smallest: tuple[int, ...] = ()
    chosen = None
    if better.any():
        chosen = best_of(better & (violated == violated[better].min()))  # the gain decides between sets of one size
        smallest = tuple(np.flatnonzero(~met[:, chosen]).tolist())
    names = [
        "constraint",
        "slack",
        "slack_share",
        "refuses",
        "refuses_alone",
        "best",
        "without",
        "gain",
        "binds",
        "design",
    ]
    return BindingReport(
        objective.name,
        pd.DataFrame(rows, columns=names),
        count,
        int((violated == 0).sum()),
        now,
        found(base)[2],
        *found(best_of(np.ones(count, bool))),
        smallest,
        *found(chosen),
    )


def slack_of(values: Floats, at_least: float | None, at_most: float | None) -> tuple[Floats, Floats]:
    """Returns how far values are inside bounds, negative where they violate one: in their unit, and over the bound that
    is nearer [both of the shape of the values]; the share is NaN of a bound of 0.

    Args:
        values: of a quantity.
        at_least: lower bound, or None.
        at_most: upper bound, or None.
    """
    slack, share = np.full(len(values), np.inf), np.full(len(values), np.inf)
    for bound, room in ((at_least, 1.0), (at_most, -1.0)):
        if bound is not None:
            mine = room * (values - bound)
            nearer = mine < slack
            slack = np.where(nearer, mine, slack)
            share = np.where(nearer, mine / abs(bound) if bound else np.nan, share)
    return slack, share
