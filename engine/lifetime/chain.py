"""Chains of phases on one system: the exact front of days against cost, the best chain under limits, and what binds.

Days and GPU-hours of a chain are sums over its phases, and cost rises with both. Fronts of single phases are therefore
added one after another, and dominated sums are dropped: no better chain of the sizes given is lost. Where limits must
hold at the upper ends, squares of the half-widths, which are sums too, are criteria as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, Final

import numpy as np

from engine.economics import DerivedError
from engine.executions.arrays import Floats
from engine.recommendation.training_plans import RunFigure

__all__ = [
    "Chain",
    "ChainChange",
    "ChainGoal",
    "ChainTerms",
    "ChainsOnSystem",
    "PhaseCurve",
    "PhaseSize",
    "ServiceShare",
    "chains_on_system",
    "explain_chains",
]

HOURS: Final = 24.0
"""Hours of a day [h]."""
UPPER: Final = 1.2816
"""Standard deviations of a normal law from its mean to the 90 % quantile."""
MOST_SUMS: Final = {2: 4_000_000, 4: 400_000}
"""Sums that are compared at once, by number of criteria; of more the chain is refused. Source: stated by us."""
MORE_DAYS: Final = 1.0
"""Days that a deadline is moved by, to see whether it binds. Source: stated by us."""
MORE_USD: Final = 0.1
"""Share that a budget is raised by, to see whether it binds. Source: stated by us."""
DETERMINED: Final = 1e-9
"""Relative difference below which a limit holds, for sums of floats."""


@dataclass(frozen=True, slots=True)
class PhaseSize:
    """A phase on so many GPUs of a system."""

    gpus: int
    days: RunFigure
    """Wall-clock time, failures included [days]; the interval is that of the step."""
    failures: float
    """Interruptions expected."""
    failure_days: float
    """Time that a failure takes on average [days]."""
    mwh: float | None
    """Energy [MWh]; None without a power."""
    layout: str
    row: Any = None
    """Execution, if it is to be shown."""

    @property
    def gpu_hours(self) -> float:
        """GPU-hours."""
        return self.gpus * self.days.value * HOURS

    @property
    def upper_square(self) -> float:
        """Square of the days from the value to the 90 % quantile: error of the step, and number of failures (Poisson).

        The error counts as none where it is unknown.
        """
        step = 0.0 if self.days.high is None else self.days.high - self.days.value
        return step**2 + (UPPER * self.failure_days) ** 2 * self.failures

    @property
    def lower_square(self) -> float:
        """The same from the 10 % quantile to the value."""
        step = 0.0 if self.days.low is None else self.days.value - self.days.low
        return step**2 + (UPPER * self.failure_days) ** 2 * self.failures


@dataclass(frozen=True, slots=True)
class PhaseCurve:
    """A training phase at all sizes at which it runs, ascending, and why it does not at others."""

    name: str
    kind: str
    sizes: tuple[PhaseSize, ...]
    refused: Mapping[int, str]

    @property
    def obstacle(self) -> str:
        """Reason why the phase runs at no size; empty if it does."""
        if self.sizes:
            return ""
        return f"{self.name} does not run: {next(iter(self.refused.values()), 'no size was tried.')}"


@dataclass(frozen=True, slots=True)
class ServiceShare:
    """GPUs of services: `beside` the chain while it runs, and `after_days`, GPU-days of those after it."""

    beside: int = 0
    after_days: float = 0.0


@dataclass(frozen=True, slots=True)
class ChainTerms:
    """Price of a system's GPUs, and whether all phases hold the same ones."""

    usd_low: float | None = None
    """Lowest price [USD per GPU-hour]; None without one."""
    usd_high: float | None = None
    power_usd_per_h: float = 0.0
    """Electricity of a GPU in use [USD/h], where it is paid beside the price."""
    is_held: bool = False
    """True if the GPUs are held, and paid, from the first phase to the last: bought or reserved."""
    reserved_days: float = 0.0
    """Time that is paid at least [days]."""

    @property
    def usd_middle(self) -> float | None:
        """The price half-way between the lowest and the highest [USD per GPU-hour]."""
        return None if self.usd_low is None or self.usd_high is None else (self.usd_low + self.usd_high) / 2.0

    def cost(self, price: float, days: Any, hours: Any, held: Any, service: ServiceShare) -> Any:
        """Return the cost of chains, services included [USD].

        Args:
            price: [USD per GPU-hour].
            days: of the chains [days], a number or an array.
            hours: GPU-hours of their phases, of the same shape.
            held: GPUs that the chain holds throughout; counts where they are held.
            service: GPUs of services.
        """
        paid_days = np.maximum(days, self.reserved_days)
        paid = held * paid_days * HOURS if self.is_held else hours
        beside = service.beside * (paid_days if self.is_held else days) * HOURS
        used = hours + service.beside * days * HOURS
        after = service.after_days * HOURS
        return price * (paid + beside + after) + self.power_usd_per_h * (used + after)


