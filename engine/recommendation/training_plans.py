"""Plans of training runs: the GPUs and the system that hold a deadline or a budget, with time, cost and energy.

Every size is one recommended (or fastest) execution and one training run of `engine.economics`, so a plan's figures
equal those of the execution. Sizes are whole nodes: powers of two and three times powers of two, and closer ones
around the chosen size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from engine.economics import DerivedError, RunInputs, TrainingRun, parameter_count, token_flops, training_run
from engine.exploration.run import ExplorationCancelled
from engine.scenarios.scenario import Scenario
from engine.space.space import SpaceError
from engine.validation.uncertainty import Interval, interval_of
from hardware import GIB, System

__all__ = [
    "PricedSystem",
    "RunFigure",
    "RunGoal",
    "RunPlan",
    "SizedRun",
    "SystemRuns",
    "coarse_sizes",
    "find_knee",
    "plan_run",
]

HOUR: Final = 3_600.0
DAY: Final = 86_400.0
HOURS_OF_YEAR: Final = 8_760.0
KWH_PER_MWH: Final = 1_000.0
MOST_TOKENS: Final = 1e18
FURTHER: Final = 4
"""Coarse sizes tried above the first that holds the deadline: two octaves of the curve."""
DEARER: Final = 3
"""Sizes above the budget in a row after which larger ones are not tried."""
CLOSER: Final = 8
"""Parts of an octave that sizes around the chosen one are apart."""
THRIFTY: Final = 3
"""Sizes with fewer GPU-hours that are listed."""

Terms = Literal["rent", "reserve", "buy"]
Search = Callable[[Scenario], Mapping[str, Any] | None]
"""Returns the execution to run: fields, `sample_rate`; None if none is allowed."""


@dataclass(frozen=True, slots=True)
class PricedSystem:
    """System that can be had, and its price."""

    system: System
    terms: Terms = "rent"
    usd_low: float | None = None
    """Lowest price: USD per GPU-hour, for `buy` USD per GPU; None for the library's hourly price."""
    usd_high: float | None = None
    reserved_days: float = 0.0
    """Time that is paid at least, for `reserve` [days]."""
    lifetime_years: float = 5.0
    """Time over which a bought GPU is written off [years]."""
    usd_per_kwh: float = 0.0
    """Price of electricity where it is paid beside the GPUs [USD/kWh]."""
    most_procs: int = 16_384
    """GPUs available."""

    def hourly(self) -> dict[str, float | None]:
        """Return `usd_low` and `usd_high` per GPU-hour, as a training run takes them."""
        prices = {"usd_low": self.usd_low, "usd_high": self.usd_high}
        facts = self.system.accelerator
        if self.terms != "buy" and (facts is None or facts.usd_per_h is None):
            low, high = self.usd_low, self.usd_high  # one price is enough
            prices = {"usd_low": high if low is None else low, "usd_high": low if high is None else high}
        if self.terms != "buy":
            return prices
        low, high = self.usd_low, self.usd_high
        if low is None and high is None:
            raise DerivedError(f"{self.system.name} is bought, but has no price; give usd_low in USD per GPU.")
        hours = self.lifetime_years * HOURS_OF_YEAR
        return {
            "usd_low": (high if low is None else low) / hours,  # type: ignore[operator]
            "usd_high": (low if high is None else high) / hours,  # type: ignore[operator]
        }

    def paid_share(self, wall_s: float) -> float:
        """Return the time that is paid over the run's wall-clock time."""
        return max(1.0, self.reserved_days * DAY / wall_s) if self.terms == "reserve" else 1.0


@dataclass(frozen=True, slots=True)
class RunGoal:
    """Goal of a plan: two or more of tokens, days, USD and GPUs."""

    tokens: float | None = None
    days: float | None = None
    usd: float | None = None
    num_procs: int | None = None
    room_for_error: bool = False
    """True if limits have to hold at the upper end of each interval."""


@dataclass(frozen=True, slots=True)
class RunFigure:
    """Figure with its interval; `low` and `high` stay empty if the error is unknown."""

    value: float
    low: float | None = None
    high: float | None = None

    def upper(self, room: bool) -> float:
        """Return the value that a limit is held against."""
        return self.value if not room or self.high is None else self.high


