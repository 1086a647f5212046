"""Studies of changes: the whole space optimised again at every change of hardware, model or size of the machine.

    >>> from engine import Scenario, whatif
    >>> scenario = Scenario.of("gpt3-13B", "h100_80g_nvl8", num_procs=32, max_batch_size=32, datatype="float8")
    >>> round(whatif.reoptimise(scenario, {"hbm_bandwidth": 6144}).gain, 3)
    0.219

Every optimum is proven, and equal to what a full exploration of the changed scenario finds. Each comes with
the execution that was best before, unchanged: the difference is the gain from optimising again.

`sensitivity`, `sweep`, `sweep_two` and `sizes` are iterators with a length. They give points in order of usefulness, a
coarse picture first; stop iterating at any time.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, product
from typing import Any, Final, Generic, Literal, TypeVar

import numpy as np
import pandas as pd

from engine.columns import fields_of
from engine.executions.arrays import Ints
from engine.exploration.proven_optimum import Optimum, best_of
from engine.exploration.result import first_row
from engine.scenarios.scenario import Scenario
from engine.space.space import SpaceError, checked_size
from engine.whatif.parameters import ChangeError, Parameter, changed, parameter, parameters
from engine.whatif.search import INF, Choice, Point, first_enumerated, searchable, searcher_of, transfer_execution

__all__ = [
    "Answer",
    "PointSequence",
    "applicable",
    "coarse_first",
    "reoptimise",
    "sensitivity",
    "size_range",
    "sizes",
    "sizes_between",
    "sweep",
    "sweep_two",
    "values_around",
]

Result = TypeVar("Result")
NAN: Final = float("nan")
MOST_SIZES: Final = 1_024
"""Numbers of processors of one sweep; a space of some millions of executions takes about 0.1 s for each."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Effect of a change. Executions are rows of `engine.evaluate`, with `id` in the scenario's space.

    `base`: the best before, None when nothing ran. `best`: the best after, None when nothing runs any more. `kept`:
    the execution `base` after the change, with the reason if it does not run; None without a base. `feasible` of
    `total` executions run. `seconds`: duration of the search. `tied`: ids of all executions as fast as `best`.
    """

    scenario: Scenario
    changes: Mapping[str, float]
    base: dict[str, Any] | None
    best: dict[str, Any] | None
    kept: dict[str, Any] | None
    total: int
    feasible: int
    base_feasible: int
    evaluated: int
    seconds: float
    tied: Ints = field(default_factory=lambda: np.zeros(0, np.int64), compare=False)

    @property
    def gain(self) -> float:
        """Relative gain in throughput of the new best over the old one [fraction]; NaN if either is missing."""
        return _relative_gain(self.best, self.base)

    @property
    def kept_gain(self) -> float:
        """The same for the old best, unchanged; NaN if it no longer runs."""
        return _relative_gain(self.kept, self.base)


@dataclass(frozen=True, slots=True)
class PointSequence(Generic[Result]):
    """Results in order, computed one by one on demand, and their number.

    `after` returns an iterator that skips the first results without computing them.
    """

    total: int
    after: Callable[[int], Iterator[Result]] = field(repr=False)

    def __iter__(self) -> Iterator[Result]:
        return self.after(0)

    def __len__(self) -> int:
        return self.total


def reoptimise(scenario: Scenario, changes: Mapping[str, float], choose: Choice = first_enumerated) -> Answer:
    """Returns the best execution after a change, the gain, and how the best before fares if it is kept.

    Raises `ChangeError`, `hardware.SystemFileError`, `models.ModelFileError` or `engine.SpaceError` for a change that
    gives no scenario.

    Args:
        scenario: the scenario before any change.
        changes: values by name of `parameters`.
        choose: which of several executions that tie stands for the best, before and after.
    """
    start = time.perf_counter()
    searcher = searcher_of(scenario, choose)
    after = changed(scenario, changes)
    found = searcher.at(after)
    base = searcher.base
    chosen, execution = searcher.chosen(after, found.tied), found.execution
    if chosen is not None and chosen != found.id:
        execution = searcher.execution(after, chosen)
    rows = [] if execution is None else [dict(execution)]
    rows += [] if base is None else [transfer_execution(base, after)]
    best = kept = None
    if rows:
        table = after.evaluate(pd.DataFrame(rows))
        if execution is not None:
            best = {"id": chosen} | first_row(table.iloc[:1])
        if base is not None:
            kept = first_row(table.iloc[-1:])
    return Answer(
        scenario=after,
        changes=dict(changes),
        base=base,
        best=best,
        kept=kept,
        total=found.total,
        feasible=found.feasible,
        base_feasible=searcher.base_feasible,
        evaluated=found.evaluated,
        seconds=time.perf_counter() - start,
        tied=found.tied,
    )


def sensitivity(
    scenario: Scenario,
    factors: Sequence[float] = (0.9, 1.1),
    names: Sequence[str] | None = None,
    choose: Choice = first_enumerated,
    largest: float = INF,
) -> PointSequence[tuple[Parameter, float, Point]]:
    """Yields one parameter at a time by each factor, re-optimised: (parameter, factor, point).

    Whole numbers of the hardware, such as the number of GPUs that NVLink links, are halved and doubled instead of
    changed by another factor.

    Args:
        scenario: the scenario before any change.
        factors: by which values are multiplied [dimensionless].
        names: which parameters; None for all of system and model that the factors make sense for (see
            `applicable`), but not what moves with another one of them.
        choose: which of several executions that tie is the best of the base and kept.
        largest: executions of a space above which a point is not searched and has this as its `problem` [count].
    """
    chosen = [parameter(scenario, name) for name in names] if names is not None else list(parameters(scenario))
    pairs = list(
        dict.fromkeys((which, used) for which in chosen for factor in factors for used in _factors_of(which, factor))
    )
    if names is None:
        pairs = [pair for pair in pairs if pair[0].about != "run" and not pair[0].part_of]

    def after(done: int) -> Iterator[tuple[Parameter, float, Point]]:
        searcher = searcher_of(scenario, choose)
        for which, factor in pairs[done:]:
            yield which, factor, searcher.point(scenario, {which.name: which.value * factor}, largest=largest)

    return PointSequence(len(pairs), after)


def _factors_of(which: Parameter, factor: float) -> tuple[float, ...]:
    """Return the factor by which a parameter changes in place of one; none if it makes no sense for it."""
    used = factor
    if which.discrete and which.about == "system" and factor != 1:
        used = 2.0 if factor > 1 else 0.5
    return (used,) if applicable(which, used) else ()


def applicable(which: Parameter, factor: float) -> bool:
    """Return whether a parameter can change by a factor: not if it is 0, and discrete ones only by a power of two that
    keeps them whole.

    Args:
        which: the parameter.
        factor: by which its value would be multiplied [dimensionless].
    """
    if which.value == 0 or factor == 1:
        return False
    if not which.discrete:
        return True
    return math.log2(factor).is_integer() and which.value * factor == int(which.value * factor)


def sweep(
    scenario: Scenario,
    name: str,
    values: Sequence[float],
    changes: Mapping[str, float] | None = None,
    choose: Choice = first_enumerated,
    largest: float = INF,
) -> PointSequence[Point]:
    """Yield the optimum along one parameter, and the base's best execution unchanged; ends and base first.

    The unchanged execution is the best of the scenario without `changes`; `choose` picks one of several that tie.

    Args:
        scenario: the scenario before any change.
        name: name of the parameter.
        values: its values, in its unit.
        changes: other parameters, changed at all points.
        choose: picks one of several executions that tie.
        largest: executions of a space above which a point is not searched and has this as its `problem` [count].
    """
    others = {key: value for key, value in (changes or {}).items() if key != name}

    def after(done: int) -> Iterator[Point]:
        searcher = searcher_of(scenario, choose)
        for index in coarse_first(len(values))[done:]:
            yield searcher.point(scenario, {**others, name: values[index]}, {name: values[index]}, largest)

    return PointSequence(len(values), after)


def sweep_two(
    scenario: Scenario,
    x: str,
    xs: Sequence[float],
    y: str,
    ys: Sequence[float],
    changes: Mapping[str, float] | None = None,
    choose: Choice = first_enumerated,
    largest: float = INF,
) -> PointSequence[Point]:
    """Yields the optimum over two parameters, in whole lines of the one that is cheaper to change, spread coarsely at
    first.

    Raises `ChangeError` for a parameter against itself.

    Args:
        scenario: the scenario before any change.
        x: name of one parameter.
        xs: values of it, in its unit.
        y: name of the other.
        ys: values of it, in its unit.
        changes: other parameters that are changed throughout.
        choose: which of several executions that tie stands for the best.
        largest: executions of a space above which a point is not searched and has this as its `problem` [count].
    """
    first, second = parameter(scenario, x), parameter(scenario, y)
    if x == y:
        raise ChangeError(f"{first.label} cannot be swept against itself; choose another parameter.")
    others = {key: value for key, value in (changes or {}).items() if key not in (x, y)}
    # What is expensive to change (the layout, then the masks) changes less often.
    outer, outers, inner, inners = (
        (x, xs, y, ys) if _preparation_cost(first) >= _preparation_cost(second) else (y, ys, x, xs)
    )

    def after(done: int) -> Iterator[Point]:
        searcher = searcher_of(scenario, choose)
        for a, b in islice(product(coarse_first(len(outers)), coarse_first(len(inners))), done, None):
            both = {outer: outers[a], inner: inners[b]}
            yield searcher.point(scenario, {**others, **both}, both, largest)

    return PointSequence(len(xs) * len(ys), after)


def sizes(
    scenario: Scenario,
    counts: Sequence[int],
    batch: Literal["kept", "scaled"] = "kept",
    largest: float = INF,
    show: Callable[[Optimum], tuple[Mapping[str, Any], str]] | None = None,
) -> PointSequence[Point]:
    """Return the best rate and efficiency for each number of processors.

    Args:
        scenario: the scenario before any change.
        counts: numbers of processors.
        batch: whether the largest batch is constant or grows with the machine.
        largest: executions of a space above which a point is not searched and has this as its `problem` [count].
        show: returns the execution whose figures a point has instead of the best, and the point's remark.
    """

    def at(count: int) -> Point:
        values: dict[str, float] = {"procs": count}
        if batch == "scaled":
            values["batch"] = max(1, round(scenario.max_batch_size * count / scenario.num_procs))
        try:
            found = best_of(searchable(changed(scenario, values), largest))
        except (ChangeError, SpaceError) as problem:
            return Point({"procs": count}, NAN, problem=str(problem))
        if not found:
            why = "Nothing fits." if found.total else "There is no way to divide the model."
            return Point({"procs": count}, NAN, problem=why)
        shown, remark = (found, "") if show is None else show(found)
        return Point(
            {"procs": count},
            float(shown["sample_rate"]),
            execution={column.name: shown[column.name] for column in fields_of(scenario.cost_model)},
            feasible=found.feasible,
            efficiency=float(shown["total_efficiency"]),
            remark=remark,
        )

    order = coarse_first(len(counts))
    return PointSequence(len(counts), lambda done: (at(counts[index]) for index in order[done:]))


def values_around(which: Parameter, count: int = 21, reach: float = 4.0) -> list[float]:
    """Returns the values from `value / reach` to `value * reach`, in equal ratios and with the value itself among them.

    Args:
        which: the parameter.
        count: how many values [count].
        reach: how far from its value they go [dimensionless].
    """
    if which.value == 0:
        return [0.0]
    if which.discrete:
        # As many halvings as leave it whole.
        most = round(math.log2(reach))
        down = next((n for n in range(most, 0, -1) if which.value % 2**n == 0), 0)
        return [which.value * 2.0**n for n in range(-down, most + 1)]
    side = max(1, (count - 1) // 2)
    return [which.value * float(f"{reach ** (n / side):.4g}") if n else which.value for n in range(-side, side + 1)]


def size_range(scenario: Scenario, low: int, high: int, most: int = 16) -> list[int]:
    """Returns the processor counts between two bounds that a machine is likely to have: powers of two and three halves
    of them.

    Args:
        scenario: the scenario before any change.
        low: fewest processors [count].
        high: most processors [count].
        most: how many numbers at most [count].
    """
    powers = [2**n for n in range(41)]
    halves = [3 * 2**n for n in range(39)]
    inside = sorted({n for n in (*powers, *halves) if low <= n <= high} | {scenario.num_procs})
    if len(inside) > most:
        inside = sorted({n for n in powers if low <= n <= high} | {scenario.num_procs})
    return inside[-most:]


def sizes_between(low: int, high: int, step: int = 1) -> list[int]:
    """Returns every `step`-th number of processors from `low` to `high`, both included where the steps meet them.

    Raises `engine.SpaceError` for bounds that are no numbers of processors, `ChangeError` for a range that holds none
    or more than `MOST_SIZES`.

    Args:
        low: fewest processors [count].
        high: most processors [count].
        step: between two numbers [count].
    """
    low, high, step = checked_size("num_procs", low), checked_size("num_procs", high), checked_size("step", step)
    if high < low:
        raise ChangeError(f"From {low:,} to {high:,} there is no size; the second must not be the smaller one.")
    found = range(low, high + 1, step)
    if len(found) > MOST_SIZES:
        enough = step * math.ceil(len(found) / MOST_SIZES)
        raise ChangeError(
            f"From {low:,} to {high:,} in steps of {step:,} there are {len(found):,} sizes, and {MOST_SIZES:,} at most "
            f"can be swept: steps of {enough:,} are few enough."
        )
    return list(found)


def coarse_first(count: int) -> list[int]:
    """Returns 0 to count - 1: both ends and the middle first, then the middles of the gaps, and so on.

    Args:
        count: how many positions [count].
    """
    order = dict.fromkeys(index for index in (0, count - 1, count // 2) if 0 <= index < count)
    step = count
    while len(order) < count:
        step = max(1, step // 2)
        order |= dict.fromkeys(range(step // 2, count, step))
        if step == 1:
            order |= dict.fromkeys(range(count))
    return list(order)


def _relative_gain(after: Mapping[str, Any] | None, before: Mapping[str, Any] | None) -> float:
    if after is None or before is None:
        return NAN
    return float(after["sample_rate"]) / float(before["sample_rate"]) - 1.0


def _preparation_cost(which: Parameter) -> int:
    """Return a rank of the work to prepare the space again after a change of this parameter."""
    return 2 if which.layout else 1 if which.mask else 0