@dataclass(frozen=True, slots=True)
class ChainGoal:
    """Limits of a chain."""

    deadline_days: float | None = None
    budget_usd: float | None = None
    num_procs: int | None = None
    """GPUs that all phases hold; chosen where None."""
    room_for_error: bool = False
    """True if limits must hold at the 90 % quantile."""

    @property
    def is_shortest(self) -> bool:
        """True if the shortest chain is best, not the cheapest: without a deadline, or on GPUs that are given."""
        return self.deadline_days is None or self.num_procs is not None


@dataclass(frozen=True, eq=False)
class Chain:
    """A size for every phase of a chain, and its figures."""

    sizes: tuple[PhaseSize, ...]
    held: int
    """GPUs that the chain holds: throughout where they are held, at most otherwise."""
    days: RunFigure
    usd: RunFigure | None
    """Middle price; from the lowest at the 10 % quantile to the highest at the 90 % quantile. None without a price."""
    gpu_hours: RunFigure
    mwh: float | None
    failures: float
    misses: tuple[str, ...]
    """Limits that do not hold: "days", "usd"."""


@dataclass(frozen=True, eq=False)
class ChainsOnSystem:
    """Chains on one system: the front of days against cost, the best, and the nearest where none holds the limits."""

    curves: tuple[PhaseCurve, ...]
    terms: ChainTerms
    goal: ChainGoal
    service: ServiceShare
    most: int
    """GPUs that phases may hold."""
    front: tuple[Chain, ...]
    """Chains of which none is both shorter and cheaper, the shortest first."""
    chosen: Chain | None
    obstacle: str
    """Reason of a missing choice; empty with one."""
    days_needed: float | None
    """Deadline that would do with the budget as it is [days]; None with a choice, or where no deadline would."""
    usd_needed: float | None
    """Budget that would do with the deadline as it is [USD]; None with a choice, or where no budget would."""


@dataclass(frozen=True, slots=True)
class ChainChange:
    """Moved limits, and the gain."""

    words: str
    days: float | None
    """Days of the chain after it; None if none holds the limits."""
    usd: float | None
    gain: float | None
    """By which the objective, USD or days, gets better; None where no chain held the limits before or after."""
    holds: bool


@dataclass(frozen=True, eq=False)
class _Sums:
    """Sums of phases: criteria [sums, criteria], and positions of sizes in the curves [sums, phases]."""

    criteria: Floats
    picks: np.ndarray[Any, Any]


def _add_phase(sums: _Sums, curve: PhaseCurve, usable: Sequence[int], has_error: bool) -> _Sums:
    """Return the non-dominated sums with one more phase."""
    own = np.array([_criteria_of(curve.sizes[at], has_error) for at in usable])
    if len(sums.criteria) * len(own) > MOST_SUMS[own.shape[1]]:
        raise DerivedError("There are too many phases to compare all their sizes; leave one out, or `room_for_error`.")
    total = (sums.criteria[:, None, :] + own[None, :, :]).reshape(-1, own.shape[1])
    kept = _non_dominated(total)
    before, place = np.divmod(kept, len(usable))
    picks = np.column_stack([sums.picks[before], np.asarray(usable)[place]])
    return _Sums(total[kept], picks)


def _criteria_of(size: PhaseSize, has_error: bool) -> list[float]:
    found = [size.days.value, size.gpu_hours]
    return [*found, size.upper_square, size.upper_square * (size.gpus * HOURS) ** 2] if has_error else found


def _non_dominated(criteria: Floats) -> np.ndarray[Any, Any]:
    """Return the positions of rows that no other row is at most equal to in every column, one of equal rows."""
    order: np.ndarray[Any, Any] = np.lexsort(criteria.T[::-1])
    rows = criteria[order]
    if rows.shape[1] == 2:
        least = np.minimum.accumulate(rows[:, 1])
        is_first = np.concatenate([[True], rows[1:, 1] < least[:-1]])
        return np.asarray(order[is_first])
    # Rows come in the order of the first column, so that only rows before can dominate.
    kept = np.empty_like(rows)
    places: list[int] = []
    for place, row in enumerate(rows):
        if not (kept[: len(places)] <= row).all(axis=1).any():
            kept[len(places)] = row
            places.append(place)
    return np.asarray(order[places])