@dataclass(frozen=True, slots=True)
class SizedRun:
    """Training run on so many GPUs of a system."""

    scenario: Scenario
    execution: Mapping[str, Any]
    interval: Interval | None
    """Factors on the step time; None if the error is unknown."""
    run: TrainingRun
    figures: Mapping[str, RunFigure]
    """days, usd (absent without a price), mwh (absent without a power), gpu_hours, failures, goodput."""
    outlay_usd: tuple[float, float] | None
    """Price of all GPUs, if they are bought [USD]."""
    misses: tuple[str, ...]
    """Limits that do not hold: "days", "usd"."""

    @property
    def num_procs(self) -> int:
        """GPUs of the run."""
        return self.run.num_procs

    @property
    def not_measured(self) -> list[str]:
        """Properties of the execution that no measured run has."""
        return list(self.scenario.not_measured(self.execution))

    @property
    def hours_per_token(self) -> float:
        """GPU-hours of a token: the waste of a size."""
        return self.run.proc_hours / self.run.inputs.tokens


@dataclass(frozen=True, slots=True)
class SystemRuns:
    """Runs on one system at all sizes that were tried, by number of GPUs."""

    offer: PricedSystem
    runs: tuple[SizedRun, ...]
    refused: Mapping[int, str]
    """Reasons of sizes at which nothing runs."""
    chosen: SizedRun | None
    knee: SizedRun | None
    """Size from which on days get dearer fastest; None with fewer than three sizes on the front."""
    thrifty: tuple[SizedRun, ...]
    """Sizes between half and twice the chosen with fewer GPU-hours, fewest first."""
    obstacle: str
    """Reason for a missing choice, with the nearest run; empty with a choice."""


@dataclass(frozen=True, slots=True)
class RunPlan:
    """Plan of a training run: the best system, and all of them."""

    goal: RunGoal
    systems: tuple[SystemRuns, ...]
    chosen: SystemRuns | None

    @property
    def run(self) -> SizedRun | None:
        """The planned run; None if nothing reaches the goal."""
        return None if self.chosen is None else self.chosen.chosen


def plan_run(
    scenario_at: Callable[[System, int], Scenario],
    offers: Sequence[PricedSystem],
    goal: RunGoal,
    search: Search,
    *,
    assumptions: Mapping[str, float | None],
    offload: bool = False,
    progress: Callable[[float, str], None] = lambda share, doing: None,
    cancel: Callable[[], bool] = lambda: False,
) -> RunPlan:
    """Return the plan of a training run.

    With tokens and a deadline the fewest GPUs of each system, and the cheapest system; with tokens and a budget the
    shortest run; without tokens the longest training that days, USD and GPUs allow.

    Args:
        scenario_at: returns the scenario on so many GPUs of a system.
        offers: systems that can be had.
        goal: two or more of tokens, days, USD and GPUs.
        search: returns the execution to run of a scenario.
        assumptions: inputs of a training run by name, see `engine.economics.INPUTS`; None for the default.
        offload: True if executions may keep data in host memory, so that small sizes may run too.
        progress: called with the share that is done and the current step.
        cancel: returns whether to stop.

    Raises `DerivedError` for a goal with fewer than two parts and for a price that cannot be, and
    `engine.ExplorationCancelled`.
    """
    parts = {"tokens": goal.tokens, "days": goal.days, "usd": goal.usd, "num_procs": goal.num_procs}
    given = [name for name, value in parts.items() if value is not None]
    if len(given) < 2:
        said = f"only {given[0]}" if given else "nothing"
        raise DerivedError(f"A plan needs two of tokens, days, usd and num_procs; it has {said}.")
    found = []
    for number, offer in enumerate(offers):

        def tell(share: float, doing: str, before: int = number) -> None:
            progress((before + share) / len(offers), doing)

        planner = _SystemPlanner(scenario_at, offer, goal, search, assumptions, offload, tell, cancel)
        found.append(planner.plan())
    able = [each for each in found if each.chosen is not None]
    return RunPlan(goal, tuple(found), min(able, key=lambda each: _rank(goal, each), default=None))


