"""The recommendation: which execution, on what terms, and why each of the best others is not it."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd

from engine.columns.percentages import format_percent
from engine.economics import cost_of_difference
from engine.executions.codes import OFFLOADS
from engine.executions.execution_names import execution_name
from engine.exploration.result import Exploration
from engine.recommendation.contenders import (
    LAYOUT,
    Contender,
    Explored,
    ProvenBest,
    Searched,
    Sought,
    has_offloading,
)
from engine.recommendation.mechanisms import more_than, number_of_mechanisms
from engine.recommendation.room import Terms, fit_of, terms_of
from engine.scenarios.scenario import Scenario
from engine.store import StoreCondition
from engine.whatif.prepared_spaces import AnyReadySpace
from hardware import GIB

__all__ = ["Recommendation", "explain_against", "recommend"]

WORTH_MEASURING: Final = 0.005
"""Least lead for which measuring two executions is advised; a smaller one is lost in the noise of steps. Source: stated
by us."""
LEVELS: Final = (0.97, 0.9, 0.75, 0.5, 0.0)
"""Shares of the best throughput down to which is looked, one after the other, until there are enough."""
FEW_LEVELS: Final = (1.0, 0.75, 0.5, 0.0)
"""The same as shares of the best throughput under the conditions on memory: mostly the first is enough."""
LOOKED_AT: Final = 4_096
"""Executions at each level of which is asked, from the fastest on, whether they were measured."""
SPREAD: Final = 256
"""Executions all over a space, whose common unmeasured properties belong to model or system."""
KEPT: Final = {"weight_offload": "weights", "activations_offload": "activations", "optimizer_offload": "optimizer"}
_AT_FIRST: Final = 256


@dataclass(frozen=True)
class Recommendation:
    """Recommended execution, with its alternatives.

    `execution` is the recommended one, `fastest` the one of highest throughput, of equal ones the simplest: `id`,
    fields and figures; None without one. `terms`: see `Terms`. `waived`: properties that all executions of the
    scenario share although they were never measured, so that they count against none. `close`: number of allowed
    executions within the error of the best, including the recommended one. `contenders`: the best executions of
    different layouts, best first. `rival`: the fastest of the executions within the error, if it leads by enough to be
    worth a measurement; None otherwise.
    """

    scenario: Scenario
    execution: Mapping[str, Any] | None
    fastest: Mapping[str, Any] | None
    terms: Terms
    waived: tuple[str, ...] = ()
    close: int = 0
    contenders: tuple[Contender, ...] = ()
    rival: Mapping[str, Any] | None = None

    @property
    def is_fastest(self) -> bool:
        """Return whether the recommended execution is the fastest."""
        return self.difference == 0.0

    @property
    def difference(self) -> float | None:
        """Relative lead of the fastest: its throughput over the recommended one's, less 1."""
        if self.execution is None or self.fastest is None:
            return None
        return float(self.fastest["sample_rate"]) / float(self.execution["sample_rate"]) - 1.0

    @property
    def stake_usd(self) -> float | None:
        """Cost of training 1e12 tokens that depends on whether the rival is as fast as predicted [USD]; None without a
        rival or a price."""
        if self.execution is None or self.rival is None:
            return None
        rates = (float(each["sample_rate"]) for each in (self.execution, self.rival))
        return cost_of_difference(self.scenario, *rates)

    @property
    def advice(self) -> str:
        """Sentence that advises to measure the recommended execution and its rival; empty without a rival."""
        if self.execution is None or self.rival is None:
            return ""
        lead = float(self.rival["sample_rate"]) / float(self.execution["sample_rate"]) - 1.0
        stake = self.stake_usd
        depends = "" if stake is None else f": {stake:,.0f} USD per 1 T tokens depend on it"
        return (
            f"Measure it and {execution_name(self.rival)}, which is {format_percent(lead)} faster by prediction, "
            f"within the error{depends}."
        )

    @property
    def takes(self) -> tuple[str, ...]:
        """Mechanisms of the fastest that the recommended one does not need, in words."""
        return () if self.execution is None or self.fastest is None else more_than(self.fastest, self.execution)

    @property
    def why(self) -> str:
        """Reason why the fastest is not the recommended one, in words; empty if it is."""
        if self.execution is None or self.fastest is None or self.is_fastest:
            return ""
        return _Judge(self.scenario, self.terms, self.waived).reasons([self.fastest], self.execution)[0]