def _sums_within(curves: Sequence[PhaseCurve], most: int, has_error: bool) -> _Sums | None:
    """Return the non-dominated sums of sizes of at most so many GPUs; None if a phase has none."""
    width = 4 if has_error else 2
    sums = _Sums(np.zeros((1, width)), np.zeros((1, 0), np.int64))
    for curve in curves:
        usable = [at for at, size in enumerate(curve.sizes) if size.gpus <= most]
        if not usable:
            return None
        sums = _add_phase(sums, curve, usable, has_error)
    return sums


def chains_on_system(
    curves: Sequence[PhaseCurve],
    terms: ChainTerms,
    goal: ChainGoal,
    *,
    most: int,
    service: ServiceShare | None = None,
) -> ChainsOnSystem:
    """Return the chains on one system, with proof over the sizes of the curves.

    Without a deadline the shortest chain within the budget is best, else the cheapest that holds all limits; GPU-hours
    take the place of cost where there is no price.

    Args:
        curves: of all phases in their order.
        terms: price of the GPUs.
        goal: the limits.
        most: GPUs available, including GPUs of services.
        service: GPUs of services; none where None.

    Raises `DerivedError` where there are too many sums to compare.
    """
    return _chains(curves, terms, goal, most, service or ServiceShare(), {})


def _chains(
    curves: Sequence[PhaseCurve],
    terms: ChainTerms,
    goal: ChainGoal,
    most: int,
    service: ServiceShare,
    known: dict[int | None, list[tuple[int, _Sums]]],
) -> ChainsOnSystem:
    """Return the chains on one system; `known` has sums of the same curves and GPUs by the GPUs that are given."""
    room = most - service.beside
    terms = replace(terms, is_held=terms.is_held or goal.num_procs is not None)
    nothing = ChainsOnSystem(tuple(curves), terms, goal, service, room, (), None, "", None, None)
    if goal.num_procs is not None and goal.num_procs > room:
        besides = f" besides the {service.beside:,} that serve" if service.beside else ""
        return replace(
            nothing, obstacle=f"{goal.num_procs:,} GPUs are more than the {max(room, 0):,} available{besides}."
        )
    for curve in curves:
        if curve.obstacle:
            return replace(nothing, obstacle=curve.obstacle)
    if goal.budget_usd is not None and terms.usd_middle is None:
        return replace(nothing, obstacle="No price is recorded, so no budget can be held; give `usd_low`.")
    return _Solver(curves, terms, goal, room, service).solve(nothing, known)