def _rank(goal: RunGoal, runs: SystemRuns) -> tuple[float, ...]:
    """Return the sort key of a system: most tokens, shortest under a budget, else cheapest, priced ones first."""
    run = runs.chosen
    assert run is not None
    if goal.tokens is None:
        return (-run.run.inputs.tokens,)
    days, usd = run.figures["days"].value, run.figures.get("usd")
    if goal.days is None and goal.num_procs is None:
        return (days,)
    return (math.inf, days * run.num_procs) if usd is None else (usd.value, days)


class _SystemPlanner:
    """Runs of one system at several sizes."""

    def __init__(
        self,
        scenario_at: Callable[[System, int], Scenario],
        offer: PricedSystem,
        goal: RunGoal,
        search: Search,
        assumptions: Mapping[str, float | None],
        offload: bool,
        progress: Callable[[float, str], None],
        cancel: Callable[[], bool],
    ) -> None:
        self.scenario_at, self.offer, self.goal, self.search = scenario_at, offer, goal, search
        self.progress, self.cancel, self.offload = progress, cancel, offload
        self.inputs = RunInputs.of(offer.system, **offer.hourly(), **assumptions, tokens=goal.tokens)
        self.runs: dict[int, SizedRun] = {}
        self.refused: dict[int, str] = {}

    def plan(self) -> SystemRuns:
        """Return the runs and the choice, or the reason for a missing one."""
        goal, offer = self.goal, self.offer
        if offer.usd_per_kwh > 0.0 and self.inputs.power_w is None:
            obstacle = "No power is recorded, so electricity has no cost; leave usd_per_kwh out."
            return SystemRuns(offer, (), {}, None, None, (), obstacle)
        if goal.num_procs is not None and goal.num_procs > offer.most_procs:
            obstacle = f"{goal.num_procs:,} GPUs are more than the {offer.most_procs:,} available."
            return SystemRuns(offer, (), {}, None, None, (), obstacle)
        if goal.usd is not None and self.inputs.usd_middle is None:
            obstacle = "No price is recorded, so no budget can be held; give one."
            return SystemRuns(offer, (), {}, None, None, (), obstacle)
        largest = offer.most_procs // offer.system.node_size * offer.system.node_size or offer.most_procs
        least, most = self._ends()
        sizes = coarse_sizes(offer.system.node_size, min(least, largest), most) or [largest]
        if goal.num_procs is not None:
            sizes = sorted({*sizes, goal.num_procs})
        self._try_sizes(sizes)
        chosen = self._choose()
        if chosen is not None and goal.num_procs is None:
            self._try_sizes(closer_sizes(offer.system.node_size, chosen.num_procs, sizes, offer.most_procs))
            chosen = self._choose()
        runs = tuple(self.runs[size] for size in sorted(self.runs))
        thrifty = []
        if chosen is not None:
            near = [each for each in runs if chosen.num_procs / 2 <= each.num_procs <= 2 * chosen.num_procs]
            saving = [each for each in near if each.hours_per_token < chosen.hours_per_token * (1 - 1e-9)]
            thrifty = sorted(saving, key=lambda each: each.hours_per_token)[:THRIFTY]
        return SystemRuns(
            offer,
            runs,
            self.refused,
            chosen,
            find_knee(runs) if goal.tokens is not None else None,
            tuple(thrifty),
            "" if chosen is not None else self._describe_obstacle(),
        )

    def _ends(self) -> tuple[float, float]:
        """Return the smallest and the largest size to try."""
        goal, most = self.goal, float(self.offer.most_procs)
        if goal.num_procs is not None:
            return goal.num_procs / 4, min(4.0 * goal.num_procs, most)
        scenario = self.scenario_at(self.offer.system, self.offer.system.node_size)
        least = 1.0
        if not self.offload:  # 16-bit weights alone
            least = 2.0 * parameter_count(scenario.model) / (self.offer.system.mem1.capacity_gib * GIB)
        if goal.tokens is not None and goal.days is not None:
            peak = scenario.system.peak_tflops(scenario.datatype) * 1e12
            work = token_flops(scenario.model).model("causal") * goal.tokens
            # Half the GPUs that would be needed at the peak rate: the curve begins with sizes that are too slow.
            least = max(least, 0.5 * work / (peak * goal.days * DAY))
        return least, most

    def _try_sizes(self, sizes: Sequence[int]) -> None:
        holding = dearer = 0
        for place, size in enumerate(sizes):
            if self.cancel():
                raise ExplorationCancelled("The plan was cancelled.")
            self.progress(place / len(sizes), f"{self.offer.system.name}, {size:,} GPUs")
            if size in self.runs or size in self.refused:
                continue
            self._try_size(size)
            found = self.runs.get(size)
            if found is None or self.goal.num_procs is not None or self.goal.tokens is None:
                continue
            holding += "days" not in found.misses
            dearer = dearer + 1 if "usd" in found.misses else 0
            if (self.goal.days is not None and holding > FURTHER) or dearer >= DEARER:
                return

    def _try_size(self, size: int) -> None:
        """Record the run on so many GPUs, or the reason why nothing runs."""
        try:
            scenario = self.scenario_at(self.offer.system, size)
            execution = self.search(scenario)
            if execution is None:
                self.refused[size] = "No execution fits with the memory that is kept free."
                return
            self.runs[size] = self._size_run(scenario, execution)
        except (DerivedError, SpaceError) as problem:
            self.refused[size] = str(problem)

    def _size_run(self, scenario: Scenario, execution: Mapping[str, Any]) -> SizedRun:
        interval = interval_of(scenario, execution)
        if self.goal.tokens is not None:
            return self._run_tokens(scenario, execution, interval, self.goal.tokens)
        # Without tokens: as many as the limits allow. Time and cost rise with them, so that halving finds the end.
        low, high = 0.0, math.log(MOST_TOKENS)
        for _ in range(60):
            middle = (low + high) / 2.0
            found = self._run_tokens(scenario, execution, interval, math.exp(middle))
            low, high = (low, middle) if found.misses else (middle, high)
        return self._run_tokens(scenario, execution, interval, math.exp(low))

    def _run_tokens(
        self, scenario: Scenario, execution: Mapping[str, Any], interval: Interval | None, tokens: float
    ) -> SizedRun:
        rate = float(execution["sample_rate"]) * scenario.model.tokens_per_sample
        inputs, parameters = replace(self.inputs, tokens=tokens), float(parameter_count(scenario.model))

        def run_at(factor: float) -> TrainingRun:
            return training_run(inputs, tokens_per_s=rate / factor, num_procs=scenario.num_procs, parameters=parameters)

        run = run_at(1.0)
        ends = None if interval is None else (run_at(interval.low), run_at(interval.high))
        figures = {
            name: RunFigure(read(run), *((None, None) if ends is None else sorted(map(read, ends))))
            for name, read in _FIGURES.items()
        }
        if run.energy_kwh is not None:
            figures["mwh"] = RunFigure(
                run.energy_kwh / KWH_PER_MWH,
                *((None, None) if ends is None else ((each.energy_kwh or 0.0) / KWH_PER_MWH for each in ends)),
            )
        if run.usd is not None:
            first, last = (run, run) if ends is None else ends
            low, high = self._cost(first)[0], self._cost(last)[1]
            is_exact = ends is None and low == high
            figures["usd"] = RunFigure(sum(self._cost(run)) / 2.0, *((None, None) if is_exact else (low, high)))
        misses = tuple(
            name
            for name, most in (("days", self.goal.days), ("usd", self.goal.usd))
            if most is not None and figures[name].upper(self.goal.room_for_error) > most
        )
        return SizedRun(scenario, execution, interval, run, figures, self._outlay(scenario.num_procs), misses)

    def _cost(self, run: TrainingRun) -> tuple[float, float]:
        assert run.usd is not None
        share = self.offer.paid_share(run.wall_s)
        power = self.offer.usd_per_kwh * (run.energy_kwh or 0.0)
        return run.usd[0] * share + power, run.usd[1] * share + power

    def _outlay(self, num_procs: int) -> tuple[float, float] | None:
        if self.offer.terms != "buy" or self.inputs.usd_low is None or self.inputs.usd_high is None:
            return None
        hours = self.offer.lifetime_years * HOURS_OF_YEAR * num_procs
        return self.inputs.usd_low * hours, self.inputs.usd_high * hours

    def _choose(self) -> SizedRun | None:
        """Return the run that reaches the goal best."""
        goal = self.goal
        able = [each for each in self.runs.values() if not each.misses]
        if goal.num_procs is not None:
            return next((each for each in able if each.num_procs == goal.num_procs), None)
        if goal.tokens is None:
            return max(able, key=lambda each: (each.run.inputs.tokens, -each.num_procs), default=None)
        if goal.days is None:
            return min(able, key=lambda each: (each.figures["days"].value, each.num_procs), default=None)
        return min(able, key=lambda each: each.num_procs, default=None)

    def _describe_obstacle(self) -> str:
        goal = self.goal
        runs = list(self.runs.values())
        if goal.num_procs is not None:
            if goal.num_procs in self.refused:
                return self.refused[goal.num_procs]
            runs = [each for each in runs if each.num_procs == goal.num_procs]
        if not runs:
            return f"Nothing runs on up to {self.offer.most_procs:,} GPUs; try a larger batch or other limits."
        nearest = min(runs, key=lambda each: each.figures["days"].value)
        if "days" in nearest.misses:
            days = nearest.figures["days"].upper(goal.room_for_error)
            return f"The fastest, on {nearest.num_procs:,} GPUs, takes {days:,.4g} days."
        cheapest = min(runs, key=lambda each: each.figures["usd"].value)
        if "usd" in cheapest.misses:
            usd = cheapest.figures["usd"].upper(goal.room_for_error)
            return f"The cheapest, on {cheapest.num_procs:,} GPUs, costs {usd:,.4g} USD."
        usd = nearest.figures["usd"].upper(goal.room_for_error)
        return f"No size holds both; on {nearest.num_procs:,} GPUs the run costs {usd:,.4g} USD."