def explain_against(
    scenario: Scenario,
    terms: Terms,
    waived: Collection[str],
    execution: Mapping[str, Any],
    chosen: Mapping[str, Any],
) -> str:
    """Return why an execution is not the recommended one, in words, such as "keeps weights in host memory".

    Args:
        scenario: scenario of both.
        terms, waived: of the recommendation.
        execution: fields and statistics by name; it need not be in the space.
        chosen: the recommended execution.
    """
    return _Judge(scenario, terms, waived).reasons([{"id": -1, **execution}], chosen)[0]


def recommend(
    asked: Exploration | Scenario | Searched,
    *,
    error: float | None = None,
    headroom: float | None = None,
    offload: bool = False,
    unmeasured: bool = False,
    contenders: int = 10,
    where: Sequence[StoreCondition] = (),
    best: ProvenBest | None = None,
    prepared: AnyReadySpace | None = None,
    near: Mapping[str, Any] | None = None,
) -> Recommendation:
    """Returns which execution to run: of all within the error of the best the one with the fewest mechanisms, of
    equally simple ones the fastest.

    Only executions count that offload nothing, rest on nothing that was never measured, and fit with headroom. Where
    none of those comes within the error of the fastest, the best of them takes its place.

    Args:
        asked: an exploration, whose rows are read, a scenario, whose space is searched, or a search with bounds.
        error: share of the throughput that is too close to call; of comparable measured runs where None.
        headroom: share of the predicted memory to keep free; of measured runs where None.
        offload: whether executions that offload may be recommended.
        unmeasured: whether executions that rest on something never measured may be.
        contenders: how many of the best to say of why they lose.
        where: conditions that the executions of an exploration must meet, such as those of a filter or of a cell.
        best: the fastest executions of a scenario, if they are known.
        prepared: the space of a scenario, if it is prepared; see `engine.whatif.prepared_spaces.ready`.
        near: an evaluated execution that may be like the recommended one, such as that of a similar scenario: fields,
            outcome and figures. It changes the time of the search, and nothing else.

    Raises ValueError for a share that cannot be, for conditions on a scenario, and what exploring, searching or reading
    raises.
    """
    if where and not isinstance(asked, Exploration):
        raise ValueError("where goes with an exploration; limit the fields of a scenario instead.")
    if isinstance(asked, Exploration):
        source = _Source(Explored(asked, where))
    else:
        source = _Source(asked if isinstance(asked, Searched) else Searched(asked, best, prepared))
    given: dict[str, Any] = {"error": error, "headroom": headroom, "offload": offload, "unmeasured": unmeasured}
    terms = terms_of(source.scenario, None, **given)  # refuses what cannot be
    if source.best_rate is None:
        return Recommendation(source.scenario, None, None, terms)
    # First: those allowed are mostly among what it reads.
    layouts = _of_layouts(source, source.best_rate, contenders) if contenders else pd.DataFrame()
    fastest = _execution_at(layouts, 0) if contenders else None if best is None else best.execution
    fastest = _execution_at(source.fastest(), 0) if fastest is None else fastest
    judge, allowed, first = _allowed_executions(source, source.best_rate, given, near)
    chosen, close = (None, 0) if first is None else judge.choose(allowed, first, source.best_rate)
    rows = [_execution_at(layouts, place) for place in range(min(contenders, len(layouts)))]
    reasons = [""] * len(rows) if chosen is None else judge.reasons(rows, chosen)
    told = tuple(Contender(int(row["id"]), row, reason) for row, reason in zip(rows, reasons, strict=True))
    rival = None if first is None or chosen is None else _find_rival(chosen, _execution_at(allowed, first), judge.terms)
    return Recommendation(source.scenario, chosen, fastest, judge.terms, tuple(judge.waived), close, told, rival)


def _find_rival(chosen: Mapping[str, Any], fastest: dict[str, Any], terms: Terms) -> dict[str, Any] | None:
    """Return the fastest allowed execution if measuring it beside the chosen one is worth while."""
    lead = float(fastest["sample_rate"]) / float(chosen["sample_rate"]) - 1.0
    return fastest if WORTH_MEASURING <= lead <= terms.error else None


class _Source:
    """Executions by conditions, fastest first, of equal ones the simplest; results without terms are cached."""

    def __init__(self, source: Explored | Searched) -> None:
        self.scenario, self.best_rate = source.scenario, source.best_rate
        self._source = source
        self._whole, self._down_to = pd.DataFrame(), math.inf

    def find(self, sought: Sought) -> pd.DataFrame:
        if sought.rate >= self._down_to:
            return self._whole[sought.among(self._whole)].reset_index(drop=True)
        found = _sort_by_rate(self._source.find(sought))
        if sought == Sought(sought.rate):
            self._whole, self._down_to = found, sought.rate
        return found

    def fastest(self) -> pd.DataFrame:
        """Return the executions of the highest throughput, of all."""
        assert self.best_rate is not None
        return _sort_by_rate(self._source.find(Sought(self.best_rate)))

    def levels(self, sought: Sought) -> Iterator[float]:
        """Yield throughputs down to which to look for executions under conditions on memory [samples/s], falling to 0.

        Args:
            sought: the conditions; their rate does not count.
        """
        assert self.best_rate is not None
        known = self.best_rate * LEVELS[0]
        if self._down_to <= known:
            yield known  # these executions are cached already
        allowed = self._source.best_among(sought)
        if allowed is None:
            yield from (self.best_rate * share for share in LEVELS)
        else:
            yield from (allowed * share for share in FEW_LEVELS)


