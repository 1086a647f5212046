"""Designs that need no search, because bounds prove that they lose.

A design loses if another computed design is at least as good in everything that the study asks about and better in
something. The bound of a design comes from searched designs of the same layout:

- from one that is nowhere worse in its rates and capacities: its best rate, if no execution is slower on a better
  system (`CostModel.slower_on_worse`). If one may be slower, because faster computation hides less of an exchange: the
  rate that it can reach by times that never rise with a rate (`CostModel.reach`).
- from one of the same rates with no less memory: its best rate itself, because capacities decide only which executions
  fit.

Every question is reduced to its basic quantities - the rate, price, power, rent, processors - and never gets worse with
a better one. So a proof about these holds for any quantity made of them, and for any constraint that a better design
meets too; a study with another constraint skips nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from engine.codesign.costs import bill
from engine.codesign.quantities import axes_of, refuses_better
from engine.codesign.study import Study
from engine.cost_models.registry import cost_model_of
from engine.executions.arrays import Flags, Floats, Ints
from engine.whatif.parameters import parameters

__all__ = ["Pruner"]

SLACK: Final = 1.0 + 1e-9
"""Bounds and searches add the same terms in different orders; this covers the difference in rounding."""

MOST_CORNERS: Final = 4_096
"""Searched designs of one layout and model that others are compared with; of more, the latest."""

MOST_KNOWN: Final = 4_096
"""Designs that none found beats, which others are compared with; of more, the latest."""

COSTS: Final[Mapping[str, tuple[str, ...]]] = {
    **{name: tuple(f"{name}_{end}" for end in ("low", "middle", "high")) for name in ("usd", "watts", "usd_per_h")},
    "processors": ("processors",),
}


@dataclass(slots=True)
class _Corners:
    """Searched designs of one layout and model: their values, best rates, and what no worse ones exceed."""

    values: Floats
    rate: Floats
    free: Floats
    size: int = 0

    def add(self, values: Floats, rate: float, free: float) -> None:
        at = self.size % MOST_CORNERS
        if at >= len(self.rate):
            grown = max(64, 2 * len(self.rate))
            self.values = np.resize(self.values, (grown, len(values)))
            self.rate, self.free = np.resize(self.rate, grown), np.resize(self.free, grown)
        self.values[at], self.rate[at], self.free[at] = values, rate, free
        self.size += 1

    def bounds(self, values: Floats, capacity: Flags) -> tuple[Floats, Floats]:
        """Return the highest rates that designs [designs, values] can reach, by the first rule and by the second
        [designs].
        """
        count = min(self.size, MOST_CORNERS)
        above = self.values[None, :count] >= values[:, None]
        equal = self.values[None, :count] == values[:, None]
        anywhere = above.all(axis=2)
        alike = (above & (equal | capacity)).all(axis=2)
        free = np.where(anywhere, self.free[:count] * SLACK, np.inf).min(axis=1, initial=np.inf)
        exact = np.where(alike, self.rate[:count], np.inf).min(axis=1, initial=np.inf)
        return free, exact


@dataclass(slots=True)
class _Front:
    """Designs found: their rate, and what else the study asks about [designs, axes]."""

    rate: Floats = field(default_factory=lambda: np.zeros(0))
    costs: Floats = field(default_factory=lambda: np.zeros((0, 0)))

    def add(self, rate: Floats, costs: Floats) -> None:
        mine = self.costs.reshape(len(self.rate), costs.shape[1])
        rates, others = np.concatenate((rate, self.rate)), np.vstack((costs, mine))
        # Of those found, only ones that no other beats rule anything out that the others do not.
        order = np.lexsort((*others.T[::-1], -rates))
        kept: list[int] = []
        for at in order.tolist():
            if not kept or not (others[kept] <= others[at]).all(axis=1).any():
                kept.append(at)
        kept = sorted(kept)[:MOST_KNOWN]
        self.rate, self.costs = rates[kept], others[kept]

    def beats(self, free: Floats, exact: Floats, costs: Floats) -> Flags:
        """Return a mask of designs that one of these beats, from the highest rates that they can reach [designs]."""
        if not len(self.rate):
            return np.zeros(len(free), bool)
        no_dearer = (self.costs[None] <= costs[:, None]).all(axis=2)
        cheaper = no_dearer & (self.costs[None] < costs[:, None]).any(axis=2)
        best = np.where(no_dearer, self.rate, -np.inf).max(axis=1)
        best_cheaper = np.where(cheaper, self.rate, -np.inf).max(axis=1)
        lost: Flags = (np.minimum(free, exact) < best) | (exact <= best_cheaper)
        return lost


class Pruner:
    """Searched designs of a study so far, and proofs about designs that were not searched."""

    def __init__(self, study: Study) -> None:
        self._study = study
        axes = axes_of(study.document)
        # A quantity of one execution, such as the memory that it uses, has no bound.
        self.proves = axes <= {"rate", *COSTS} and "rate" in axes
        self.proves &= not any(refuses_better(each) for each in study.document.constraints)
        self._columns = [column for basic in sorted(axes & set(COSTS)) for column in COSTS[basic]]
        self._share = np.array([each.weight for each in study.document.models])
        self._corners: dict[tuple[int, int], _Corners] = {}
        self._fronts = [_Front() for _ in range(len(study.models) + 1)]
        self._signs: dict[int, tuple[Floats, Flags]] = {}

    def add(self, points: Sequence[int], rates: Sequence[float], free: Sequence[float]) -> None:
        """Takes the best rates of points, and what neither they nor any worse ones exceed [samples/s], endless or NaN
        where nothing is known of that."""
        if not self.proves or not len(points):
            return
        free = np.nan_to_num(np.array(free, np.float64), nan=np.inf, posinf=np.inf).tolist()
        count = len(self._study.models)
        point = np.array(points, np.int64)
        designs, places = np.unique(point // count, return_inverse=True)
        rate = np.full((len(designs), count), np.nan)
        rate[places, point % count] = rates
        costs = self._costs(designs)
        for model in range(count):
            there = ~np.isnan(rate[:, model])
            self._fronts[model].add(rate[there, model], costs[there])
        if count > 1:
            whole = ~np.isnan(rate).any(axis=1)
            self._fronts[count].add(self._mixed(designs[whole], rate[whole]), costs[whole])
        for number, group, values, at in self._by_group(designs):
            del number
            for place, design in enumerate(at.tolist()):
                for model in range(count):
                    mine = np.flatnonzero(point == designs[design] * count + model)
                    if len(mine):
                        corners = self._corners.setdefault(
                            (group, model), _Corners(np.zeros((0, values.shape[1])), np.zeros(0), np.zeros(0))
                        )
                        corners.add(values[place], rates[int(mine[0])], free[int(mine[0])])

    def lost(self, designs: Ints) -> dict[int, float]:
        """Returns what points of designs can reach at most [samples/s] that need not be searched, by their numbers."""
        if not self.proves or not len(designs):
            return {}
        count = len(self._study.models)
        free, exact = np.full((len(designs), count), np.inf), np.full((len(designs), count), np.inf)
        for _, group, values, at in self._by_group(designs):
            _, capacity = self._signs_of(group)
            for model in range(count):
                corners = self._corners.get((group, model))
                if corners is not None:
                    free[at, model], exact[at, model] = corners.bounds(values, capacity)
        costs = self._costs(designs)
        alone = [self._fronts[model].beats(free[:, model], exact[:, model], costs) for model in range(count)]
        mixed = alone[0]
        if count > 1:
            reach = np.minimum(free, exact)
            mixed = self._fronts[count].beats(self._mixed(designs, reach) * SLACK, np.full(len(designs), np.inf), costs)
        return {
            int(designs[place]) * count + model: float(min(free[place, model], exact[place, model]))
            for model in range(count)
            for place in np.flatnonzero(alone[model] & mixed).tolist()
        }

    def _mixed(self, designs: Ints, rates: Floats) -> Floats:
        """Tokens per second of the mix [designs]; endless where a rate is."""
        length = self._study.sample_lengths(designs)
        with np.errstate(divide="ignore"):
            return np.asarray(1.0 / (self._share / self._share.sum() / (rates * length)).sum(axis=1))

    def _costs(self, designs: Ints) -> Floats:
        costs = bill(self._study, designs)[self._columns].to_numpy(np.float64)
        if "sequence" not in self._study.edited_names:
            return costs
        # Of samples of other lengths more samples a second may be fewer tokens: only equal ones are compared.
        length = self._study.sample_lengths(designs)[:, :1]
        return np.hstack((costs, length, -length))

    def _by_group(self, designs: Ints) -> Iterable[tuple[int, int, Floats, npt.NDArray[np.intp]]]:
        """(place, group, values with their signs, positions) for each group that designs are of."""
        group = designs // self._study.designs_per_group
        for place, each in enumerate(np.unique(group).tolist()):
            at = np.flatnonzero(group == each)
            signs, _ = self._signs_of(each)
            values = self._study.edited_values(designs[at])
            # What nothing is known about has to be equal: no less, and no more.
            unknown = values[:, signs == 0]
            yield place, each, np.hstack((values * np.where(signs == 0, 1.0, signs), -unknown)), at

    def _signs_of(self, group: int) -> tuple[Floats, Flags]:
        """Return how rates depend on each edited value of a group, and a mask of the compared values that are
        capacities.
        """
        found = self._signs.get(group)
        if found is None:
            study = self._study
            scenario = study.base(study.design(group * study.designs_per_group), 0)
            there = {each.name: each for each in parameters(scenario)}
            cost_model = cost_model_of(scenario)
            mine = [there[name] for name in study.edited_names]
            signs = np.array([cost_model.rises_with(scenario.system, each.path) for each in mine], np.float64)
            capacity = np.array([each.mask for each in mine], bool) & (signs == 1)
            found = signs, np.concatenate((capacity, np.zeros(int((signs == 0).sum()), bool)))
            self._signs[group] = found
        return found