_FIGURES: Final[Mapping[str, Callable[[TrainingRun], float]]] = {
    "days": lambda run: run.wall_s / DAY,
    "gpu_hours": lambda run: run.proc_hours,
    "failures": lambda run: run.failures,
    "goodput": lambda run: run.goodput,
}


def coarse_sizes(node: int, least: float, most: float) -> list[int]:
    """Return numbers of GPUs: powers of two inside a node, then nodes times 2^k and 3 · 2^(k-1).

    Args:
        node: GPUs of a node.
        least: smallest size.
        most: largest size.
    """
    inside = [2**k for k in range(node.bit_length()) if 2**k < node]
    nodes = [node * factor * 2**k for k in range(24) for factor in (1, 3)]
    return sorted({size for size in (*inside, *nodes) if least <= size <= most})


def closer_sizes(node: int, size: int, tried: Sequence[int], most: int) -> list[int]:
    """Return whole nodes between the neighbours of a size, an eighth of it apart.

    Args:
        node: GPUs of a node.
        size: chosen number of GPUs.
        tried: sizes that were tried, ascending.
        most: largest size.
    """
    step = max(node, size // CLOSER // node * node)
    smaller = max((each for each in tried if each < size), default=0)
    larger = min((each for each in tried if each > size), default=size + step)
    return [each for each in range(size - (size - smaller) // step * step, larger, step) if smaller < each <= most]


def find_knee(runs: Sequence[SizedRun]) -> SizedRun | None:
    """Return the knee of days against cost: on the Pareto front, farthest below the line between its ends.

    Both axes are logarithmic; without prices the cost is GPU-hours (Satopää et al. 2011, "Finding a kneedle").

    Args:
        runs: of one system.
    """
    points = sorted((each.figures["days"].value, _spent(each), number) for number, each in enumerate(runs))
    front: list[tuple[float, float, int]] = []
    for days, spent, number in points:
        if not front or spent < front[-1][1]:
            front.append((days, spent, number))
    if len(front) < 3:
        return None
    (x0, y0), (x1, y1) = ((math.log(each[0]), math.log(each[1])) for each in (front[0], front[-1]))

    def below(point: tuple[float, float, int]) -> float:
        across = (math.log(point[0]) - x0) / (x1 - x0)
        return 1.0 - across - (math.log(point[1]) - y1) / (y0 - y1)

    best = max(front, key=below)
    return runs[best[2]] if below(best) > 0.0 else None


def _spent(run: SizedRun) -> float:
    cost = run.figures.get("usd") or run.figures["gpu_hours"]
    return cost.value