def _allowed_executions(
    source: _Source, best: float, given: Mapping[str, Any], near: Mapping[str, Any] | None
) -> tuple[_Judge, pd.DataFrame, int | None]:
    """Return the executions that fit without offload, down to the error of the best, and the fastest measured ones."""
    scenario = source.scenario
    judge = _Judge(scenario, terms_of(scenario, None, **given), _unmeasured_everywhere(scenario))
    found, first = pd.DataFrame(), None
    for level in _levels(source, judge, best, given, near):
        found = source.find(judge.sought(level))
        first = judge.first(found)
        if first is None and level == 0.0:
            judge = _Judge(scenario, judge.terms, judge.waived | _common_unmeasured(scenario, found))
            first = judge.first(found)
        if first is None:
            continue
        judge = judge.on(terms_of(scenario, _execution_at(found, first), **given))
        floor = _throughput_floor(float(found["sample_rate"].iloc[first]), best, judge.terms.error)
        if floor < level:
            found = source.find(judge.sought(floor))
            first = judge.first(found)
        break
    return judge, found, first


def _levels(
    source: _Source, judge: _Judge, best: float, given: Mapping[str, Any], near: Mapping[str, Any] | None
) -> Iterator[float]:
    """Yield throughputs down to which to look [samples/s]: first the lowest that counts if the recommended execution
    is at least as fast as the one that may be like it, so that one search is enough."""
    if near is not None and near.get("status") == "ok" and judge.sought(0.0).among(pd.DataFrame([dict(near)]))[0]:
        error = terms_of(source.scenario, near, **given).error
        yield _throughput_floor(float(near["sample_rate"]), best, error)
    yield from source.levels(judge.sought(0.0))


def _of_layouts(source: _Source, best: float, number: int) -> pd.DataFrame:
    """The fastest executions of different layouts, with and without offload."""
    for share in LEVELS:
        found = source.find(Sought(best * share))
        apart = [*(name for name in LAYOUT if name in found), "offloads"]
        found = found[~found.assign(offloads=has_offloading(found)).duplicated(apart)]
        if len(found) >= number:
            break
    return found


def _throughput_floor(allowed: float, best: float, error: float) -> float:
    """Return the throughput within the error of the best, or of the best allowed execution if that is slower."""
    floor = best / (1.0 + error)
    return floor if allowed >= floor else allowed / (1.0 + error)


def _sort_by_rate(found: pd.DataFrame) -> pd.DataFrame:
    """Fastest first, of equal ones the simplest."""
    found = found.assign(mechanisms=number_of_mechanisms(found))
    offloads = found[[name for name in OFFLOADS if name in found]].sum(axis=1)
    order = np.lexsort((found["id"], found["mechanisms"], offloads, -found["sample_rate"]))
    return found.iloc[order].reset_index(drop=True)


def _execution_at(found: pd.DataFrame, place: int) -> dict[str, Any]:
    return {str(name): value for name, value in found.iloc[place].to_dict().items() if name != "mechanisms"}


def _unmeasured_everywhere(scenario: Scenario) -> frozenset[str]:
    """Return the properties without measurement that executions all over the space share.

    Without them as a ground for refusal the search need not look at slower and slower executions in vain.
    """
    total = scenario.space.total
    spread = np.unique(np.linspace(0, total - 1, min(SPREAD, total)).astype(np.int64)) if total else np.zeros(0, int)
    return _common_unmeasured(scenario, scenario.space.table(spread))


def _common_unmeasured(scenario: Scenario, found: pd.DataFrame) -> frozenset[str]:
    """Return the properties without measurement that all executions share."""
    told = scenario.not_measured_of_rows(found.head(LOOKED_AT)) if len(found) else []
    return frozenset(one for one in told[0] if all(one in other for other in told)) if told else frozenset()