class _Solver:
    """Search of the chains on one system."""

    def __init__(
        self, curves: Sequence[PhaseCurve], terms: ChainTerms, goal: ChainGoal, most: int, service: ServiceShare
    ) -> None:
        self.curves, self.terms, self.goal, self.most, self.service = curves, terms, goal, most, service
        # Limits at the value need no widths: two criteria then.
        self.has_error = goal.room_for_error

    def solve(self, nothing: ChainsOnSystem, known: dict[int | None, list[tuple[int, _Sums]]]) -> ChainsOnSystem:
        """Return the front and the best chain, or the obstacle."""
        if self.goal.num_procs not in known:
            known[self.goal.num_procs] = list(self._parts())
        parts = known[self.goal.num_procs]
        if not parts:
            least = max(curve.sizes[0].gpus for curve in self.curves)
            said = self.goal.num_procs or self.most
            return replace(nothing, obstacle=f"A phase needs {least:,} GPUs; there are {said:,} for it.")
        criteria = np.concatenate([sums.criteria for _, sums in parts])
        picks = np.concatenate([sums.picks for _, sums in parts])
        held = np.concatenate([np.full(len(sums.picks), gpus) for gpus, sums in parts])
        days, hours = criteria[:, 0], criteria[:, 1]
        cost = self._cost(self.terms.usd_middle, days, hours, held)
        upper_days, upper_cost = days, cost
        if self.has_error:
            upper_days = days + np.sqrt(criteria[:, 2])
            upper_cost = self._cost(self.terms.usd_high, upper_days, hours + np.sqrt(criteria[:, 3]), held)
        in_time = _within(upper_days, self.goal.deadline_days)
        in_budget = _within(upper_cost, self.goal.budget_usd)
        kept = _non_dominated(np.column_stack([days, cost]))
        front = tuple(self._chain(picks[at], int(held[at])) for at in kept)
        if self.goal.num_procs is not None:  # other sizes are on the front only
            own = held == self.goal.num_procs
            if not own.any():
                return replace(nothing, front=front, obstacle=f"A phase does not fit {self.goal.num_procs:,} GPUs.")
            picks, held, days, cost = picks[own], held[own], days[own], cost[own]
            upper_days, upper_cost, in_time, in_budget = upper_days[own], upper_cost[own], in_time[own], in_budget[own]
        able = np.flatnonzero(in_time & in_budget)
        if len(able):
            keys = (days, cost) if self.goal.is_shortest else (cost, days)
            best = able[np.lexsort((held[able], keys[1][able], keys[0][able]))[0]]
            return replace(nothing, front=front, chosen=self._chain(picks[best], int(held[best])))
        return replace(
            nothing,
            front=front,
            obstacle=self._describe_obstacle(upper_days, upper_cost, in_time, in_budget),
            days_needed=_least(upper_days[in_budget]),
            usd_needed=None if self.goal.budget_usd is None else _least(upper_cost[in_time]),
        )

    def _parts(self) -> Iterable[tuple[int, _Sums]]:
        """Yield GPUs that are held, and the sums of phases on at most as many; 0 where every phase has its own."""
        if not self.terms.is_held:
            sums = _sums_within(self.curves, self.most, self.has_error)
            if sums is not None:
                yield 0, sums
            return
        sizes = {size.gpus for curve in self.curves for size in curve.sizes if size.gpus <= self.most}
        for gpus in sorted({*sizes, *([self.goal.num_procs] if self.goal.num_procs is not None else [])}):
            sums = _sums_within(self.curves, gpus, self.has_error)
            if sums is not None:
                yield gpus, sums

    def _cost(self, price: float | None, days: Any, hours: Any, held: Any) -> Any:
        """Return the cost [USD], or GPU-hours without a price."""
        return self.terms.cost(1.0 if price is None else price, days, hours, held, self.service)

    def _chain(self, picks: Sequence[int], held: int) -> Chain:
        sizes = tuple(curve.sizes[at] for curve, at in zip(self.curves, picks, strict=True))
        days = sum(each.days.value for each in sizes)
        hours = sum(each.gpu_hours for each in sizes)
        is_known = all(each.days.low is not None for each in sizes)
        squares = [(each.lower_square, each.upper_square, (each.gpus * HOURS) ** 2) for each in sizes]
        less_days, more_days = (math.sqrt(sum(each[end] for each in squares)) for end in (0, 1))
        less_hours, more_hours = (math.sqrt(sum(each[end] * each[2] for each in squares)) for end in (0, 1))
        ends = (max(days - less_days, 0.0), days + more_days)
        hour_ends = (max(hours - less_hours, 0.0), hours + more_hours)
        usd = None
        if self.terms.usd_low is not None and self.terms.usd_high is not None:
            low, high = (ends[0], hour_ends[0]), (ends[1], hour_ends[1])
            if not is_known:
                low = high = (days, hours)
            usd = RunFigure(
                float(self._cost(self.terms.usd_middle, days, hours, held)),
                float(self._cost(self.terms.usd_low, *low, held)),
                float(self._cost(self.terms.usd_high, *high, held)),
            )
        found = Chain(
            sizes,
            held or max(each.gpus for each in sizes),
            RunFigure(days, *(ends if is_known else (None, None))),
            usd,
            RunFigure(hours, *(hour_ends if is_known else (None, None))),
            None if any(each.mwh is None for each in sizes) else sum(each.mwh or 0.0 for each in sizes),
            sum(each.failures for each in sizes),
            (),
        )
        return replace(found, misses=self._misses(found, days + more_days, hours + more_hours))

    def _misses(self, chain: Chain, upper_days: float, upper_hours: float) -> tuple[str, ...]:
        days, usd = chain.days.value, None if chain.usd is None else chain.usd.value
        if self.has_error:
            days, usd = upper_days, self._cost(self.terms.usd_high, upper_days, upper_hours, chain.held)
        limits = (("days", days, self.goal.deadline_days), ("usd", usd, self.goal.budget_usd))
        return tuple(
            name
            for name, value, most in limits
            if value is not None and most is not None and value > most * (1 + DETERMINED)
        )

    def _describe_obstacle(
        self,
        days: Floats,
        cost: Floats,
        in_time: np.ndarray[Any, Any],
        in_budget: np.ndarray[Any, Any],
    ) -> str:
        gpus = self.goal.num_procs or self.most
        if not in_time.any():
            return f"The least times of the phases add up to {days.min():,.4g} days, on up to {gpus:,} GPUs."
        if not in_budget.any():
            return f"The cheapest chain costs {cost.min():,.4g} USD."
        return (
            f"No chain holds both: within the budget the shortest takes {days[in_budget].min():,.4g} days, within the "
            f"deadline the cheapest costs {cost[in_time].min():,.4g} USD."
        )


def _within(values: Floats, most: float | None) -> np.ndarray[Any, Any]:
    return np.ones(len(values), bool) if most is None else values <= most * (1 + DETERMINED)


def _least(values: Floats) -> float | None:
    return float(values.min()) if len(values) else None


def explain_chains(
    found: ChainsOnSystem,
    grow: Callable[[], tuple[Sequence[PhaseCurve], int]] | None = None,
) -> list[ChainChange]:
    """Return what a later deadline, a higher budget and one node more bring, each alone and together.

    Sets are listed only where they bring more than their parts: none of these is to blame by itself then.

    Args:
        found: chains on a system.
        grow: returns curves with sizes of one node more, and the GPUs then available; None to leave this out.
    """
    goal, most = found.goal, found.most + found.service.beside
    moves: dict[str, ChainGoal] = {}
    if goal.deadline_days is not None:
        moves["One day more"] = replace(goal, deadline_days=goal.deadline_days + MORE_DAYS)
    if goal.budget_usd is not None:
        moves["10 % more budget"] = replace(goal, budget_usd=goal.budget_usd * (1.0 + MORE_USD))
    node = "One node more"
    names = [*moves, *([node] if grow is not None else [])]
    wider = None if grow is None else grow()
    gains: dict[tuple[str, ...], ChainChange] = {}
    own_sums: dict[int | None, list[tuple[int, _Sums]]] = {}
    wider_sums: dict[int | None, list[tuple[int, _Sums]]] = {}
    for chosen in (each for count in range(1, len(names) + 1) for each in combinations(names, count)):
        moved = goal
        for name in chosen:
            if name in moves:
                moved = replace(
                    moved,
                    **{
                        field: getattr(moves[name], field)
                        for field in ("deadline_days", "budget_usd")
                        if getattr(moves[name], field) != getattr(goal, field)
                    },
                )
        is_wider = wider is not None and node in chosen
        curves, gpus = wider if wider is not None and is_wider else (found.curves, most)
        sums = wider_sums if is_wider else own_sums
        if node in chosen and goal.num_procs is not None:
            moved = replace(moved, num_procs=goal.num_procs + gpus - most)
        after = _chains(curves, found.terms, moved, gpus, found.service, sums)
        change = _change(
            " and ".join([chosen[0], *(f"{each[0].lower()}{each[1:]}" for each in chosen[1:])]), found, after
        )
        parts = [
            gains[each] for count in range(1, len(chosen)) for each in combinations(chosen, count) if each in gains
        ]
        if len(chosen) == 1 or _brings_more(change, parts):
            gains[chosen] = change
    return list(gains.values())


def _change(words: str, before: ChainsOnSystem, after: ChainsOnSystem) -> ChainChange:
    chain = after.chosen
    if chain is None:
        return ChainChange(words, None, None, None, False)
    usd = None if chain.usd is None else chain.usd.value
    gain = None
    if before.chosen is not None:
        gain = _objective(before, before.chosen) - _objective(before, chain)
        # Another chain that is as good is no gain.
        gain = 0.0 if abs(gain) <= DETERMINED * _objective(before, chain) else gain
    return ChainChange(words, chain.days.value, usd, gain, True)


def _objective(found: ChainsOnSystem, chain: Chain) -> float:
    if found.goal.is_shortest:
        return chain.days.value
    return chain.gpu_hours.value if chain.usd is None else chain.usd.value


def _brings_more(change: ChainChange, parts: Sequence[ChainChange]) -> bool:
    """Return whether a set of moves holds limits that no part of it does, or gains more than the largest part."""
    if not any(each.holds for each in parts):
        return change.holds
    return change.gain is not None and change.gain > max(each.gain or 0.0 for each in parts) * (1 + 1e-6) + 1e-9