class _Judge:
    """Judge of executions on given terms: allowed or not, and reasons against the others."""

    def __init__(self, scenario: Scenario, terms: Terms, waived: Collection[str]) -> None:
        self.scenario, self.terms, self.waived = scenario, terms, frozenset(waived)
        self._known: tuple[pd.DataFrame, list[list[str]]] | None = None

    def on(self, terms: Terms) -> _Judge:
        """Return a judge on other terms that waives the same."""
        other = _Judge(self.scenario, terms, self.waived)
        other._known = self._known
        return other

    def sought(self, rate: float) -> Sought:
        """Returns what executions of at least a throughput [samples/s] have to be to be allowed, measured or not."""
        first, second = (
            tier.capacity_gib * GIB / (1.0 + self.terms.headroom)
            for tier in (self.scenario.system.mem1, self.scenario.system.mem2)
        )
        return Sought(rate, not self.terms.offload, first, second)

    def _unknown(self, rows: pd.DataFrame) -> list[list[str]]:
        """Return the properties of executions that count against them because they were never measured."""
        return [[one for one in told if one not in self.waived] for told in self.scenario.not_measured_of_rows(rows)]

    def _measured(self, found: pd.DataFrame, places: np.ndarray[Any, Any]) -> int | None:
        """The first of some places whose execution rests on nothing that was never measured."""
        if self.terms.unmeasured:
            return int(places[0]) if len(places) else None
        few = len(found) <= _AT_FIRST
        if few and (self._known is None or self._known[0] is not found):
            self._known = found, self._unknown(found)
        for here in (places[:_AT_FIRST], places[_AT_FIRST:LOOKED_AT]):  # nearly always one of the first is measured
            every = (
                [self._known[1][place] for place in here] if few and self._known else self._unknown(found.iloc[here])
            )
            for place, unknown in zip(here, every, strict=True):
                if not unknown:
                    return int(place)
        return None

    def first(self, found: pd.DataFrame) -> int | None:
        """Returns the place of the fastest execution that is allowed; None without any."""
        return self._measured(found, np.arange(len(found)))

    def choose(self, found: pd.DataFrame, first: int, best: float) -> tuple[dict[str, Any], int]:
        """Returns the simplest execution that is allowed and too close to call, and how many are, measured or not."""
        floor = _throughput_floor(float(found["sample_rate"].iloc[first]), best, self.terms.error)
        near = np.flatnonzero(found["sample_rate"].to_numpy() >= floor)
        simplest = near[np.argsort(found["mechanisms"].to_numpy()[near], kind="stable")]
        place = self._measured(found, simplest)
        return _execution_at(found, first if place is None else place), len(near)

    def reasons(self, rows: Sequence[Mapping[str, Any]], chosen: Mapping[str, Any]) -> list[str]:
        """Returns why each of some executions is not the chosen one, in words; empty where it is."""
        if not rows or self.terms.unmeasured:
            return [self._reason(row, chosen, []) for row in rows]
        table = pd.DataFrame([{name: value for name, value in row.items() if name != "id"} for row in rows])
        return [self._reason(row, chosen, one) for row, one in zip(rows, self._unknown(table), strict=True)]

    def _reason(self, row: Mapping[str, Any], chosen: Mapping[str, Any], unknown: list[str]) -> str:
        """Return the reason against an execution, including properties that were never measured."""
        if row["id"] == chosen["id"]:
            return ""
        offloads = [name for name in OFFLOADS if row.get(name)]
        if offloads and not self.terms.offload:
            what = [KEPT[name] for name in offloads]
            return f"keeps {_join_listed(what)} in host memory"
        if unknown:
            return f"never measured: {_join_listed(unknown)}"
        for second, tier in ((False, "HBM"), (True, "host memory")):
            needed = float(row[f"proc_mem_tier{2 if second else 1}_cap_req"])
            if fit_of(self.scenario, needed, self.terms.headroom, second=second) != "fits":
                capacity = (self.scenario.system.mem2 if second else self.scenario.system.mem1).capacity_gib
                return (
                    f"may not fit: {needed / GIB:.1f} of {capacity:.1f} GiB {tier} leave less than the "
                    f"{100 * self.terms.headroom:.0f} % kept free"
                )
        rate, own = float(row["sample_rate"]), float(chosen["sample_rate"])
        more = more_than(row, chosen)
        apart = format_percent(abs(rate / own - 1.0))
        if rate < own:
            return f"{apart} slower" + (f", and needs {_join_listed(more)}" if more else "")
        return f"{apart} faster, within the error, but needs {_join_listed(more) if more else 'more features'}"


def _join_listed(words: list[str] | tuple[str, ...]) -> str:
    """Words as a list: "weights and optimizer"; of many the first three and how many more."""
    if len(words) > 4:
        return f"{', '.join(words[:3])} and {len(words) - 3} more"
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
